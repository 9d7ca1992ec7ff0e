"""Withdrawal of decisions that were not carried out or were erased."""

from datetime import timedelta

import numpy as np
import pytest

from steersman.db.erasure import erase
from steersman.points.policy_factory import initial_policy
from tests.learning.world import (
    POLICIES,
    decided,
    declared,
    happened,
    learn_all,
    replica_of,
    rows,
    write,
)


async def newest(database, tenant, decision):
    query = "SELECT * FROM reward WHERE decision = $1 ORDER BY revision DESC LIMIT 1"
    (row,) = await rows(database, tenant.id, query, decision)
    return row["value"], row["status"]


async def other_action(database, one, seconds):
    event = happened(one, action_taken="something else", at=one.at + timedelta(seconds=seconds))
    await write(database, [], [event])


async def test_an_action_not_taken_is_never_learned(database, tenant):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0))
    await write(database, [one])
    await other_action(database, one, 1)
    await write(database, [], [happened(one, {"success": 1.0})])
    await learn_all(database)
    assert await newest(database, tenant, one.id) == (None, "withdrawn")
    assert await rows(database, tenant.id, "SELECT FROM update") == []


@pytest.mark.parametrize("policy", POLICIES)
async def test_an_action_not_taken_is_taken_back(database, tenant, policy):
    row = await declared(database, tenant.id, policy=policy)
    rng = np.random.default_rng(0)
    one, other = decided(row, rng), decided(row, rng)
    await write(
        database,
        [one, other],
        [happened(one, {"success": 0.75}), happened(other, {"success": 0.5})],
    )
    await learn_all(database)
    await other_action(database, one, 5)
    await learn_all(database)
    await write(database, [], [happened(one, {"success": 0.1}, at=one.at + timedelta(seconds=9))])
    await learn_all(database)
    assert await newest(database, tenant, one.id) == (None, "withdrawn")
    last = (await rows(database, tenant.id, "SELECT * FROM update ORDER BY seq"))[-1]
    assert (last["seq"], last["reward_change"], last["weight_change"]) == (3, -0.75, -1.0)
    expected = initial_policy(row.spec)
    x = other.key if other.x is None else np.array(other.x)
    expected.learn(x, other.action, 0.5, bucket=last["bucket"])
    state = (await replica_of(database, tenant.id)).policy.state()
    assert (await replica_of(database, tenant.id)).policy.updates == 1
    if policy != "beta":  # its key remains, with nothing under it
        for name, array in expected.state().items():
            if name != "meta":
                assert np.allclose(array, state[name], rtol=0, atol=1e-12), name


async def test_a_decision_erased_before_it_was_learned_is_not(database, tenant):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0), unit="ann")
    await write(database, [one], [happened(one, {"success": 1.0})])
    await erase(database, tenant.id, unit="ann", reason="asked to", actor="test")
    await learn_all(database)
    assert await rows(database, tenant.id, "SELECT FROM update") == []


async def test_a_decision_erased_afterwards_is_taken_back_once(database, tenant):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0), unit="ann")
    await write(database, [one], [happened(one, {"success": 1.0})])
    await learn_all(database)
    for _ in range(2):
        await erase(database, tenant.id, unit="ann", reason="asked to", actor="test")
        await erase(database, tenant.id, decisions=[one.id], reason="asked to", actor="test")
        await learn_all(database)
    changes = await rows(database, tenant.id, "SELECT weight_change FROM update ORDER BY seq")
    assert [change[0] for change in changes] == [1.0, -1.0]
    state = (await replica_of(database, tenant.id)).policy.state()
    assert not state["count"].any()
