"""Verification finds tampered rows and wrong states."""

import numpy as np
import pytest

from steersman.learning.replica import replay
from steersman.learning.verify import verify
from steersman.platform.postgres.database import as_tenant
from steersman.workers.learner import LearnerSettings
from tests.learning.world import (
    bits,
    corrections,
    decided,
    declared,
    happened,
    learn_all,
    replica_of,
    traffic,
    write,
)

SETTINGS = LearnerSettings(batch=9, checkpoint_every=10, poll_s=0.05, linger_s=0.0)


async def learned(database, tenant):
    row = await declared(database, tenant.id, policy="lin_ucb_forgets")
    await corrections(database, await traffic(database, row, 30))
    await learn_all(database, settings=SETTINGS)
    return row


async def tamper(database, tenant, statement):
    connection = await database.connect("owner")
    async with as_tenant(connection, tenant.id):
        await connection.execute(statement)
    await connection.close()


async def test_what_was_learned_holds(database, tenant):
    row = await learned(database, tenant)
    found = await verify(database, row)
    assert found.holds
    assert (found.decisions, found.updates, found.pending) == (30, 30, 0)
    assert found.not_learned == []


async def test_a_checkpoint_is_what_its_updates_make(database, tenant):
    row = await learned(database, tenant)
    connection = await database.connect("worker")
    async with as_tenant(connection, tenant.id):
        replayed = await replay(connection, row)
    await connection.close()
    stored = await replica_of(database, tenant.id)
    assert stored.stored == 30
    assert replayed.stored == 0
    assert bits(stored.policy) == bits(replayed.policy)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE reward SET value = 0.123 WHERE value = (SELECT max(value) FROM reward)",
         "wrong_rewards"),
        ("DELETE FROM reward WHERE value = (SELECT max(value) FROM reward)", "wrong_rewards"),
        ("UPDATE update SET reward_change = 0.5 WHERE seq = 7", "state"),
        ("DELETE FROM update WHERE seq = 29", "state"),
        ("DELETE FROM update WHERE seq = 30", "state"),
        ("UPDATE checkpoint SET state = state || '\\x00' WHERE seq = 30", "state"),
    ],
)  # fmt: skip
async def test_what_was_tampered_with_is_found(database, tenant, statement, what):
    row = await learned(database, tenant)
    await tamper(database, tenant, statement)
    found = await verify(database, row)
    assert not found.holds
    assert getattr(found, what)


async def test_a_reward_of_a_very_large_outcome_holds(database, tenant):
    row = await learned(database, tenant)
    one = decided(row, np.random.default_rng(5))
    await write(database, [one], [happened(one, {"success": 1e23})])
    await learn_all(database, settings=SETTINGS)
    assert (await verify(database, row)).holds


async def test_work_that_is_due_is_not_judged(database, tenant):
    row = await learned(database, tenant)
    one = decided(row, np.random.default_rng(3))
    await write(database, [one], [happened(one, {"success": 1.0})])
    found = await verify(database, row)
    assert found.holds
    assert found.pending == 1
    await learn_all(database)
