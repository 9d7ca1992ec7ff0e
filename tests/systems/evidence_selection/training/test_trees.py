"""Trees as arrays score like LightGBM, and the softmax loss is the policy's likelihood."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.evidence_selection.training import tree_growth as module
from steersman_systems.evidence_selection.training.examples import Examples
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings, grow

lightgbm = pytest.importorskip("lightgbm", reason="needs the extra evidence")


def _examples(seed=0, steps=150, actions=10):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(steps * actions, 5))
    rows[:, 2] = rng.integers(0, 3, len(rows))
    worth = (rows[:, 0] * rows[:, 1] + rows[:, 2]).reshape(steps, actions)
    targets = np.zeros((steps, actions))
    targets[np.arange(steps), worth.argmax(axis=1)] = 1.0
    return Examples(rows, targets.ravel(), np.ones(len(rows)), np.full(steps, actions))


@pytest.mark.parametrize("loss", ["binary", "softmax"])
def test_arrays_score_as_lightgbm_does(loss, monkeypatch):
    boosters = []
    train = lightgbm.train

    def kept(*args, **kwargs):
        boosters.append(train(*args, **kwargs))
        return boosters[-1]

    monkeypatch.setattr(lightgbm, "train", kept)
    found = grow(_examples(), TreeSettings(trees=30), loss=loss)
    rows = np.random.default_rng(9).normal(size=(300, 5))
    wanted = boosters[0].predict(rows, raw_score=True)
    assert np.allclose(found.scores(rows), wanted, atol=1e-9)


def _bytes(seed=3, **settings):
    state = grow(_examples(), TreeSettings(trees=10, **settings), seed=seed).state()
    return b"".join(state[name].tobytes() for name in sorted(state))


@pytest.mark.parametrize("rows", [1.0, 0.7])
def test_the_same_seed_gives_the_same_bytes(rows):
    assert _bytes(rows=rows) == _bytes(rows=rows)


def test_trees_from_shares_of_the_examples_are_drawn_by_the_seed():
    every = {"columns": 1.0}
    assert _bytes(seed=1, **every) == _bytes(seed=2, **every)
    drawn = {seed: _bytes(seed=seed, rows=0.7, **every) for seed in (1, 2)}
    assert len({*drawn.values(), _bytes(**every)}) == 3


def test_softmax_derivatives_are_those_of_the_loss():
    """Compared with finite differences of −Σ w y ln π for two weighted steps."""
    examples = Examples(
        np.zeros((5, 1)), np.array([1.0, 0, 0, 0, 1.0]), np.array([2.0, 1, 1, 1, 0.5]),
        np.array([3, 2]),
    )  # fmt: skip
    scores = np.array([0.3, -0.2, 0.9, 0.1, 0.4])

    def loss(values):
        total = 0.0
        for part in (slice(0, 3), slice(3, 5)):
            own = values[part] - np.log(np.exp(values[part]).sum())
            total -= (examples.weights[part] * examples.targets[part] * own).sum()
        return total

    gradient, hessian = module._softmax(examples)(scores, None)
    for place in range(5):
        step = np.zeros(5)
        step[place] = 1e-5
        slope = (loss(scores + step) - loss(scores - step)) / 2e-5
        bend = (loss(scores + step) - 2 * loss(scores) + loss(scores - step)) / 1e-10
        assert gradient[place] == pytest.approx(slope, abs=1e-6)
        assert hessian[place] == pytest.approx(bend, abs=1e-4)


def test_softmax_learns_which_action_of_a_step_is_right():
    found = grow(_examples(), TreeSettings(trees=80), loss="softmax")
    fresh = _examples(seed=1)
    scores = found.scores(fresh.rows).reshape(150, 10)
    right = fresh.targets.reshape(150, 10).argmax(axis=1)
    assert (scores.argmax(axis=1) == right).mean() > 0.7


def test_trees_on_top_of_a_start_learn_what_it_lacks():
    examples = _examples()
    start = grow(examples, TreeSettings(trees=40), loss="softmax")
    more = grow(examples, TreeSettings(trees=20), loss="softmax", start=start)
    scores = start.scores(examples.rows)
    better = scores + more.scores(examples.rows)
    right = examples.targets.reshape(150, 10).argmax(axis=1)
    hits = [(s.reshape(150, 10).argmax(axis=1) == right).mean() for s in (scores, better)]
    assert hits[1] > hits[0]


def test_targets_in_between_count_as_both_kinds():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (400, 1)).astype(float)
    examples = Examples(rows, np.where(rows[:, 0] > 0, 0.8, 0.1), np.ones(400), np.array([400]))
    found = grow(examples, TreeSettings(trees=200, ridge=0.0), loss="binary")
    odds = found.scores(np.array([[0.0], [1.0]]))
    assert np.allclose(1 / (1 + np.exp(-odds)), [0.1, 0.8], atol=0.02)


@pytest.mark.parametrize("loss", ["binary", "softmax"])
@pytest.mark.parametrize("steps", [2, 80])
def test_examples_too_few_or_too_alike_to_split_tell_no_action_from_another(loss, steps):
    few = np.random.default_rng(0).normal(size=(10, 4)) if steps == 2 else np.ones((400, 4))
    targets = np.tile([1.0, 0.0, 0.0, 0.0, 0.0], steps)
    found = grow(Examples(few, targets, np.ones(len(few)), np.full(steps, 5)), loss=loss)
    assert np.ptp(found.scores(np.random.default_rng(1).normal(size=(30, 4)))) == 0.0


@pytest.mark.parametrize("loss", ["binary", "softmax"])
def test_grow_with_one_target_is_refused(loss):
    alike = Examples(np.ones((4, 2)), np.ones(4), np.ones(4), np.array([4]))
    with pytest.raises(InputError, match="have the same target"):
        grow(alike, loss=loss)


@pytest.mark.parametrize(
    "wrong",
    [
        {"trees": 0},
        {"leaves": 17},
        {"learning_rate": 0.0},
        {"ridge": -1.0},
        {"columns": 0},
        {"rows": 0.0},
        {"rows": 1.1},
    ],
)
def test_settings_out_of_their_range_are_refused(wrong):
    with pytest.raises(InputError):
        TreeSettings(**wrong)


@pytest.mark.parametrize(
    ("rows", "targets", "weights", "sizes", "says"),
    [
        (1, np.array([np.nan]), np.ones(1), [1], "outside"),
        (1, np.ones(1), np.array([-1.0]), [1], "weight"),
        (2, np.ones(2), np.ones(2), [1], "the counts must be equal"),
        (3, np.ones(3), np.ones(3), [3, 0], "leave out steps without actions"),
        (3, np.ones(3), np.ones(3), [4, -1], "leave out steps without actions"),
    ],
)
def test_examples_with_bad_arrays_says_what_is_wrong(rows, targets, weights, sizes, says):
    with pytest.raises(InputError, match=says):
        Examples(np.ones((rows, 2)), targets, weights, np.array(sizes))
