"""PPO for sequences: improvement from feedback, KL limit, and recovery from faults."""

import os
from dataclasses import dataclass, replace

import numpy as np
import pytest

from lab.evidence_worlds import BEST, COLUMNS, made_up
from steersman.errors import DataError, InputError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import scorer_state
from steersman.policies.sequence import StepRule, step_distribution
from steersman_systems.evidence_selection.training.task import walks
from tests.forked import call

torch = pytest.importorskip("torch", reason="needs the extra rl")

from steersman_systems.evidence_selection.training.network import NOTHING  # noqa: E402 - after torch was found
from steersman_systems.evidence_selection.training.ppo import (  # noqa: E402
    PpoSettings,
    _logs,
    _minibatches,
    _normalised,
    ppo,
)

RULE = StepRule(20, 1.0, 0.05)
START = NetworkScorer.linear(np.zeros(len(COLUMNS)))
FREE = PpoSettings(
    rounds=3, each=8, rule=RULE, learning_rate=3e-3, kl_clone=0.0, kl_limit=50.0, kl_step=0.1,
    patience=20,
)  # fmt: skip


def _worth(tasks, scorer):
    return np.mean([one.reward for one in walks(tasks, scorer, RULE.greedy, each=1, seed=0)])


def _bytes(trained):
    return {name: array.tobytes() for name, array in scorer_state(trained.scorer).items()}


@pytest.mark.nightly
@pytest.mark.slow
def test_it_reaches_the_known_optimum_from_feedback_alone():
    found = ppo(made_up(100, seed=1), START, replace(FREE, rounds=30))
    assert _worth(made_up(150, seed=2), found.scorer) >= 0.95 * BEST


@pytest.mark.nightly
@pytest.mark.slow
def test_feedback_improves_the_policy():
    found = ppo(made_up(60, seed=1), START, replace(FREE, rounds=6))
    assert found.rounds[-1].reward > found.rounds[0].reward + 0.03


def test_probabilities_in_training_are_those_that_steps_are_drawn_with():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, 5))
    there = torch.ones(4, 5, dtype=torch.bool)
    there[2, 3:] = False
    filled = torch.from_numpy(scores).masked_fill(~there, NOTHING)
    logs = _logs(filled, there, StepRule(10, 0.7, 0.2)).numpy()
    for row in range(4):
        count = int(there[row].sum())
        wanted = step_distribution(scores[row, :count], StepRule(10, 0.7, 0.2))
        assert np.allclose(np.exp(logs[row, :count]), wanted, atol=1e-12)


def test_it_starts_as_the_very_clone():
    clone = NetworkScorer.linear(np.arange(7.0))
    found = ppo(made_up(10, seed=1), clone, replace(FREE, rounds=1, learning_rate=1e-30))
    rows = np.random.default_rng(0).random((20, 7))
    assert np.allclose(found.scorer.scores(rows), clone.scores(rows), atol=1e-9)


def test_it_does_not_leave_its_clone_beyond_the_limit():
    """A step that exceeds the limit at once is undone."""
    near = replace(FREE, learning_rate=0.3, kl_limit=1e-4)
    found = ppo(made_up(30, seed=1), START, near)
    assert found.stopped == "early"
    rows = np.random.default_rng(0).random((20, 7))
    assert np.allclose(found.scorer.scores(rows), START.scores(rows), atol=1e-9)


@pytest.mark.parametrize(("regression", "back"), [(0.01, True), (2.0, False)])
def test_from_a_round_that_is_worse_it_goes_back(regression, back):
    """Held-out rewards are 1 before the first round and 0 after it."""
    drawn, judged = [], []

    def falling(tasks, scorer, rule, *, each, seed):
        found = walks(tasks, scorer, rule, each=each, seed=seed)
        if each == FREE.each:
            drawn.append(scorer)
            return found
        judged.append(each)
        return [replace(one, reward=float(len(judged) <= 2)) for one in found]

    how = replace(FREE, rounds=2, regression=regression)
    found = ppo(made_up(30, seed=1), START, how, sample=falling)
    rows = np.random.default_rng(0).random((20, 7))
    assert (found.before, found.rounds[0].held_out) == (1.0, 0.0)
    assert np.allclose(drawn[1].scores(rows), START.scores(rows), atol=1e-9) == back
    assert np.allclose(found.scorer.scores(rows), START.scores(rows), atol=1e-9), "the best is kept"


def test_it_learns_from_minibatches_of_one_step_too():
    """Within a minibatch of one step the normalised advantage is 0."""
    how = replace(
        FREE, rounds=1, each=4, minibatch=1, entropy=0.0, kl_step=1e9, epochs=1, regression=2.0
    )
    seen = []

    def watched(tasks, scorer, rule, *, each, seed):
        seen.append(scorer)
        return walks(tasks, scorer, rule, each=each, seed=seed)

    ppo(made_up(12, seed=1), START, how, sample=watched)
    rows = np.random.default_rng(0).random((50, len(COLUMNS)))
    assert np.abs(seen[-1].scores(rows) - START.scores(rows)).max() > 0.05


def test_advantages_of_one_or_two_steps_are_those_of_the_round():
    whole = torch.tensor([3.0, 0.01, 0.02, -1.0, 0.5], dtype=torch.float64)
    wanted = (whole - whole.mean()) / whole.std(correction=0)
    for count in (1, 2, 5):
        assert torch.allclose(_normalised(whole[:count], whole), wanted[:count])
    own = _normalised(whole[1:4], whole)
    assert torch.allclose(own.mean(), torch.zeros(1, dtype=torch.float64), atol=1e-9)
    assert _normalised(whole[:1], whole[:1]).item() == 3.0  # a round of one step


@pytest.mark.parametrize(
    ("steps", "size", "sizes"),
    [(10, 4, [4, 6]), (9, 4, [4, 5]), (11, 4, [4, 4, 3]), (8, 4, [4, 4]), (2, 4, [2]),
     (3, 2, [2, 1]), (3, 1, [1, 1, 1]), (257, 256, [257])],
)  # fmt: skip
def test_a_rest_of_one_or_two_steps_joins_the_last_minibatch(steps, size, sizes):
    order = torch.arange(steps)
    parts = _minibatches(order, size)
    assert [len(part) for part in parts] == sizes
    assert torch.equal(torch.cat(parts), order)


def test_defaults_are_those_asked_for():
    how = PpoSettings()
    assert (how.clip, how.smoothing, how.gamma) == (0.2, 0.95, 0.99)


def _dying(folder):
    """Exit abruptly in the middle of the third round."""
    calls = []

    def dying(*args, **kwargs):
        calls.append(1)
        if len(calls) == 7:
            os._exit(9)
        return walks(*args, **kwargs)

    ppo(made_up(20, seed=1), START, FREE, seed=4, folder=folder, sample=dying)


@pytest.mark.slow
def test_a_run_killed_midway_goes_on_to_the_same_bytes(tmp_path):
    tasks = made_up(20, seed=1)
    whole = ppo(tasks, START, FREE, seed=4)
    assert call(_dying, tmp_path).wait() == 9
    assert list(tmp_path.glob("round-*.safetensors"))
    resumed = ppo(tasks, START, FREE, seed=4, folder=tmp_path)
    assert _bytes(resumed) == _bytes(whole)
    assert resumed.rounds == whole.rounds
    with pytest.raises(DataError, match="with other settings"):
        ppo(tasks, START, FREE, seed=5, folder=tmp_path)


def test_rewards_that_are_no_numbers_stop_it_and_the_last_good_is_kept():
    calls = []

    def broken(tasks, scorer, rule, *, each, seed):
        found = walks(tasks, scorer, rule, each=each, seed=seed)
        calls.append(each)
        late = len([one for one in calls if one == FREE.each]) > 1
        return [replace(one, reward=np.nan) for one in found] if late else found

    found = ppo(made_up(20, seed=1), START, FREE, sample=broken)
    assert found.stopped == "not finite"
    assert len(found.rounds) == 1
    assert np.isfinite(found.scorer.scores(np.zeros((1, 7)))).all()


def test_losses_that_are_no_numbers_stop_it_and_the_last_good_is_kept():
    found = ppo(made_up(20, seed=1), START, replace(FREE, learning_rate=1e200, kl_limit=1e300))
    assert found.stopped == "not finite"
    assert np.isfinite(found.scorer.scores(np.zeros((1, 7)))).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"clip": 1.0},
        {"rule": StepRule(temperature=0.0)},
        {"kl_limit": 0.0},
        {"gamma": 1.5},
        {"learning_rate": 0.0},
        {"held_out": 0.9},
    ],
)
def test_settings_out_of_their_range_are_refused(wrong):
    with pytest.raises(InputError):
        PpoSettings(**wrong)


@dataclass(frozen=True)
class _Bare:
    """Question without candidates."""

    id: str

    @property
    def group(self):
        return self.id

    def begin(self):
        return ()

    def options(self, _):
        return None

    def reward(self, _):
        return 0.0

    def potential(self, _):
        return 0.0


def test_questions_without_a_step_are_refused():
    with pytest.raises(InputError, match="has a step; pass questions with candidates"):
        ppo([_Bare(f"q{number}") for number in range(8)], START, FREE)
