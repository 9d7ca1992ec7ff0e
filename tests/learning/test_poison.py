"""Work that cannot be processed is set aside with a reason; other work is learned."""

import asyncio
import logging

import numpy as np
from msgspec.structs import replace

from steersman.db.declarations import declare
from steersman.platform.postgres.database import as_tenant
from steersman.workers.learner import LearnerSettings, run_learner
from tests.learning.world import (
    decided,
    declared,
    document,
    happened,
    learn_all,
    rows,
    spoil,
    write,
)

SETTINGS = LearnerSettings(poll_s=0.05, linger_s=0.0)
REWARDS = "SELECT decision, value, status FROM reward ORDER BY decision"


async def test_a_decision_whose_declaration_is_gone_fails_alone(database, tenant, caplog):
    row = await declared(database, tenant.id)
    rng = np.random.default_rng(0)
    made = [decided(row, rng) for _ in range(5)]
    made[2] = replace(made[2], spec_hash=b"x" * 32)
    seen = []
    await write(database, made, [happened(one, {"success": 1.0}) for one in made])
    with caplog.at_level(logging.ERROR):
        await learn_all(database, watch=seen.append)
    status = {r["decision"]: r["status"] for r in await rows(database, tenant.id, REWARDS)}
    assert status.pop(made[2].id) == "failed"
    assert set(status.values()) == {"scored"}
    assert len(await rows(database, tenant.id, "SELECT FROM update")) == 4
    assert sum(done.failed for done in seen if done.point[0] == tenant.id) == 1
    assert str(made[2].id) in caplog.text
    assert "declaration not found" in caplog.text


async def test_what_the_policy_refuses_keeps_its_reward_and_is_counted(database, tenant, caplog):
    row = await declared(database, tenant.id)
    rng = np.random.default_rng(0)
    made = [decided(row, rng) for _ in range(3)]
    made[0] = replace(made[0], action="gone")
    made[1] = replace(made[1], x=[1.0])
    seen = []
    await write(database, made, [happened(one, {"success": 1.0}) for one in made])
    await learn_all(database, watch=seen.append)
    assert [r["status"] for r in await rows(database, tenant.id, REWARDS)] == ["scored"] * 3
    steps = await rows(database, tenant.id, "SELECT seq, decision FROM update")
    assert [(u["seq"], u["decision"]) for u in steps] == [(1, made[2].id)]
    assert sum(done.refused for done in seen if done.point[0] == tenant.id) == 2
    assert "unknown action 'gone'" in caplog.text


async def test_a_row_that_breaks_its_batch_is_found_by_halving(database, tenant, caplog):
    """The service rejects outcomes that are not mappings; such a row must not block others."""
    row = await declared(database, tenant.id)
    rng = np.random.default_rng(0)
    made = [decided(row, rng) for _ in range(9)]
    await write(database, made, [happened(one, {"success": 1.0}) for one in made])
    connection = await database.connect("owner")
    async with as_tenant(connection, tenant.id):
        await connection.execute(
            "UPDATE event SET outcomes = '[1]' WHERE decision = $1", made[4].id
        )
    await connection.close()
    seen = []
    await learn_all(database, watch=seen.append)
    status = {r["decision"]: r["status"] for r in await rows(database, tenant.id, REWARDS)}
    assert status.pop(made[4].id) == "failed"
    assert set(status.values()) == {"scored"}
    assert sum(done.failed for done in seen if done.point[0] == tenant.id) == 1
    assert "cannot process work row" in caplog.text


async def test_a_damaged_state_stops_its_own_point_only(database, tenant, caplog):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0))
    connection = await database.connect("owner")
    async with as_tenant(connection, tenant.id):
        await connection.execute("UPDATE snapshot SET state = state || '\\x00'")
    await connection.close()
    await write(database, [one])
    await write(database, [], [happened(one, {"success": 1.0})])
    stop_after = LearnerSettings(poll_s=0.05, linger_s=0.0)
    await learn_for(database, 1.0, stop_after)
    assert len(await rows(database, tenant.id, "SELECT FROM work")) >= 1
    assert "failed, retrying every 10 s" in caplog.text
    assert await rows(database, tenant.id, REWARDS) == []
    connection = await database.connect("owner")
    async with as_tenant(connection, tenant.id):
        await connection.execute("UPDATE snapshot SET state = substr(state, 1, length(state) - 1)")
    await connection.close()
    await learn_all(database, settings=SETTINGS)
    assert len(await rows(database, tenant.id, "SELECT FROM update")) == 1


async def learn_for(database, seconds, settings, **more):
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    await run_learner(database, stop=stop, settings=settings, **more)


async def test_outcomes_of_a_point_that_cannot_be_read_wait_and_all_others_are_learned(
    database, tenant, caplog
):
    row = await declared(database, tenant.id)
    text = document().replace("decision: depth", "decision: width")
    other = await declare(database, tenant.id, text, actor="test")
    rng = np.random.default_rng(0)
    made = [replace(decided(one, rng), point=one.point) for one in (row, other)]
    await spoil(database, tenant.id, "document || 'sails: 3\n'")
    await write(database, made, [happened(one, {"success": 1.0}) for one in made])
    seen = []
    await learn_for(database, 4.0, SETTINGS, watch=seen.append)
    known = await rows(database, tenant.id, REWARDS)
    assert [(r["decision"], r["status"]) for r in known] == [(made[1].id, "scored")]
    assert sum(done.failed for done in seen if done.point[0] == tenant.id) == 0
    assert "steersman tenant declare" in caplog.text
    await declare(database, tenant.id, document(), actor="test")
    await learn_all(database, settings=SETTINGS)
    assert {r["status"] for r in await rows(database, tenant.id, REWARDS)} == {"scored"}
    assert len(await rows(database, tenant.id, "SELECT FROM update")) == 2
