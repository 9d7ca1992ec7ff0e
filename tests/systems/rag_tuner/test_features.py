"""States: rolling means by definition, scaling fitted once, and nothing beyond three spreads."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.features import GROUPS, Features, RecentResults, Scaling, Situation
from steersman_systems.rag_tuner.reward import Batch
from tests.systems.rag_tuner.worlds import SPACE, tuned

TUNED = tuned(gamma=0.05, delta=0.2)
START = Configuration()


def batch(quality, latency=(100.0, 100.0), cost=0.5):
    count = len(quality)
    none = np.zeros(count, bool)
    return Batch(
        Configuration(), np.arange(count), np.array(quality, float), np.array(latency, float),
        np.full(count, cost), none, none,
    )  # fmt: skip


def raw(features, observed, running=START, **kw):
    found = features.raw(Situation(observed, running, TUNED, **kw))
    return dict(zip(features.names, found, strict=True))


def test_quality_is_the_mean_over_the_last_batches():
    observed = RecentResults(window=2)
    for value in (0.1, 0.4, 0.8):
        observed.see(batch([[value, 0.0], [value, 1.0]]), 500.0)
    assert observed.quality == pytest.approx([0.6, 0.5])


def test_latency_is_in_units_of_its_target():
    observed = RecentResults()
    observed.see(batch([[1, 1]] * 3, latency=[50.0, 100.0, 150.0], cost=0.25), 500.0)
    assert observed.latency == pytest.approx([0.2, 0.29])
    assert observed.cost == 0.25


def test_a_batch_without_quality_is_left_out_of_its_mean():
    observed = RecentResults()
    observed.see(batch([[np.nan, 0.5]] * 2), 500.0)
    assert np.isnan(observed.quality[0])
    observed.see(batch([[0.6, 0.7]] * 2), 500.0)
    assert observed.quality == pytest.approx([0.6, 0.6])


def test_the_running_configuration_is_one_hot():
    running = Configuration("hybrid", k=5, rerank=True, fusion_weight=0.25)
    found = raw(Features(SPACE), RecentResults(), running)
    assert [found[f"variant={one}"] for one in SPACE.variants] == [0, 0, 1]
    assert (found["rerank"], found["expansion"], found["fusion_weight"]) == (1, 0, 0.25)
    assert found["log_k"] == pytest.approx(np.log(5))
    assert found["log_delta"] == pytest.approx(np.log(0.21))


def test_categories_are_shares_of_the_labelled_queries():
    observed = RecentResults()
    observed.see(batch([[1, 1]] * 2), 500.0, ["a", "b"])
    observed.see(batch([[1, 1]] * 2), 500.0, ["a", "other"])
    found = raw(Features(SPACE, categories=("a", "b", "c")), observed)
    assert [found[f"category={one}"] for one in "abc"] == [0.5, 0.25, 0.0]


@pytest.mark.parametrize(("days", "seen"), [(-1.0, 0.0), (10.0, 10.0), (5_000.0, 365.0)])
def test_the_age_of_the_corpus_is_clamped(days, seen):
    assert raw(Features(SPACE), RecentResults(), age_days=days)["age"] == seen


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_can_be_left_out(group):
    every, fewer = (Features(SPACE, ("a",), without) for without in ((), (group,)))
    assert set(fewer.names) < set(every.names)
    assert len(fewer.scaled) == len(fewer)
    kept = raw(every, RecentResults())
    assert raw(fewer, RecentResults()) == pytest.approx(
        {name: kept[name] for name in fewer.names}, nan_ok=True
    )


def test_an_unknown_group_is_refused():
    with pytest.raises(InputError, match="without"):
        Features(SPACE, without=("colour",))
    with pytest.raises(InputError, match="not all"):
        Features(SPACE, without=GROUPS)


def test_no_window_is_refused():
    with pytest.raises(InputError, match="window is 0"):
        RecentResults(0)


def test_scaling_is_by_median_and_quartiles():
    rows = np.random.default_rng(0).normal(5.0, 2.0, size=(20_000, 2))
    rows[:100, 0] = 1e6  # what is broken moves a mean, and no median
    scaling = Scaling.fitted(rows, np.array([True, False]))
    assert scaling.median[0] == pytest.approx(5.0, abs=0.1)
    assert scaling.spread[0] == pytest.approx(2.0, abs=0.1)
    assert (scaling.median[1], scaling.spread[1]) == (0.0, 1.0)


def test_what_never_varies_or_was_never_known_is_not_divided_by_nothing():
    rows = np.array([[3.0, np.nan]] * 5)
    scaling = Scaling.fitted(rows, np.array([True, True]))
    assert scaling.apply(np.array([3.5, 2.0])).tolist() == [0.5, 2.0]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=2))
def test_a_state_is_finite_and_within_three(numbers):
    scaling = Scaling(np.array([1.0, -2.0]), np.array([0.5, 3.0]))
    found = scaling.apply(np.array(numbers))
    assert np.isfinite(found).all()
    assert (np.abs(found) <= 3).all()
    assert (found[np.isnan(numbers)] == 0).all()


def test_a_failed_query_counts_as_zero():
    observed, failed = (
        RecentResults(),
        replace(batch([[1, 1], [1, 1]]), failed=np.array([True, False])),
    )
    observed.see(failed, 500.0)
    assert observed.quality.tolist() == [0.5, 0.5]
