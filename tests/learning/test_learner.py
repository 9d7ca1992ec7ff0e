"""Learner: from event rows to rewards, updates and states."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.packed_events import log_events
from steersman.db.tenants import create_tenant
from steersman.db.work_queue import queue_work
from steersman.learning.verify import verify
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import initial_policy
from steersman.workers.learner import LearnerSettings, run_learner
from tests.db.rows import connected
from tests.learning.world import (
    POLICIES,
    bits,
    corrections,
    decided,
    declared,
    document,
    happened,
    learn_all,
    nothing_due,
    point_of,
    replica_of,
    rows,
    traffic,
    write,
)

REWARDS = "SELECT * FROM reward ORDER BY decision, revision"
UPDATES = "SELECT * FROM update ORDER BY seq"


async def test_an_outcome_becomes_a_reward_and_an_update(database, tenant):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0))
    await write(database, [one], [happened(one, {"success": 0.75})])
    seen = []
    await learn_all(database, watch=seen.append)
    (reward,) = await rows(database, tenant.id, REWARDS)
    assert (reward["value"], reward["status"], reward["final"]) == (0.75, "scored", False)
    assert (reward["revision"], reward["terms"]) == (1, {"success": 0.75})
    (update,) = await rows(database, tenant.id, UPDATES)
    assert (update["seq"], update["reward_change"], update["weight_change"]) == (1, 0.75, 1.0)
    assert update["x"] == one.x
    assert update["bucket"] == int(one.at.timestamp() // 86_400)
    (later,) = await rows(database, tenant.id, "SELECT * FROM work WHERE decision = $1", one.id)
    assert later["due_at"] == one.window_ends
    done = [each for each in seen if each.point[0] == tenant.id]
    assert [(each.taken, each.rewards, each.updates) for each in done] == [(1, 1, 1)]


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_state_is_what_the_policy_learns_in_order(database, tenant, policy):
    row = await declared(database, tenant.id, policy=policy)
    settings = LearnerSettings(batch=7, checkpoint_every=10, poll_s=0.05)
    decisions = await traffic(database, row, 40)
    await learn_all(database, settings=settings)
    await corrections(database, decisions)
    await learn_all(database, settings=settings)
    replica = await replica_of(database, tenant.id)
    expected = initial_policy(row.spec)
    for update in await rows(database, tenant.id, UPDATES):
        x = update["key"] if update["x"] is None else np.array(update["x"])
        learn = expected.learn if update["weight_change"] else expected.revise
        learn(x, update["action"], update["reward_change"], bucket=update["bucket"])
    assert replica.seq == 46
    assert bits(replica.policy) == bits(expected)


async def test_a_correction_within_the_window_revises(database, tenant):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0))
    await write(database, [one], [happened(one, {"success": 0.3})])
    await learn_all(database)
    later = happened(one, {"success": 0.7}, at=one.at + timedelta(seconds=5))
    await write(database, [], [later])
    await learn_all(database)
    steps = await rows(database, tenant.id, UPDATES)
    assert [(u["revision"], u["weight_change"]) for u in steps] == [(1, 1.0), (2, 0.0)]
    replica = await replica_of(database, tenant.id)
    expected = initial_policy(row.spec)
    expected.learn(np.array(one.x), one.action, 0.7)
    for name, array in expected.state().items():
        if name != "meta":
            assert np.allclose(array, replica.policy.state()[name], rtol=0, atol=1e-15)


async def test_outcomes_after_the_window_do_not_count(database, tenant):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0), at=time.time() - 4000)
    late = happened(one, {"success": 1.0}, at=one.window_ends + timedelta(seconds=1))
    await write(database, [one], [happened(one, {"success": 0.5}), late])
    await learn_all(database)
    (reward,) = await rows(database, tenant.id, REWARDS)
    assert (reward["value"], reward["final"]) == (0.5, True)
    assert len(await rows(database, tenant.id, UPDATES)) == 1


async def test_the_end_of_the_window_makes_a_reward_final(database, tenant):
    row = await declared(database, tenant.id, reward="trigger: window, window_s: 60")
    now = time.time()
    one = decided(row, np.random.default_rng(0), at=now)
    await write(database, [one], [happened(one, {"success": 0.5}, received_at=one.at)])
    await learn_all(database, clock=lambda: now + 1)
    assert [r["status"] for r in await rows(database, tenant.id, REWARDS)] == ["waiting"]
    assert await rows(database, tenant.id, UPDATES) == []
    await learn_all(database, clock=lambda: now + 60.001)
    second = (await rows(database, tenant.id, REWARDS))[1]
    assert (second["status"], second["value"], second["final"]) == ("scored", 0.5, True)
    assert len(await rows(database, tenant.id, UPDATES)) == 1
    assert await rows(database, tenant.id, "SELECT FROM work WHERE tenant = $1", tenant.id) == []


async def test_silence_is_assumed_where_it_was_declared(database, tenant):
    row = await declared(database, tenant.id, reward="missing: {value: 0.25}, window_s: 60")
    one = decided(row, np.random.default_rng(0), at=time.time() - 120)
    connection = await database.connect("app")
    await log_decisions(connection, [one], settling=[one.id])
    await connection.close()
    await learn_all(database)
    (reward,) = await rows(database, tenant.id, REWARDS)
    assert (reward["status"], reward["value"]) == ("assumed", 0.25)
    assert len(await rows(database, tenant.id, UPDATES)) == 1


async def test_an_episode_credits_all_its_decisions(database, tenant):
    row = await declared(database, tenant.id, reward="scope: episode")
    rng = np.random.default_rng(0)
    ask, answer = (decided(row, rng, episode="talk") for _ in range(2))
    alone = decided(row, rng, episode="other")
    whole = happened(ask, {"success": 1.0}, decision=None, episode="talk")
    await write(database, [ask, answer, alone], [whole])
    await learn_all(database)
    credited = {r["decision"]: r["value"] for r in await rows(database, tenant.id, REWARDS)}
    assert credited == {ask.id: 1.0, answer.id: 1.0}
    own = happened(ask, {"success": 0.5}, at=ask.at + timedelta(seconds=5))
    await write(database, [], [own])
    await learn_all(database)
    newest = {r["decision"]: r["value"] for r in await rows(database, tenant.id, REWARDS)}
    assert newest == {ask.id: 0.5, answer.id: 0.5}


async def test_a_frozen_point_computes_rewards_and_learns_nothing(database, tenant):
    row = await declared(database, tenant.id, learning="mode: frozen")
    await traffic(database, row, 5)
    await learn_all(database)
    assert len(await rows(database, tenant.id, REWARDS)) >= 5
    assert await rows(database, tenant.id, UPDATES) == []


async def test_what_the_policy_did_not_choose_is_not_learned(database, tenant):
    row = await declared(database, tenant.id)
    rng = np.random.default_rng(0)
    changes = [
        {"p_kind": "client"},
        {"p_kind": "fallback", "degraded": True},
        {"weight": 0.0},
    ]
    made = [decided(row, rng, **each) for each in changes]
    await write(database, made, [happened(one, {"success": 1.0}) for one in made])
    await learn_all(database)
    assert len(await rows(database, tenant.id, REWARDS)) == 3
    assert await rows(database, tenant.id, UPDATES) == []


async def test_a_long_episode_is_credited_once_for_all_events_that_wait(database, tenant):
    row = await declared(database, tenant.id, reward="scope: episode, window_s: 86400")
    rng = np.random.default_rng(0)
    start = time.time() - 3600
    decisions = [decided(row, rng, at=start + i, episode="long") for i in range(60)]
    told = [happened(one, {"success": i / 40}) for i, one in enumerate(decisions[:40])]
    await write(database, decisions, told)
    point = (tenant.id, row.skill, row.point)
    later = datetime.now(UTC) + timedelta(hours=1)
    async with connected(database, "worker", tenant.id) as connection:
        assert await connection.fetchval("SELECT count(*) FROM work") == 40 * 60
        await queue_work(connection, point, [(decisions[0].id, later, None)])
    done = []
    await learn_all(database, watch=done.append)
    # 500 rows at a time these were five batches, each of which credited all the episode again.
    assert [each.taken for each in done if each.taken] == [40 * 60]
    assert (done[0].rewards, done[0].updates) == (60, 60)
    left = await rows(database, tenant.id, "SELECT decision FROM work WHERE due_at = $1", later)
    assert [each["decision"] for each in left] == [decisions[0].id]
    assert (await verify(database, await point_of(database, tenant.id))).holds


async def test_imported_decisions_count_for_their_weight(database, tenant):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0), p=None, p_kind="none", x=None, weight=0.25)
    await write(database, [one], [happened(one, {"success": 1.0})])
    await learn_all(database)
    state = (await replica_of(database, tenant.id)).policy.state()
    assert state["count"].sum() == 0.25


async def test_a_commit_that_becomes_visible_late_is_learned(database, tenant):
    """Work of an earlier transaction appears after a later one is processed."""
    row = await declared(database, tenant.id)
    rng = np.random.default_rng(0)
    early, late = decided(row, rng), decided(row, rng)
    await write(database, [early, late])
    slow = await database.connect("app")
    transaction = slow.transaction()
    await transaction.start()
    await log_events(slow, [happened(early, {"success": 0.25})])
    await write(database, [], [happened(late, {"success": 0.5})])
    await learn_all(database)
    assert [r["value"] for r in await rows(database, tenant.id, REWARDS)] == [0.5]
    await transaction.commit()
    await slow.close()
    await learn_all(database)
    steps = await rows(database, tenant.id, UPDATES)
    assert [(u["seq"], u["decision"]) for u in steps] == [(1, late.id), (2, early.id)]


async def test_a_clock_that_steps_back_doubles_nothing(database, tenant):
    row = await declared(database, tenant.id, reward="trigger: window, window_s: 60")
    now = time.time()
    one = decided(row, np.random.default_rng(0), at=now - 100)
    await write(database, [one], [happened(one, {"success": 0.5})])
    await learn_all(database, clock=lambda: now)
    await write(
        database, [], [happened(one, {"other": 1.0}, received_at=one.at - timedelta(hours=3))]
    )
    await learn_all(database, clock=lambda: now - 7200)
    assert len(await rows(database, tenant.id, REWARDS)) == 1
    assert len(await rows(database, tenant.id, UPDATES)) == 1


async def test_a_changed_declaration_starts_afresh_and_takes_old_decisions_anew(database, tenant):
    old = await declared(database, tenant.id)
    one = decided(old, np.random.default_rng(0))
    await write(database, [one], [happened(one, {"success": 0.25})])
    await learn_all(database)
    new = await declared(database, tenant.id, dim=20)
    assert new.snapshot == "0.2.0"
    correction = happened(one, {"success": 0.5}, at=one.at + timedelta(seconds=5))
    await write(database, [], [correction])
    await learn_all(database)
    (update,) = await rows(database, tenant.id, UPDATES + " OFFSET 1")
    assert (update["snapshot"], update["seq"], len(update["x"])) == ("0.2.0", 1, 20)
    assert (update["reward_change"], update["weight_change"]) == (0.5, 1.0)


async def test_many_points_are_learned_side_by_side(database, tenant):
    for skill in ("search", "answer", "route"):
        text = document().replace("skill: search", f"skill: {skill}")
        row = await declare(database, tenant.id, text, actor="test")
        await traffic(database, row, 12)
    await learn_all(database, settings=LearnerSettings(batch=4, poll_s=0.05, linger_s=0.0))
    counts = await rows(
        database, tenant.id, "SELECT skill, max(seq), count(*) FROM update GROUP BY skill"
    )
    assert all(row[1] == row[2] == 12 for row in counts), counts
    assert len(counts) == 3


async def test_a_long_queue_does_not_keep_others_waiting(database, tenant):
    busy = await create_tenant(database, f"busy-{tenant.name}", actor="test")
    await declared(database, busy.id)
    connection = await database.connect("worker")
    async with as_tenant(connection, busy.id):
        await connection.execute(
            "INSERT INTO work (tenant, skill, point, decision, due_at) SELECT $1, 'search', "
            "'depth', gen_random_uuid(), now() - interval '1 h' FROM generate_series(1, 6000)",
            busy.id,
        )
    await connection.close()
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0))
    await write(database, [one], [happened(one, {"success": 1.0})])
    seen = []
    await learn_all(database, watch=seen.append)
    assert sum(done.taken for done in seen if done.point[0] == busy.id) == 6000
    assert [done.point[0] for done in seen][:3].count(tenant.id) == 1


async def test_it_wakes_without_polling(database, tenant):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0))
    await write(database, [one])
    learned, stop = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(
        run_learner(
            database,
            stop=stop,
            settings=LearnerSettings(poll_s=600.0),
            watch=lambda done: learned.set() if done.point[0] == tenant.id else None,
        )
    )
    await asyncio.sleep(0.3)
    await write(database, [], [happened(one, {"success": 1.0})])
    await asyncio.wait_for(learned.wait(), 20)
    stop.set()
    await running


async def test_lost_connections_are_made_anew(database, tenant):
    row = await declared(database, tenant.id)
    decisions = await traffic(database, row, 30)
    stop = asyncio.Event()
    settings = LearnerSettings(batch=3, checkpoint_every=5, poll_s=0.05, linger_s=0.05)
    running = asyncio.create_task(run_learner(database, stop=stop, settings=settings))
    server = await database.connect(None)
    for fragment in ("LISTEN", "work", "learner"):
        await asyncio.sleep(0.2)
        await server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'steersman learner' "
            "AND strpos(query, $1) > 0",
            fragment,
        )
    await server.close()
    await corrections(database, decisions)
    await nothing_due(database, running=running)
    stop.set()
    await running
    found = await verify(database, row)
    assert found.holds
    assert (found.pending, found.not_learned) == (0, [])
