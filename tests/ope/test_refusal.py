"""A log that cannot tell is refused with reasons; it never raises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.ope import LoggedData, evaluate

ALL = ("ips", "snips", "dm", "dr")


def one_of_two(rows, propensity, agree):
    """A log of `rows` rows whose action was drawn with one propensity; the target agrees or not."""
    target = np.where(np.asarray(agree)[:, None], [1.0, 0.0], [0.0, 1.0])
    return LoggedData(
        np.zeros(rows, dtype=int),
        np.linspace(0, 1, rows),
        np.full(rows, propensity),
        target,
    )


def refused(report, said):
    assert report.refused
    assert any(said in reason for reason in report.reasons)
    for name in ALL:
        estimate = report[name]
        assert (estimate.value, estimate.low, estimate.high) == (None, None, None)
    assert np.isfinite([report.ess, report.max_weight, report.mean_weight]).all()


@pytest.mark.parametrize("interval", ["wald", "bootstrap", "bernstein"])
def test_too_few_effective_rows(interval):
    report = evaluate(one_of_two(99, 1.0, [True] * 99), interval=interval, resamples=200)
    refused(report, "effective sample size 99.0 rows")
    assert report.ess == pytest.approx(99.0)
    assert not evaluate(one_of_two(100, 1.0, [True] * 100)).refused


def test_one_row_decides_too_much():
    rows = 3000
    propensities = np.full(rows, 0.5)
    propensities[7] = 0.002
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, rows)
    actions[7] = 0
    data = LoggedData(actions, rng.random(rows), propensities, np.full((rows, 2), 0.5))
    report = evaluate(data)
    refused(report, "One row dominates")
    assert report.max_weight == pytest.approx(250.0)
    assert report.diagnostics.max_weight_share > 0.05


def test_rows_of_one_unit_count_once():
    rng = np.random.default_rng(0)

    def log(units):
        labels = np.arange(2000) % units
        actions, target = rng.integers(0, 2, 2000), np.full((2000, 2), 0.5)
        return LoggedData(actions, rng.random(2000), np.full(2000, 0.5), target, clusters=labels)

    report = evaluate(log(10))
    refused(report, "effective sample size 10.0 units (from 2,000 rows of 10 units)")
    refused(report, "One unit dominates: its rows' weight is 10.0% of the sum")
    assert report.ess == pytest.approx(10.0)
    assert report.diagnostics.max_weight_share == pytest.approx(0.1)
    assert not evaluate(log(200)).refused
    alone = evaluate(log(1))
    refused(alone, "effective sample size 1.0 units (from 2,000 rows of 1 unit)")
    assert not any("standard errors" in reason for reason in alone.reasons)


def test_effective_units_of_unequal_weights():
    data = LoggedData(
        [0, 0, 1, 1],
        [0.0, 1.0, 1.0, 0.0],
        [0.5, 0.25, 0.5, 0.5],
        np.tile([0.75, 0.25], (4, 1)),
        clusters=["a", "b", "a", "b"],
    )
    found = evaluate(data).diagnostics
    # Weights 1.5, 3, .5 and .5: 2 for unit a, 3.5 for unit b.
    assert found.units == 2
    assert found.ess == pytest.approx(5.5**2 / (2**2 + 3.5**2))
    assert found.max_weight == 3.0
    assert found.max_weight_share == pytest.approx(3.5 / 5.5)


@pytest.mark.parametrize("interval", ["wald", "bootstrap", "bernstein"])
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("propensity", [1e-200, 5e-324])
def test_propensities_near_zero_never_raise(propensity, adaptive, interval):
    rng = np.random.default_rng(0)
    propensities, target = np.full(1000, 0.5), np.full((1000, 2), 0.5)
    propensities[3], actions = propensity, rng.integers(0, 2, 1000)
    options = {"interval": interval, "adaptive": adaptive, "resamples": 200}
    data = LoggedData(actions, rng.random(1000), propensities, target)
    report = evaluate(data, **options)
    refused(report, "effective sample size 1.0 rows")
    assert report.diagnostics.max_weight_share == pytest.approx(1.0)
    # A target that never takes that action is as well known as without the row.
    target[3] = np.where(np.arange(2) == actions[3], 0.0, 1.0)
    report = evaluate(LoggedData(actions, rng.random(1000), propensities, target), **options)
    assert not report.refused
    assert np.isfinite([report[name].value for name in ALL]).all()
    assert report["dr"].low < report["dr"].value < report["dr"].high


@pytest.mark.parametrize("interval", ["wald", "bootstrap", "bernstein"])
def test_the_largest_rewards_and_contexts_never_raise(interval):
    rng = np.random.default_rng(0)
    column = rng.choice([-1e6, 1e6], 20_000)
    data = LoggedData(
        rng.integers(0, 2, 20_000),
        rng.choice([-1e100, 1e100], 20_000),
        np.full(20_000, 0.5),
        np.full((20_000, 2), 0.5),
        # Thrice the same column: the ridge is lost in the rounding of the Gram matrix.
        contexts=np.column_stack([column] * 3),
        reward_range=(-1e100, 1e100),
    )
    report = evaluate(data, interval=interval, resamples=100)
    assert not report.refused
    assert np.isfinite([report[name].value for name in ALL]).all()


def test_wrong_propensities():
    rng = np.random.default_rng(0)
    data = LoggedData(
        rng.integers(0, 2, 4000),
        rng.random(4000),
        np.full(4000, 0.55),
        np.tile([0.2, 0.8], (4000, 1)),
    )
    refused(evaluate(data), "standard errors from 1")


def test_no_exploration_and_another_target():
    refused(evaluate(one_of_two(1000, 1.0, np.arange(1000) % 2 == 0)), "propensity was 1")
    refused(evaluate(one_of_two(1000, 1.0, [False] * 1000)), "at least 100 needed")
    # Where the target hardly differs the mean weight cannot show it; the lack of choice does.
    refused(evaluate(one_of_two(1000, 1.0, np.arange(1000) >= 11)), "propensity was 1")


def test_no_exploration_and_the_very_same_target():
    assert not evaluate(one_of_two(500, 1.0, [True] * 500)).refused


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.integers(1, 300),
    st.integers(2, 5),
    st.floats(0.01, 20),
    st.sampled_from(["wald", "bootstrap", "bernstein"]),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_any_valid_log_gets_an_answer(rows, actions, shape, interval, adaptive, seed):
    rng = np.random.default_rng(seed)
    logging = 0.98 * rng.dirichlet(np.full(actions, shape), rows) + 0.02 / actions
    drawn = np.array([rng.choice(actions, p=p) for p in logging])
    data = LoggedData(
        drawn,
        rng.integers(0, 2, rows),
        logging[np.arange(rows), drawn],
        rng.dirichlet(np.full(actions, shape), rows),
        contexts=rng.normal(size=(rows, 2)) if seed % 2 else None,
        clusters=rng.integers(0, 40, rows) if seed % 3 == 0 else None,
    )
    report = evaluate(data, interval=interval, adaptive=adaptive, resamples=100)
    assert report.refused == bool(report.reasons)
    weights = data.weights
    if data.units is not None:
        weights = np.bincount(data.units, weights=weights)
    should = weights.sum() ** 2 < 100 * (weights**2).sum() or weights.max() > 0.05 * weights.sum()
    assert report.refused or not should
    for name in ALL:
        assert (report[name].value is None) == report.refused


def test_a_hundred_equal_units_are_worth_a_hundred_whatever_they_sum_to():
    rng = np.random.default_rng(0)
    for _ in range(50):
        propensities, target = rng.uniform(0.2, 0.9, 3), rng.uniform(0.2, 0.9, 3)
        masses = np.tile(target, 100)
        log = LoggedData(
            np.zeros(300, dtype=int),
            rng.random(300),
            np.tile(propensities, 100),
            np.column_stack([masses, 1.0 - masses]),
            clusters=np.repeat(np.arange(100), 3),
        )
        report = evaluate(log)
        assert report.ess == 100.0
        assert not any("Too little overlap" in reason for reason in report.reasons)


def test_a_row_with_a_twentieth_of_the_weight_is_allowed():
    for rows in range(200, 500, 10):
        masses = np.append(np.full(rows, 0.019), 0.001 * rows)  # the last has 1 of 20 parts
        target = np.column_stack([masses, 1.0 - masses])
        log = LoggedData(
            np.zeros(rows + 1, int), np.zeros(rows + 1), np.full(rows + 1, 0.5), target
        )
        report = evaluate(log)
        assert report.diagnostics.max_weight_share == 0.05
        assert not any("dominates" in reason for reason in report.reasons)


def test_a_figure_that_is_refused_is_shown_beyond_its_bound():
    masses = np.append(np.full(99, 1.0), 0.8)
    target = np.column_stack([masses, 1.0 - masses])
    report = evaluate(LoggedData(np.zeros(100, int), np.zeros(100), np.ones(100), target))
    assert 99.95 < report.ess < 100.0
    refused(report, "effective sample size 99.96 rows (from 100 rows); at least 100 needed")
