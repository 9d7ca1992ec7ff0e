"""Candidates that each request numbers anew: what never failed is told by its name."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.ope import LoggedData, drawn_or_another, evaluate, suited_estimator
from steersman.ope.paired import off_policy_delta
from steersman.stats import all_alike_interval


def _numbered_anew(rng, *, others, best=0.99, rows=2400, count=20, floor=0.1):
    """Return the same log twice, by place and by place with names, and the target's value.

    The target takes the best candidate but for a floor; all are drawn alike.
    """
    drawn = rng.integers(0, count, rows)
    means = np.where(np.arange(count) == 0, best, others)
    rewards = (rng.random(rows) < means[drawn]).astype(float)
    order = np.array([rng.permutation(count) for _ in range(rows)])
    target = np.full(count, floor / count)
    target[0] += 1.0 - floor
    table = np.empty((rows, count))
    np.put_along_axis(table, order, np.tile(target, (rows, 1)), axis=1)
    columns = order[np.arange(rows), drawn], rewards, np.full(rows, 1.0 / count), table
    named = LoggedData(*columns, names=np.array([f"candidate {one}" for one in drawn]))
    return LoggedData(*columns), named, float(target @ means)


@pytest.mark.slow
def test_what_never_failed_is_known_by_its_name():
    """By place alone SNIPS covers the truth in .64 and DR in .84 of these logs."""
    covered = dict.fromkeys(("places", "names", "dr"), 0)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        places, names, truth = _numbered_anew(rng, others=0.95)
        by = {
            "places": evaluate(places, estimators=("snips",))["snips"],
            "names": evaluate(names, estimators=("snips",))["snips"],
            "dr": evaluate(names, estimators=("dr",))["dr"],
        }
        for name, one in by.items():
            covered[name] += one.low <= truth <= one.high
    assert covered["places"] < 85
    assert covered["names"] >= 95
    assert covered["dr"] >= 95


def test_the_share_of_a_name_is_what_its_rows_weigh():
    """By place its rows are few among others that seldom fail: nothing seems to be open."""
    places, names, _ = _numbered_anew(np.random.default_rng(0), others=0.95, best=1.0)
    best = int((names.names == "candidate 0").sum())
    low, _ = all_alike_interval(1.0, best, low=0.0, high=1.0)
    share = min(1.0, 20 * 0.905 * best / len(names))
    by_name, by_place = (evaluate(log, estimators=("snips",))["snips"] for log in (names, places))
    half = 1.959964 * by_name.standard_error
    opened = by_name.value - by_name.low
    assert opened == pytest.approx(np.hypot(half, share * (1 - low)), rel=1e-6)
    assert by_name.high - by_name.value == pytest.approx(half, rel=1e-6)
    assert by_place.value - by_place.low < opened / 1.1


def test_names_that_come_once_are_taken_together():
    """Each alone says nothing; all of them, where the target takes them, never failed."""
    rows = np.arange(800)
    suits = rows % 4 == 0
    rewards = np.where(suits, 1.0, rows // 4 % 2)
    table = np.where(np.arange(4) == ((rows - rows % 4) // 4 % 4)[:, None], 0.85, 0.05)
    places = ((rows - rows % 4) // 4 + rows % 4) % 4
    columns = places, rewards, np.full(800, 0.25), table
    alone = evaluate(LoggedData(*columns, names=rows), estimators=("snips",))["snips"]
    pairs = evaluate(
        LoggedData(*columns, names=rows // 8, clusters=rows // 8), estimators=("snips",)
    )["snips"]
    low, _ = all_alike_interval(1.0, 200, low=0.0, high=1.0)
    half = 1.959964 * alone.standard_error
    assert alone.value - alone.low == pytest.approx(np.hypot(half, 0.85 * (1 - low)), rel=1e-6)
    assert pairs.value - pairs.low > 1.05 * (pairs.high - pairs.value)


def test_a_difference_of_two_targets_knows_names_too():
    _, log, _ = _numbered_anew(np.random.default_rng(0), others=0.95, best=1.0)
    even = np.full_like(log.target, 0.05)
    before = LoggedData(log.actions, log.rewards, log.propensities, even, names=log.names)
    found = off_policy_delta(before, log, estimator="snips")
    best = int((log.names == "candidate 0").sum())
    gained = (0.905 - 0.05) / 0.05 * best / len(log)
    low, _ = all_alike_interval(1.0, best, low=0.0, high=1.0)
    half = found.high - found.delta
    assert found.delta - found.low == pytest.approx(np.hypot(half, gained * (1 - low)), rel=1e-9)


def test_where_columns_are_no_actions_normalised_weights_have_less_noise():
    rng = np.random.default_rng(0)
    places, names, _ = _numbered_anew(rng, others=0.7)
    assert suited_estimator(places) == "dr"
    assert suited_estimator(names) == "snips"
    mixed = LoggedData(
        np.zeros(2400, int), places.rewards, places.propensities,
        drawn_or_another(places.chosen_target),
    )  # fmt: skip
    assert suited_estimator(mixed) == "snips"
    for log in (names, mixed):
        found = evaluate(log, estimators=("snips", "dr"))
        widths = {name: one.high - one.low for name, one in found.estimates.items()}
        assert widths["dr"] > 1.5 * widths["snips"]
    rest = (places.actions, places.rewards, places.propensities, places.target)
    by_place = LoggedData(*rest, contexts=rng.normal(size=(2400, 1)), names=names.names)
    assert suited_estimator(by_place) == "snips"
    foretold = LoggedData(*rest, q_hat=np.full(places.target.shape, 0.7), names=names.names)
    assert suited_estimator(foretold) == "dr"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a"], r"names has shape \(1,\); allowed: \(2,\): one label per decision"),
        (["a", None], "names holds labels of several types"),
        ([1.0, np.nan], "names holds NaN"),
        ([["a"], ["b", "c"]], "names is not an array"),
    ],
)
def test_names_that_are_none_are_refused(names, said):
    with pytest.raises(InputError, match=said):
        LoggedData([0, 1], [1.0, 0.0], [0.5, 0.5], [[0.5, 0.5]] * 2, names=names)
