"""Fitted reward models against loops: never on the row they serve, never on the future."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.ope import LoggedData, reward_models
from steersman.ope import bootstrap as refit
from steersman.ope.reward_models import FOLDS, cross_fitted, group_sums, past_only, time_batches


def make_log(seed, rows=60, contexts=True, units=None):
    rng = np.random.default_rng(seed)
    return LoggedData(
        actions=rng.integers(0, 3, rows),
        rewards=rng.normal(size=rows),
        propensities=np.full(rows, 1 / 3),
        target=rng.dirichlet(np.ones(3), rows),
        contexts=rng.normal(size=(rows, 2)) if contexts else None,
        clusters=None if units is None else np.arange(rows) // units,
    )


def predict(data, train, row):
    """Predicted reward of every action for one row, fitted on the rows in `train`."""
    train = np.asarray(train)
    base = data.rewards[train].mean() if len(train) else 0.0
    answers = []
    for action in range(3):
        mine = train[data.actions[train] == action] if len(train) else train
        if data.contexts is None:
            answers.append(data.rewards[mine].mean() if len(mine) else base)
            continue
        z = np.column_stack([np.ones(len(mine)), data.contexts[mine]])
        # Ridge regression as least squares with one pseudo-row per coefficient.
        stacked = np.vstack([z, np.eye(3)])
        wanted = np.concatenate([data.rewards[mine] - base, np.zeros(3)])
        theta = np.linalg.lstsq(stacked, wanted)[0]
        answers.append(base + theta @ np.concatenate([[1.0], data.contexts[row]]))
    return np.array(answers)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 1000), st.booleans(), st.sampled_from([None, 3]))
def test_folds_leave_out_the_row_and_its_unit(seed, contexts, units):
    data = make_log(seed, contexts=contexts, units=units)
    found = cross_fitted(data, np.random.default_rng(5))
    of_row = np.arange(60) if units is None else data.units
    folds = (np.random.default_rng(5).permutation(of_row.max() + 1) % FOLDS)[of_row]
    for row in range(60):
        guess = predict(data, np.flatnonzero(folds != folds[row]), row)
        assert found.chosen[row] == pytest.approx(guess[data.actions[row]], abs=1e-9)
        assert found.expected[row] == pytest.approx(data.target[row] @ guess, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 1000), st.booleans())
def test_the_past_alone(seed, contexts):
    data = make_log(seed, contexts=contexts)
    found = past_only(data)
    for batch in time_batches(60):
        for row in range(batch.start, batch.stop):
            guess = predict(data, np.arange(batch.start), row) if batch.start else np.zeros(3)
            assert found.chosen[row] == pytest.approx(guess[data.actions[row]], abs=1e-9)
            assert found.expected[row] == pytest.approx(data.target[row] @ guess, abs=1e-9)


@given(st.integers(1, 200_000))
def test_batches_cover_the_log_and_stay_short(rows):
    batches = list(time_batches(rows))
    assert batches[0].start == 0
    assert batches[-1].stop == rows
    for before, after in pairwise(batches):
        assert before.stop == after.start
    assert all(b.stop - b.start <= max(10, rows // 50) for b in batches)


def test_an_unseen_action_gets_the_mean_of_all():
    data = LoggedData(
        actions=np.zeros(50, dtype=int),
        rewards=np.arange(50) % 2,
        propensities=np.ones(50),
        target=np.tile([0.0, 1.0], (50, 1)),
    )
    assert past_only(data).expected[-1] == pytest.approx(0.5, abs=0.02)


def test_batches_are_followed_the_same_a_few_at_a_time(monkeypatch):
    data = make_log(3, rows=400)
    whole = past_only(data)
    monkeypatch.setattr(reward_models, "_AT_ONCE", 3 * 12 * 4)  # four batches
    few = past_only(data)
    assert few.chosen == pytest.approx(whole.chosen, rel=1e-12)
    assert few.expected == pytest.approx(whole.expected, rel=1e-12)


@pytest.mark.parametrize("contexts", [False, True])
def test_sums_are_the_same_pair_by_pair_and_cell_by_cell(monkeypatch, contexts):
    data = make_log(4, rows=90, contexts=contexts)
    groups = np.sort(np.random.default_rng(0).integers(0, 30, 90) * 2)  # some without a row
    found = []
    for pair_by_pair in (True, False):
        for module in (reward_models, refit):
            monkeypatch.setattr(module, "passes_are_quicker", lambda *_, way=pair_by_pair: way)
        sums, blocks = group_sums(data, groups, 60), refit.Refit(data).block_sums(groups, 60)
        found.append([sums.gram, sums.moment, blocks])
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12)
    z = np.column_stack([np.ones(90), data.contexts]) if contexts else np.ones((90, 1))
    for group, action in ((groups[0], 1), (groups[-1], 2), (1, 0)):
        mine = z[(groups == group) & (data.actions == action)]
        assert found[0][0][group, action] == pytest.approx(mine.T @ mine, abs=1e-12)
