"""Invariant 1 over HTTP: the propensity is the probability with which the action was drawn."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID

import numpy as np
import pytest
from scipy.stats import chi2

from steersman.db.points import points_of
from steersman.features import FeatureMap
from steersman.learning.replica import state_at
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import encode
from tests.faults.checks import check_learning, settled
from tests.faults.harness import POINT
from tests.faults.traffic import traffic

ACTIONS = ["shallow", "middle", "deep"]
POLICIES = {
    "lin_ucb": "{algorithm: lin_ucb, alpha: 0.5, ridge: 1.0}",
    "lin_ts": "{algorithm: lin_ts}",
    "beta_thompson": "{algorithm: beta_thompson, key: intent}",
    "epsilon_greedy": "{algorithm: epsilon_greedy, epsilon: 0.2}",
}


def _document(policy):
    return POINT.replace(POLICIES["lin_ucb"], POLICIES[policy])


async def _taught(asking, rounds):
    """Decide and report so that the policy comes to prefer an action."""
    for _ in range(rounds):
        eligible = asking.rng.choice([None, None, ["shallow", "deep"], ["middle", "deep"]])
        more = {} if eligible is None else {"eligible": eligible}
        decision = await asking.decide(keyed=False, deadline_ms=10_000, **more)
        assert eligible is None or decision["action"] in eligible
        assert abs(sum(decision["distribution"].values()) - 1) < 1e-6
        assert decision["distribution"][decision["action"]] == decision["propensity"]
        success = (
            asking.rng.random() < {"shallow": 0.3, "middle": 0.5, "deep": 0.8}[decision["action"]]
        )
        await asking.report(decision, {"success": float(success)})


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
async def test_the_propensity_is_the_entry_of_the_state_that_decided(made, policy):
    access = await made.tenant("one", _document(policy))
    await asyncio.to_thread(made.start_service)
    made.start_learner()
    async with traffic(made, access, timeout_s=30) as asking:
        await _taught(asking, 60)
        await settled(made.database, access)
        while (await asking.decide(keyed=False))["update_seq"] <= 20:
            pass  # until the service knows
        await _taught(asking, 90)
        await settled(made.database, access)
        await check_learning(made.database, access)
        await _check_entries(made, access, asking.ledger.answers[::3])
        await _check_frequencies(asking)


async def _check_entries(made, access, answers):
    connection = await made.database.connect("app")
    async with as_tenant(connection, access.tenant):
        (point,) = await points_of(connection, access.tenant)
        features = FeatureMap(point.spec.context)
        for answer in answers:
            row = await connection.fetchrow(
                "SELECT * FROM decision WHERE id = $1", UUID(answer["decision_id"])
            )
            policy = await state_at(connection, point, row["snapshot"], row["update_seq"])
            x, key = encode(point.spec, features, row["context"])
            seen = x if x is not None else key if key is not None else row["context"]
            whole = policy.distribution(seen, eligible=row["eligible"])
            drawn = ACTIONS.index(row["action"])
            assert answer["propensity"] == row["p"]
            assert abs(whole[drawn] - row["p"]) <= 1e-12
            np.testing.assert_allclose(row["distribution"], whole, atol=1e-7)
            # The action is where the stored uniform falls: nobody chose it afterwards.
            edges = np.cumsum(whole)
            assert edges[drawn] - whole[drawn] - 1e-9 <= row["u"] <= edges[drawn] + 1e-9
    await connection.close()


async def _check_frequencies(asking):
    """5,000 decisions of each policy; a chi-square that a right service exceeds once in 10^6."""
    request = {
        "skill": "search",
        "decision": "depth",
        "context": {"intent": "a", "length": 0.5},
        "deadline_ms": 30_000,
    }
    counts, expected = Counter(), None
    for _ in range(10):
        status, answer = await asking.post("/v1/decide", {"requests": [request] * 500})
        assert status == 200
        for one in answer["decisions"]:
            assert one["logged"] is True
            expected = expected or (one["update_seq"], one["distribution"])
            assert one["update_seq"] == expected[0]
            counts[one["action"]] += 1
    wanted = np.array([expected[1][action] for action in ACTIONS])
    wanted *= counts.total() / wanted.sum()
    got = np.array([counts[action] for action in ACTIONS])
    assert np.sum((got - wanted) ** 2 / wanted) < chi2.isf(1e-6, len(ACTIONS) - 1)
