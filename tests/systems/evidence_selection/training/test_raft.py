"""RAFT: finds the best selections of a synthetic world from feedback, and recovers from faults."""

import os
from dataclasses import dataclass, replace

import numpy as np
import pytest

from lab.evidence_worlds import BEST, COLUMNS, made_up
from steersman.errors import DataError, InputError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import scorer_state
from steersman.policies.sequence import Step, StepRule
from steersman_systems.evidence_selection.training.raft import (
    RaftSettings,
    TreesOnTop,
    by_task,
    causes,
    keep,
    raft,
    visiting,
)
from steersman_systems.evidence_selection.training.rounds import crossed, split
from steersman_systems.evidence_selection.training.task import (
    Options,
    TakenStep,
    Walk,
    stream,
    walks,
)
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings
from tests.forked import call

pytest.importorskip("lightgbm", reason="needs the extra evidence")

RULE = StepRule(20, 1.0, 0.1)
START = NetworkScorer.linear(np.zeros(len(COLUMNS)))
FEW = RaftSettings(rounds=3, each=8, rule=RULE)
SMALL = TreesOnTop(TreeSettings(trees=10, learning_rate=0.2))


def _worth(tasks, scorer):
    return np.mean([one.reward for one in walks(tasks, scorer, RULE.greedy, each=1, seed=0)])


@pytest.mark.nightly
@pytest.mark.slow
def test_it_reaches_the_known_optimum_from_feedback_alone():
    fresh = made_up(150, seed=2)
    found = raft(
        made_up(150, seed=1), START, RaftSettings(rounds=8, each=32, rule=RULE),
        tune=TreesOnTop(TreeSettings(trees=60, learning_rate=0.15, ridge=1.0)),
    )  # fmt: skip
    assert _worth(fresh, START) < 0.3
    assert _worth(fresh, found.scorer) >= 0.95 * BEST


@pytest.mark.slow
def test_feedback_improves_the_policy_round_by_round():
    found = raft(made_up(60, seed=1), START, FEW, tune=SMALL)
    rewards = [one.reward for one in found.rounds]
    assert rewards[-1] > rewards[0] + 0.1
    assert found.stopped == "rounds"


def _bytes(trained):
    return {name: array.tobytes() for name, array in scorer_state(trained.scorer).items()}


def _judging(how):
    return max(1, how.crossed)


def _dying(folder, how):
    """Exit in the third round."""
    calls = []

    def dying(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3 + 2 * _judging(how):
            os._exit(9)
        return walks(*args, **kwargs)

    raft(made_up(30, seed=1), START, how, tune=SMALL, seed=4, folder=folder, sample=dying)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {},
        pytest.param({"credit": "action"}, marks=pytest.mark.nightly),
        pytest.param({"credit": "action", "crossed": 2}, marks=pytest.mark.nightly),
    ],
)
def test_a_run_killed_midway_goes_on_to_the_same_bytes(tmp_path, how):
    """A process dies between two rounds; another one resumes in its folder."""
    tasks, few = made_up(30, seed=1), replace(FEW, **how)
    whole = raft(tasks, START, few, tune=SMALL, seed=4)
    assert call(_dying, tmp_path, few).wait() == 9
    assert list(tmp_path.glob("round-*.safetensors"))
    asked = []

    def counting(*args, **kwargs):
        asked.append(1)
        return walks(*args, **kwargs)

    resumed = raft(tasks, START, few, tune=SMALL, seed=4, folder=tmp_path, sample=counting)
    assert len(asked) <= 2 * (1 + _judging(few)), "rounds that were finished are not done again"
    assert _bytes(resumed) == _bytes(whole)
    assert resumed.rounds == whole.rounds
    again = raft(tasks, START, few, tune=SMALL, seed=4, folder=tmp_path)
    assert _bytes(again) == _bytes(whole)


def test_a_folder_of_another_run_is_refused(tmp_path):
    tasks = made_up(10, seed=1)
    raft(tasks, START, replace(FEW, rounds=1), tune=SMALL, folder=tmp_path)
    with pytest.raises(DataError, match="with other settings"):
        raft(tasks, START, replace(FEW, rounds=1), tune=SMALL, seed=1, folder=tmp_path)


def test_a_damaged_checkpoint_is_named(tmp_path):
    tasks = made_up(10, seed=1)
    raft(tasks, START, replace(FEW, rounds=1), tune=SMALL, folder=tmp_path)
    (tmp_path / "round-000001.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="delete it"):
        raft(tasks, START, replace(FEW, rounds=1), tune=SMALL, folder=tmp_path)


@pytest.mark.slow
def test_rewards_that_are_no_numbers_stop_it_and_the_last_good_is_kept():
    rounds = []

    def broken(tasks, scorer, rule, *, each, seed):
        found = walks(tasks, scorer, rule, each=each, seed=seed)
        rounds.append(each)
        late = len([one for one in rounds if one > 1]) > 2
        return [replace(one, reward=np.nan) for one in found] if late else found

    found = raft(made_up(60, seed=1), START, FEW, tune=SMALL, sample=broken)
    assert found.stopped == "not finite"
    assert len(found.rounds) == 2
    assert np.isfinite(found.scorer.scores(np.zeros((1, len(COLUMNS))))).all()
    assert _worth(made_up(60, seed=2), found.scorer) > _worth(made_up(60, seed=2), START)


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_it_and_the_last_good_is_kept():
    turns = []

    def diverging(examples, start, *, seed):
        turns.append(1)
        if len(turns) == 2:
            message = "the loss is nan"
            raise FloatingPointError(message)
        return SMALL(examples, start, seed=seed)

    found = raft(made_up(60, seed=1), START, FEW, tune=diverging)
    assert found.stopped == "not finite"
    assert len(found.rounds) == 1


def test_feedback_that_never_differs_teaches_nothing():
    def constant(tasks, scorer, rule, *, each, seed):
        found = walks(tasks, scorer, rule, each=each, seed=seed)
        return [replace(one, reward=0.5) for one in found]

    found = raft(made_up(10, seed=1), START, FEW, tune=SMALL, sample=constant)
    assert (found.stopped, found.scorer) == ("nothing to learn", START)


@pytest.mark.slow
def test_a_worse_round_is_gone_back_from():
    """The tuner spoils the second round; the third starts from the first's policy."""
    seen, made = [], []

    def spoiling(examples, start, *, seed):
        good = SMALL(examples, start, seed=seed)
        made.append(NetworkScorer.linear(-np.ones(7)) if len(made) == 1 else good)
        return made[-1]

    def watching(tasks, scorer, rule, *, each, seed):
        if each > 1:
            seen.append(scorer)
        return walks(tasks, scorer, rule, each=each, seed=seed)

    found = raft(made_up(60, seed=1), START, FEW, tune=spoiling, sample=watching)
    assert found.rounds[1].held_out < found.rounds[0].held_out
    assert seen[2] is made[0]


def _walk(task, actions, reward):
    rows = np.arange(6.0).reshape(3, 2)
    names = ("a", "b", "c")
    taken = tuple(
        TakenStep(Step(names, one, 0.5), rows, names.index(one), names.index(one))
        for one in actions
    )
    return Walk(task, taken, reward, 0.5 ** len(actions), np.zeros(len(actions) + 1))


def test_the_best_selection_of_each_question_is_kept():
    log = [_walk("q", "b", 0.0), _walk("q", "ab", 1.0), _walk("q", "a", 1.0), _walk("r", "c", 0.2)]
    best, kept = keep(log)
    assert best == pytest.approx(0.6)
    assert kept == {"q": log[1], "r": log[3]}


def test_what_alone_brings_the_reward_is_told_from_what_was_taken_beside_it():
    """A noisy or with known probabilities is recovered; inert actions get nearly none."""
    rng = np.random.default_rng(0)
    theta = {"a": 0.9, "b": 0.4, "c": 0.0, "d": 0.0}
    log = []
    for _ in range(4000):
        taken = frozenset(name for name in theta if rng.random() < 0.5)
        none = np.prod([1.0 - theta[name] for name in taken])
        log.append((taken, float(rng.random() < 1.0 - none)))
    found = causes(log)
    assert {name: round(one, 1) for name, one in found.items()} == theta


def test_a_selection_that_came_out_wrong_clears_all_that_it_took():
    """Actions that lead to the answer, or are only taken with it, get no credit."""
    log = [(frozenset("ab"), 1.0), (frozenset("bc"), 0.0), (frozenset("ac"), 1.0)]
    assert causes(log, doubt=0.0) == {"a": 1.0, "b": 0.0, "c": 0.0}
    either = causes([(frozenset("ab"), 1.0)], doubt=0.0)
    assert either["a"] == either["b"] > 0.4, "nothing tells them apart"
    assert causes([(frozenset("a"), 0.0)]) == {"a": 0.0}
    assert causes([]) == {}


def test_few_selections_are_doubted():
    once = [(frozenset("a"), 1.0), *[(frozenset("b"), 0.0)] * 9]
    often = [*[(frozenset("a"), 1.0)] * 9, *[(frozenset("b"), 0.0)] * 9]
    assert causes(once)["a"] == pytest.approx(0.5)
    assert causes(often)["a"] == pytest.approx(0.9)


def test_selections_of_two_policies_may_stand_in_one_log():
    """One policy always takes a with b; the other separates them."""
    one, other = [(frozenset("ab"), 1.0)] * 20, [(frozenset("b"), 0.0)] * 2
    assert causes([*one, *other])["a"] > 0.9
    assert causes([*one, *other])["b"] < 0.1


@pytest.mark.slow
def test_credit_is_passed_on_by_who_knows_the_questions():
    """`passing` is called for training questions, and its result is learned."""
    asked = []

    def passing(tasks, known):
        asked.append({task.id: dict(known.get(task.id, {})) for task in tasks})
        return {task.id: {f"c{task.bridge}": 1.0, f"c{task.target}": 1.0} for task in tasks}

    tasks = made_up(60, seed=1)
    once = replace(FEW, rounds=1, credit="action", regression=1.0)
    found = raft(tasks, START, once, tune=SMALL, passing=passing)
    alone = raft(tasks, START, once, tune=SMALL)
    assert len(asked) == 1
    learned, held_out = split(tasks, once.held_out, 0)
    assert set(asked[0]) == {task.id for task in learned}
    assert all(0.0 <= one <= 1.0 for own in asked[0].values() for one in own.values())
    assert _worth(held_out, found.scorer) > _worth(held_out, alone.scorer)


def test_a_log_of_none_of_the_learned_questions_is_refused():
    tasks, others = made_up(20, seed=1), made_up(5, seed=9)
    elsewhere = walks(others, START, RULE, each=2, seed=0)
    with pytest.raises(InputError, match="10 selections of 5 questions, of which none is among"):
        raft(tasks, START, FEW, tune=SMALL, log=elsewhere)
    _, judged = split(tasks, FEW.held_out, 0)
    held_out = walks(judged, START, RULE, each=2, seed=0)
    with pytest.raises(InputError, match="none is among the 16 training questions"):
        raft(tasks, START, FEW, tune=SMALL, log=held_out)
    with pytest.raises(InputError, match="0 selections of 0 questions"):
        raft(tasks, START, FEW, tune=SMALL, log=[])


def test_where_one_looks_does_not_depend_on_what_was_drawn():
    drawn = {
        stream(1_000_003 * seed + number, "q").random() for seed in (0, 1) for number in (0, 1)
    }
    looked = {visiting(seed, number, "q").random() for seed in (0, 1) for number in (0, 1)}
    assert len(drawn | looked) == 8


def test_to_stop_and_to_expand_brings_nothing():
    """Every selection ends with stop, which would otherwise share the credit."""
    names = ("a", "b", "expand", "stop")
    rows = np.zeros((4, 2))

    def taking(*actions):
        taken = tuple(
            TakenStep(Step(names, one, 0.5), rows, names.index(one), 0) for one in actions
        )
        return Walk("q", taken, 1.0, 0.25, np.zeros(len(actions) + 1))

    log = [taking("a", "expand", "stop")] * 12 + [taking("b", "expand")] * 12
    found = causes(by_task(log)["q"])
    assert found.keys() == {"a", "b"}
    assert min(found.values()) > 0.8


@pytest.mark.slow
def test_learning_by_the_credit_of_actions_works_too():
    by_action = replace(FEW, credit="action", each=16)
    found = raft(made_up(60, seed=1), START, by_action, tune=SMALL)
    assert found.rounds[-1].reward > found.rounds[0].reward + 0.05


def test_a_log_of_another_policy_is_learned_from_before_anything_is_drawn():
    tasks = made_up(40, seed=1)
    log = walks(
        tasks, NetworkScorer.linear(np.array([3.0, 3, 1, 0, 0, 0, 0])), RULE, each=8, seed=5
    )
    drawn = []

    def watching(tasks, scorer, rule, *, each, seed):
        drawn.append(each)
        return walks(tasks, scorer, rule, each=each, seed=seed)

    once = replace(FEW, rounds=1)
    found = raft(tasks, START, once, tune=SMALL, log=log, sample=watching)
    assert set(drawn) == {1}, "only held-out questions were selected for"
    assert found.rounds[0].reward > 0.1
    assert _worth(made_up(40, seed=2), found.scorer) > _worth(made_up(40, seed=2), START)


def test_held_out_questions_are_no_others():
    tasks = made_up(20, seed=0)
    learned, judged = split(tasks, 0.25, 3)
    assert len(judged) == 5
    assert {one.id for one in learned} | {one.id for one in judged} == {one.id for one in tasks}
    assert not {one.id for one in learned} & {one.id for one in judged}
    with pytest.raises(InputError, match="at least 5"):
        split(tasks[:4], 0.25, 3)


def test_every_question_judges_once_and_nothing_that_it_taught():
    tasks = made_up(20, seed=0)
    parts = crossed(tasks, 3, 5)
    assert sorted(one.id for _, own in parts for one in own) == sorted(one.id for one in tasks)
    assert sorted(len(own) for _, own in parts) == [6, 7, 7]
    for others, own in parts:
        assert {one.id for one in others}.isdisjoint(one.id for one in own)
        assert len(others) + len(own) == 20
    with pytest.raises(InputError, match="4 questions; at least 5 are needed"):
        crossed(tasks[:4], 2, 5)
    with pytest.raises(InputError, match=r"20 questions of 20 groups .* at least 30 are needed"):
        crossed(tasks, 30, 5)


@dataclass(frozen=True, eq=False)
class Turn:
    """Turn of a conversation; its features do not show the correct action."""

    id: str
    group: str
    rows: np.ndarray
    right: int

    def begin(self):
        return ()

    def options(self, state):
        names = [f"c{place}" for place in range(len(self.rows))]
        return None if state else Options(names, self.rows, len(names))

    def take(self, state, place):
        return (place,)

    def reward(self, state):
        return float(state == (self.right,))

    def potential(self, state):
        return 0.0


def _talks(count, tag):
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        rows, right = rng.random((6, 5)), int(rng.integers(6))
        found += [Turn(f"{tag}{number}#{turn}", f"{tag}{number}", rows, right) for turn in range(3)]
    return found


def test_a_conversation_is_on_one_side():
    tasks = _talks(10, "c")
    for learned, judged in [split(tasks, 0.2, 1), *crossed(tasks, 3, 1)]:
        assert {one.group for one in learned}.isdisjoint(one.group for one in judged)
        assert len(learned) + len(judged) == 30
    assert len(split(tasks, 0.2, 1)[1]) == 6
    alone = [replace(one, group="c") for one in tasks]
    for divide in (lambda: split(alone, 0.2, 1), lambda: crossed(alone, 2, 1)):
        with pytest.raises(InputError, match="30 questions of 1 groups"):
            divide()


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"crossed": 3}, {"credit": "action", "crossed": 3}])
def test_what_is_learned_by_heart_is_no_better(how):
    """Judged by turns of training conversations, .9 was correct: memorised."""
    start = NetworkScorer.linear(np.array([1e-3, -2e-3, 5e-4, 1e-3, -1e-3]))
    tune = TreesOnTop(TreeSettings(trees=60, learning_rate=0.3, least=5))
    settings = RaftSettings(rounds=1, each=16, rule=StepRule(6, 1.0, 0.1), **how)
    found = raft(_talks(20, "c"), start, settings, tune=tune)
    assert found.rounds[0].held_out < 0.5


@pytest.mark.slow
def test_what_changed_nothing_is_no_better_and_no_worse_to_the_bit():
    """Summing rewards part by part gave rounding differences."""
    how = replace(FEW, rounds=1, crossed=3, regression=0.0)
    for seed in range(12):
        found = raft(made_up(60, seed=1), START, how, tune=lambda _, start, **__: start, seed=seed)
        assert found.rounds[0].held_out == found.before


@pytest.mark.slow
def test_all_questions_teach_and_all_judge_what_others_taught():
    taught, judged = [], []

    def passing(tasks, known):
        assert known.keys() <= {task.id for task in tasks}
        taught.append({task.id for task in tasks})
        return known

    def watching(tasks, scorer, rule, *, each, seed):
        if each == 1:
            judged.append({task.id for task in tasks})
        return walks(tasks, scorer, rule, each=each, seed=seed)

    tasks = made_up(60, seed=1)
    every = {task.id for task in tasks}
    once = replace(FEW, rounds=1, each=16, credit="action", crossed=3)
    found = raft(tasks, START, once, tune=SMALL, passing=passing, sample=watching)
    assert judged[0] == taught[0] == every
    assert [one | other for one, other in zip(taught[1:], judged[1:], strict=True)] == [every] * 3
    assert not any(one & other for one, other in zip(taught[1:], judged[1:], strict=True))
    assert set.union(*judged[1:]) == every
    assert found.rounds[0].held_out > found.before
    alone = raft(tasks, START, replace(once, crossed=0), tune=SMALL)
    assert found.rounds[0].kept > alone.rounds[0].kept, "what was held out is learned from too"


@pytest.mark.slow
def test_what_misleads_is_gone_back_from_when_all_judge():
    """Logged rewards are inverted; judging rewards are not."""

    def turned(tasks, scorer, rule, *, each, seed):
        found = walks(tasks, scorer, rule, each=each, seed=seed)
        return [replace(one, reward=1.0 - one.reward) for one in found] if each > 1 else found

    start = NetworkScorer.linear(np.array([3.0, 3, 1, 0, 0, 0, 0]))
    how = replace(FEW, rounds=1, credit="action", crossed=2, regression=0.0)
    found = raft(made_up(60, seed=1), start, how, tune=SMALL, sample=turned)
    assert found.rounds[0].held_out < found.before
    assert found.scorer is start


def test_a_part_whose_others_were_not_logged_is_judged_by_the_start():
    """The log of one question trains all parts but its own, which keeps the start policy."""
    tasks = made_up(10, seed=1)
    asked = []

    def watching(tasks, scorer, rule, *, each, seed):
        asked.append((scorer, {task.id for task in tasks}))
        return walks(tasks, scorer, rule, each=each, seed=seed)

    log = walks(tasks[:1], START, RULE, each=32, seed=5)
    how = replace(FEW, rounds=1, credit="action", crossed=2)
    found = raft(tasks, START, how, tune=SMALL, log=log, sample=watching)
    assert len(found.rounds) == 1
    assert [scorer is START for scorer, _ in asked[1:]] == [
        tasks[0].id in own for _, own in asked[1:]
    ]


def test_walks_of_a_question_depend_on_no_other():
    tasks = made_up(4, seed=0)
    whole = walks(tasks, START, RULE, each=3, seed=7)
    alone = walks(tasks[2:3], START, RULE, each=3, seed=7)
    assert [one.taken[0].step for one in whole[6:9]] == [one.taken[0].step for one in alone]
    assert all(one.propensity > 0 for one in whole)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"each": 1},
        {"rule": StepRule(temperature=0.0)},
        {"credit": "luck"},
        {"least": 0.0},
        {"others": 1},
        {"held_out": 0.0},
        {"crossed": 1},
        {"patience": 0},
        {"regression": -0.1},
    ],
)
def test_settings_out_of_their_range_are_refused(wrong):
    with pytest.raises(InputError):
        RaftSettings(**wrong)
