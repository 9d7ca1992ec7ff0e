"""Verdicts on held-out queries, and where configurations stand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, ttest_1samp

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.frontier import FrontierPoint, places, rising, undominated
from steersman_systems.rag_tuner.reward import Batch
from steersman_systems.rag_tuner.verdict import judge, needed
from tests.systems.rag_tuner.worlds import tuned, world

FREE = tuned(gamma=0.0, delta=0.0)
ONE, OTHER = Configuration(k=5), Configuration("bm25", k=9)


def batch(quality, configuration=ONE, **more):
    count = len(quality)
    given = {
        "queries": np.arange(count),
        "quality": np.repeat(np.asarray(quality, float)[:, None], 2, axis=1),
        "latency_ms": np.full(count, 10.0),
        "cost": np.full(count, 0.1),
        "failed": np.zeros(count, bool),
        "violations": np.zeros(count, bool),
        "measures": ("recall", "ndcg"),
    }
    return Batch(configuration=configuration, **given | more)


def test_the_interval_is_the_paired_t_interval():
    rng = np.random.default_rng(0)
    mine, its = rng.uniform(0.3, 0.9, 40), rng.uniform(0.3, 0.9, 40)
    found = judge(batch(mine), batch(its, OTHER), FREE)
    known = ttest_1samp(mine - its, 0).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(known.low), pytest.approx(known.high))
    assert found.queries == 40


@pytest.mark.parametrize(("by", "state"), [(0.1, "gain"), (-0.1, "loss"), (0.0, "no gain")])
def test_states(by, state):
    rng = np.random.default_rng(1)
    its = rng.uniform(0.3, 0.8, 60)
    found = judge(batch(its + by + rng.normal(0, 0.05, 60)), batch(its, OTHER), FREE)
    assert found.state == state
    assert (found.needed > 0) == (state == "no gain")
    assert str(found).startswith({"gain": "Gain", "loss": "Loss"}.get(state, "No gain is shown"))


def test_a_gate_is_stronger_than_any_gain():
    its = np.full(30, 0.2)
    slow = batch(np.full(30, 0.9), latency_ms=np.full(30, 900.0))
    found = judge(slow, batch(its, OTHER), FREE)
    assert (found.state, found.breaches) == ("breach", ("p95_latency_ms",))
    assert "May not serve" in str(found)


@pytest.mark.slow
def test_no_gain_is_called_a_gain_in_two_and_a_half_of_a_hundred():
    rng = np.random.default_rng(2)
    runs, called = 2_000, 0
    for _ in range(runs):
        its = rng.uniform(0.3, 0.7, 50)
        mine = batch(its + rng.uniform(-0.2, 0.2, 50))
        called += judge(mine, batch(its, OTHER), FREE).state == "gain"
    assert binom.ppf(0.001, runs, 0.025) <= called <= binom.ppf(0.999, runs, 0.025)


def test_what_it_would_cost_to_know_more():
    assert needed(0.03, 0.25) == 547
    assert needed(0.0001, 0.25, least=0.03) == 547
    assert needed(-0.2, 0.25, least=0.03) == 547
    assert needed(0.1, 0.0) == 2


def test_what_is_ruled_out_needs_no_more_queries():
    rng = np.random.default_rng(0)
    its = rng.uniform(0.3, 0.7, 500)
    found = judge(batch(its + rng.uniform(-0.02, 0.02, 500)), batch(its, OTHER), FREE)
    assert (found.state, found.needed) == ("no gain", 0)
    assert "ruled out" in str(found)


def test_only_the_same_queries_are_compared():
    with pytest.raises(InputError, match="different queries"):
        judge(batch([0.5, 0.5]), batch([0.5, 0.5], OTHER, queries=np.array([1, 0])), FREE)
    undefined = batch([0.5, np.nan, np.nan])
    with pytest.raises(InputError, match="1 queries have a score"):
        judge(undefined, batch([0.5, 0.5, 0.5], OTHER), FREE)
    with pytest.raises(InputError, match="3 queries have a score under both, from 1 conv"):
        judge(batch([0.5, 0.6, 0.7]), batch([0.5] * 3, OTHER), FREE, groups="aaa")
    with pytest.raises(InputError, match="0 queries have a score"):
        judge(batch([np.nan]), batch([0.5], OTHER), FREE)


def test_turns_that_fare_alike_are_no_further_evidence():
    rng = np.random.default_rng(3)
    by, talks = rng.normal(0.03, 0.1, 40), [str(place) for place in range(40)]
    its = rng.uniform(0.4, 0.6, 40)
    once = judge(batch(its + by), batch(its, OTHER), FREE, groups=talks)
    assert once == judge(batch(its + by), batch(its, OTHER), FREE)
    mine, old = batch(np.repeat(its + by, 4)), batch(np.repeat(its, 4), OTHER)
    many = judge(mine, old, FREE, groups=np.repeat(talks, 4).tolist())
    assert (many.low, many.high) == (pytest.approx(once.low), pytest.approx(once.high))
    assert judge(mine, old, FREE).low > many.low + 0.01  # as if they were independent
    assert many.needed == pytest.approx(4 * once.needed, rel=0.02)


def test_a_query_that_is_listed_often_is_one():
    rng = np.random.default_rng(5)
    mine, its = rng.uniform(0.3, 0.9, 20), rng.uniform(0.3, 0.9, 20)
    once = judge(batch(mine), batch(its, OTHER), FREE)
    which = np.repeat(np.arange(20), 9)
    often = judge(batch(mine[which], queries=which), batch(its[which], OTHER, queries=which), FREE)
    assert often.gain == pytest.approx(once.gain)
    assert (often.low, often.high) == (pytest.approx(once.low), pytest.approx(once.high))


def test_two_alike_are_no_certainty():
    found = judge(batch([0.6, 0.6]), batch([0.5, 0.5], OTHER), FREE)
    assert found.low < -0.5 < 0.5 < found.high
    assert found.state == "no gain"
    enough = judge(batch([0.6] * found.needed), batch([0.5] * found.needed, OTHER), FREE)
    assert enough.state == "gain"
    fewer = judge(batch([0.6] * (found.needed - 2)), batch([0.5] * (found.needed - 2), OTHER), FREE)
    assert fewer.state == "no gain"
    same = judge(batch([0.6, 0.6]), batch([0.6, 0.6]), FREE)
    assert (same.low, same.gain, same.high) == (0.0, 0.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=15))
def test_undominated_is_what_no_other_beats(rows):
    losses = np.array(rows, float).reshape(-1, 3)
    for row, mark in zip(losses, undominated(losses), strict=True):
        beaten = any((other <= row).all() and (other < row).any() for other in losses)
        assert mark == (not beaten)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_what_rises_has_more_quality_than_all_that_costs_no_more(rows):
    found = [FrontierPoint(ONE, float(q), q, q, 1.0, 1.0, float(cost)) for q, cost in rows]
    line = rising(found)
    assert [one.cost for one in line] == sorted({one.cost for one in line})
    for one in found:
        better = all(
            one.quality > other.quality for other in found
            if other.cost <= one.cost and other != one
        )  # fmt: skip
        assert (one in line) == better


def test_of_what_costs_and_gives_the_same_the_quickest_is_on_the_line():
    slow, quick = (FrontierPoint(ONE, 0.5, 0.4, 0.6, ms, ms, 1.0) for ms in (9.0, 2.0))
    unknown = FrontierPoint(ONE, np.nan, np.nan, np.nan, 1.0, 1.0, 0.0)
    assert rising([unknown, slow, quick]) == [quick]


def test_where_configurations_stand():
    recorded = world(queries=50)
    batches = [recorded.evaluate(one, np.arange(50)) for one in (ONE, OTHER)]
    better = replace(batches[0], quality=np.ones((50, 2)))
    found = places([better, batches[1]], FREE)
    assert [one.best for one in found] == [True, False]
    assert 0.9 < found[0].low < found[0].quality == found[0].high == 1.0  # 50 show no more
    assert found[1].low < found[1].quality < found[1].high
    assert (found[1].latency_ms, found[1].cost) == (5.0, pytest.approx(9 / 16))
