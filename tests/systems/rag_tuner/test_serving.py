"""What broke a hard gate cannot be chosen for serving, whatever its reward."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import InputError, SpecError
from steersman.points.policy_factory import initial_policy
from steersman.spec.loader import load, loads
from steersman_systems.configs import shipped
from steersman_systems.rag_tuner.candidates import (
    barred,
    broken,
    configuration_of,
    declared_with,
    eligible,
)
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.policy_config import load_policy_config
from tests.systems.rag_tuner.worlds import world

POINT = load(shipped("rag/retrieval.yaml"))
TUNED = load_policy_config()
WORLD = world(queries=60)
ALL = np.arange(60)
BEST = Configuration("hybrid", k=10, fusion_weight=0.6)
WORDS = Configuration("bm25", k=5)


def barring(*parts):
    """Return the shipped point with these barred."""
    dumped = POINT.model_dump(mode="json")
    dumped["actions"]["barred"] = list(parts)
    return loads(json.dumps(dumped))


def evaluated(slow=()):
    found = []
    for one in (BEST, WORDS):
        for half in (ALL[:30], ALL[30:]):
            batch = WORLD.evaluate(one, half)
            if one in slow:
                batch = replace(batch, latency_ms=batch.latency_ms + 900.0)
            found.append(batch)
    return broken(found, TUNED)


def test_the_shipped_point_has_the_bounds_of_the_policy_file():
    names = POINT.actions.names
    assert {configuration_of(name) for name in names} == set(TUNED.space.all)
    assert len(names) == 3 * 30 * 2 * 2 * 21
    weights = TUNED.reward_weights
    terms = POINT.reward.terms
    for name, weight in (
        ("faithfulness", weights.alpha),
        ("relevancy", weights.beta),
        ("penalty", -weights.penalty),
    ):
        assert terms[name].weight == weight
    # A term is its share of the range: what counts once per unit, up to twice, weighs double.
    assert terms["latency_ms"].weight == -2 * weights.gamma
    assert terms["latency_ms"].high == 2 * TUNED.thresholds.latency_unit_ms
    assert terms["cost_usd"].weight == -2 * weights.delta
    assert terms["cost_usd"].high == 2 * TUNED.thresholds.cost_ref_usd


@pytest.mark.slow
def test_what_broke_a_gate_is_barred_from_the_policy_its_floor_and_the_fallback():
    found = evaluated(slow={BEST})
    assert found == {BEST: ("p95_latency_ms",), WORDS: ()}
    listed = barred(found, POINT)
    assert listed == [
        {"variant": "hybrid", "k": 10, "rerank": False, "fusion_weight": 0.6, "expansion": False}
    ]
    dumped = {**POINT.model_dump(mode="json"), "floor": 0.9}
    dumped["actions"]["barred"] = listed
    policy = initial_policy(loads(json.dumps(dumped)))
    gone = POINT.actions.name_of(listed[0])
    assert gone in POINT.actions.names
    assert gone not in policy.actions
    assert len(policy.actions) == len(POINT.actions.names) - 1
    # It was worth the most, and learning so changes nothing.
    with pytest.raises(InputError, match="unknown action"):
        policy.learn(np.zeros(16), gone, 1.0)
    dumped["fallback"]["otherwise"] = listed[0]
    with pytest.raises(SpecError, match="configuration is barred"):
        loads(json.dumps(dumped))


def test_without_a_weight_every_weight_is_meant():
    listed = barred(evaluated(slow={WORDS}), POINT)
    assert listed == [{"variant": "bm25", "k": 5, "rerank": False, "expansion": False}]
    again = POINT.model_copy(
        update={"actions": POINT.actions.model_copy(update={"barred": tuple(listed)})}
    )
    assert barred(evaluated(slow={WORDS}), again) == listed


def test_only_what_was_evaluated_and_holds_is_eligible():
    policy = initial_policy(POINT)
    names = eligible(evaluated(slow={BEST}), POINT)
    assert names == ['{"expansion":false,"k":5,"rerank":false,"variant":"bm25"}']
    mass = policy.distribution(np.zeros(16), eligible=names)
    assert np.count_nonzero(mass) == 21  # of every weight, which does nothing there
    assert {configuration_of(policy.actions[place]) for place in np.flatnonzero(mass)} == {WORDS}
    with pytest.raises(InputError, match="none of 2 evaluated configurations passes"):
        eligible(evaluated(slow={BEST, WORDS}), POINT)


@pytest.mark.slow
def test_a_candidate_is_declared_from_what_holds_alone():
    found = evaluated(slow={WORDS})
    point = barring(*barred(found, POINT))
    spec = loads(declared_with(point, BEST, found))
    assert spec.policy.algorithm == "fixed"
    assert (spec.actions, spec.reward, spec.context) == (point.actions, POINT.reward, POINT.context)
    policy = initial_policy(spec)
    drawn = policy.decide({}, rng=np.random.default_rng(0))
    assert configuration_of(drawn.action) == BEST
    with pytest.raises(InputError, match="breaks p95_latency_ms and must not serve"):
        declared_with(POINT, WORDS, found)
    with pytest.raises(InputError, match="has no evaluation"):
        declared_with(POINT, replace(BEST, k=11), found)
    assert drawn.action in policy.actions
    assert WORDS not in {configuration_of(name) for name in policy.actions}
    other = replace(BEST, prompt="cited")
    with pytest.raises(InputError, match="is not a configuration of rag/retrieval"):
        declared_with(POINT, other, {other: ()})
    with pytest.raises(InputError, match="is not a configuration"):
        configuration_of("hybrid")


@pytest.mark.slow
def test_a_floor_does_not_serve_what_broke_a_gate():
    found = evaluated(slow={WORDS})
    with pytest.raises(InputError, match="1 configurations broke a hard gate, and rag/retrieval"):
        declared_with(POINT, BEST, found)
    # Whatever bars it will do, if it bars more as well.
    assert loads(declared_with(barring({"variant": "bm25"}), BEST, found)).policy
    with pytest.raises(InputError, match="does not bar them"):
        declared_with(barring({"variant": "bm25", "k": 6}), BEST, found)
