"""A run's log is evidence of rules that were not followed; what it cannot tell is refused."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.loop import tune
from steersman_systems.rag_tuner.off_policy import estimated, holding
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.slices import rotating
from steersman_systems.rag_tuner.strategies.random import Random
from tests.systems.rag_tuner.worlds import tuned, world

TUNED, WORLD = tuned(), world(queries=100)
EVERY = np.arange(100)


def lines(evaluations, seed=0):
    slices = rotating(EVERY, 16, np.random.default_rng(seed))
    told = tune(Random(TUNED), WORLD, TUNED, slices, evaluations=evaluations, seed=seed)
    return [
        {
            "configuration": one.configuration.parts(),
            "propensity": one.propensity,
            "reward": one.reward.value,
        }
        for one in told
    ]


def truth(rule):
    worth = {one: reward_of(WORLD.evaluate(one, EVERY), TUNED).value for one in rule}
    return sum(mass * worth[one] for one, mass in rule.items())


@pytest.mark.slow
@pytest.mark.parametrize("parts", [{}, {"rerank": False}, {"expansion": True}])
def test_estimates_hold_what_the_rule_is_truly_worth(parts):
    rule = holding(TUNED.space, parts)
    report = estimated(lines(400), rule)
    assert not report.refused
    wanted = truth(rule)
    for name in ("ips", "snips", "dr"):
        found = report[name]
        assert found.low <= wanted <= found.high, (name, wanted, found)
    assert report["snips"].high - report["snips"].low < 0.05


def test_a_rule_of_which_the_log_knows_little_is_refused():
    report = estimated(lines(60), holding(TUNED.space, {"k": 5, "variant": "dense"}))
    assert report.refused
    assert report["snips"].value is None


def test_what_is_no_evidence_is_told():
    some = lines(3)
    with pytest.raises(DataError, match="is deterministic"):
        estimated([*some, {**some[0], "propensity": None}], holding(TUNED.space, {}))
    with pytest.raises(InputError, match="none of 1 evaluations has a reward"):
        estimated([{**some[0], "reward": None}], holding(TUNED.space, {}))
    with pytest.raises(InputError, match="no configuration of the space has k=99"):
        holding(TUNED.space, {"k": 99})
