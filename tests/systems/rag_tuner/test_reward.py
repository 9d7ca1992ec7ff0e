"""What a batch is worth: the formula by hand, gates, penalties, what is undefined."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.reward import Batch, breaches, pooled, reward_of
from tests.systems.rag_tuner.worlds import tuned

SHIPPED = tuned()


def batch(quality=((0.8, 0.9), (0.9, 0.8)), latency=(100.0, 300.0), cost=(0.1, 0.3), **more):
    count = len(quality)
    given = {
        "configuration": Configuration(),
        "queries": np.arange(count),
        "quality": np.array(quality, float).reshape(count, 2),
        "latency_ms": np.array(latency, float),
        "cost": np.array(cost, float),
        "failed": np.zeros(count, bool),
        "violations": np.zeros(count, bool),
    }
    return Batch(**given | more)


def test_the_formula_by_hand():
    found = reward_of(batch(), SHIPPED)
    # .5 * .85 + .5 * .85 - .2 * mean(.2, .6) - .2 * mean(.1, .3) = .85 - .08 - .04
    assert found.value == pytest.approx(0.73)
    assert found.per_query == pytest.approx([0.85 - 0.04 - 0.02, 0.85 - 0.12 - 0.06])
    assert found.per_query + found.spent == pytest.approx([0.85, 0.85])
    assert (found.quality, found.latency, found.cost) == (
        pytest.approx((0.85, 0.85)), pytest.approx(0.4), pytest.approx(0.2))  # fmt: skip
    assert (found.breaches, found.penalty, found.coverage) == ((), 0.0, (1.0, 1.0))


def test_latency_and_cost_count_twice_their_unit_at_most():
    found = reward_of(batch(latency=(5_000.0, 0.0), cost=(9.0, 0.0)), SHIPPED)
    assert (found.latency, found.cost) == (1.0, 1.0)


def test_the_unit_of_latency_is_the_threshold_unless_declared():
    limits = SHIPPED.thresholds.model_copy(update={"latency_ref_ms": 1_000.0})
    found = reward_of(batch(), SHIPPED.model_copy(update={"thresholds": limits}))
    assert found.latency == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"quality": ((0.7, 0.9), (0.7, 0.9))}, ("faithfulness",)),
        ({"quality": ((0.9, 0.7), (0.9, 0.7))}, ("relevancy",)),
        ({"quality": ((math.nan, 0.9), (math.nan, 0.9))}, ("faithfulness",)),
        ({"latency": (100.0, 600.0)}, ("p95_latency_ms",)),
    ],
)
def test_gates(changed, says):
    found = reward_of(batch(**changed), SHIPPED)
    assert found.breaches == says
    assert found.penalty == 1.0


def test_a_failed_query_has_no_quality_and_counts_as_an_error():
    found = reward_of(batch(failed=np.array([True, False])), SHIPPED)
    assert found.quality == pytest.approx((0.45, 0.4))
    assert found.breaches == ("faithfulness", "relevancy")  # one of two is no rate


def test_one_failure_among_few_is_no_rate_and_two_are():
    many = batch(quality=((0.9, 0.9),) * 32, latency=(1.0,) * 32, cost=(0.0,) * 32)
    one, two = (replace(many, failed=np.arange(32) < count) for count in (1, 2))
    assert breaches(one, SHIPPED.thresholds) == ()
    assert breaches(two, SHIPPED.thresholds) == ("error_rate",)


def test_below_one_error_in_a_hundred_holds():
    many = batch(quality=((0.9, 0.9),) * 101, latency=(1.0,) * 101, cost=(0.0,) * 101)
    one = np.arange(101) == 0
    assert breaches(replace(many, failed=one), SHIPPED.thresholds) == ()
    short = batch(quality=((0.9, 0.9),) * 100, latency=(1.0,) * 100, cost=(0.0,) * 100)
    assert breaches(replace(short, failed=one[:100]), SHIPPED.thresholds) == ("error_rate",)


def test_a_proxy_passes_and_breaks_no_gate_of_another_name():
    low = batch(quality=((0.1, 0.1), (0.1, 0.1)), measures=("recall", "ndcg"))
    assert reward_of(low, SHIPPED).breaches == ()


def test_what_is_undefined_is_left_out_and_told():
    found = reward_of(batch(quality=((0.9, math.nan), (0.8, 0.8))), SHIPPED)
    assert found.quality == pytest.approx((0.85, 0.8))
    assert found.coverage == (1.0, 0.5)
    assert np.isnan(found.per_query).tolist() == [True, False]


def test_penalties_add_up():
    dirty = batch(violations=np.array([False, True]))
    assert reward_of(dirty, SHIPPED).penalty == 1.0
    assert reward_of(batch(), SHIPPED, recent=[0.5]).penalty == 0.0  # two batches show nothing
    steady = batch(quality=((0.85, 0.85),) * 20, latency=(1.0,) * 20, cost=(0.0,) * 20)
    assert reward_of(steady, SHIPPED, recent=[0.5, 0.6]).penalty == 0.5
    # Few queries that scatter much: their means do too, and that is no instability.
    apart = batch(quality=((1.0, 1.0), (0.6, 0.6)))
    assert reward_of(apart, SHIPPED, recent=[0.6, 0.95]).penalty == 0.0
    assert reward_of(batch(), SHIPPED, recent=[0.84, 0.86]).penalty == 0.0
    all_of_it = replace(dirty, latency_ms=np.array([600.0, 600.0]))
    found = reward_of(all_of_it, SHIPPED, recent=[0.4, 0.5])
    assert found.penalty == 2.5
    assert found.value == pytest.approx(found.per_query.mean() - 2.5)


def test_batches_of_one_configuration_are_one():
    both = pooled([batch(), batch(latency=(500.0, 500.0))])
    assert len(both) == 4
    assert both.latency_ms.tolist() == [100, 300, 500, 500]


def test_some_queries_of_a_batch_are_a_batch():
    whole = pooled([batch(latency=(1.0, 2.0)), batch(violations=np.array([True, False]))])
    some = whole.rows(np.array([2, 0]))
    assert some.latency_ms.tolist() == [100, 1]
    assert some.violations.tolist() == [True, False]
    assert (some.queries.tolist(), len(some.quality), len(some.unstable)) == ([0, 0], 2, 2)
    with pytest.raises(InputError, match="n of 1 or more"):
        whole.rows(np.arange(0))


@pytest.mark.parametrize(
    "changed",
    [
        {"quality": ((1.1, 0.5), (0.5, 0.5))},
        {"quality": ((-0.1, 0.5), (0.5, 0.5))},
        {"quality": ((math.inf, 0.5), (0.5, 0.5))},
        {"latency": (-1.0, 0.0)},
        {"latency": (math.nan, 0.0)},
        {"cost": (math.nan, 0.0)},
        {"latency": (1.0,)},
        {"quality": (), "latency": (), "cost": ()},
    ],
)
def test_what_is_no_batch(changed):
    with pytest.raises(InputError):
        batch(**changed)


@given(st.lists(st.sampled_from([100.0, 499.0, 500.0, 501.0, 900.0, 1e308]), min_size=1))
def test_the_gate_on_latency_is_of_the_95th_percentile(latency):
    many = batch(((0.8, 0.9),) * len(latency), tuple(latency), (0.1,) * len(latency))
    broken = "p95_latency_ms" in breaches(many, SHIPPED.thresholds)
    assert broken == (np.quantile(latency, 0.95) > SHIPPED.thresholds.p95_latency_ms == 500.0)


def test_infinite_latency_holds_no_gate():
    assert "p95_latency_ms" in breaches(batch(latency=(np.inf, np.inf)), SHIPPED.thresholds)


def test_a_reward_that_was_undefined_hides_no_instability():
    shaken = [0.1, 0.9, 0.1]
    wanted = reward_of(batch(), SHIPPED, recent=shaken).penalty
    assert wanted > 0.0
    assert reward_of(batch(), SHIPPED, recent=[0.1, math.nan, *shaken[1:]]).penalty == wanted
