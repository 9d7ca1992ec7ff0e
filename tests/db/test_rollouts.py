"""Rollout rows: one per point, moves by the last holder, isolation."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from steersman.db.declarations import declare
from steersman.db.derived_snapshots import hold_point
from steersman.db.points import points_of
from steersman.db.rollout_transitions import (
    claim_rollout,
    due_rollouts,
    fence_rollout,
    move_rollout,
    start_rollout,
)
from steersman.db.rollouts import active_rollouts, find_rollout, rollouts_of
from steersman.db.snapshots import retract
from steersman.db.tenants import create_tenant
from steersman.errors import FencedError, RolloutError, StateError
from steersman.learning.rebuild import rebuild
from steersman.platform.postgres.database import as_tenant
from tests.db.published import declared, frozen, published
from tests.db.rows import connected
from tests.db.test_points import DOCUMENT
from tests.kept import run

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PLAN = {"stages": [["shadow", 0.0]], "holdback": 0.05}


@pytest.fixture
def point(database, tenant):
    """Return a declared point."""
    return run(declared(database, tenant.id))


async def start(database, point, candidate, **changes):
    arguments = {"control": "0.1.0", "control_seq": 0, "stage": "shadow", "share": 0.0}
    arguments |= {"salt": "s", "plan": PLAN, "now": NOW, "candidate": candidate, **changes}
    async with connected(database, "worker") as connection, connection.transaction():
        await hold_point(connection, point)
        return await start_rollout(connection, point, **arguments)


async def started(database, point, **changes):
    row = await published(database, point, 0)
    return await start(database, point, row.version, **changes)


async def moved(database, row, epoch, **changes):
    async with connected(database, "worker", row.tenant) as connection:
        return await move_rollout(connection, row, epoch, now=NOW, **changes)


async def claimed(database, row, holder, idle_s=None):
    async with connected(database, "worker", row.tenant) as connection:
        return await claim_rollout(connection, row.tenant, row.id, holder, idle_s=idle_s)


async def due(database, now=NOW):
    async with connected(database, "worker") as connection:
        return await due_rollouts(connection, now)


async def test_a_rollout_starts_and_is_found(database, point):
    row = await started(database, point, reason="better", concurrent=True)
    assert (row.status, row.stage, row.step, row.share) == ("running", "shadow", 0, 0.0)
    assert (row.candidate, row.control, row.control_seq) == ("0.1.1", "0.1.0", 0)
    assert (row.plan, row.concurrent) == (PLAN, True)
    assert (row.started_at, row.step_started_at, row.ended_at) == (NOW, NOW, None)
    assert (row.epoch, row.holder, row.reason, row.is_under_way) == (0, "", "better", True)
    assert row.id.version == 7
    async with connected(database, "app", point[0]) as connection:
        assert await find_rollout(connection, point[0], row.id) == row
        assert await find_rollout(connection, point[0], uuid4()) is None
        assert await active_rollouts(connection, point[0]) == [row]
    assert (point[0], row.id) in await due(database)
    assert (point[0], row.id) not in await due(database, NOW - timedelta(seconds=1))


async def test_a_point_has_one_candidate_and_a_skill_too(database, point):
    first = await started(database, point)
    other = await declared(database, point[0], DOCUMENT.replace("depth", "width"))
    version = (await published(database, other, 0)).version
    name = f"{first.id} of search/depth 0.1.1 is active"
    for place, concurrent in ((point, False), (point, True), (other, False)):
        with pytest.raises(RolloutError, match=name):
            await start(database, place, version, concurrent=concurrent)
    second = await start(database, other, version, concurrent=True)
    async with connected(database, "app", point[0]) as connection:
        assert await active_rollouts(connection, point[0]) == [first, second]
    # Whichever starts first, of several at once there is one.
    for row in (first, second):
        await moved(database, row, 0, status="aborted")
    tries = await asyncio.gather(
        *(start(database, place, version) for place in (point, other) * 3), return_exceptions=True
    )
    refused = [one for one in tries if isinstance(one, RolloutError)]
    assert len(refused) == 5, tries


async def test_what_cannot_serve_does_not_start(database, point):
    reserved = await frozen(database, point, 0)
    with pytest.raises(RolloutError, match="was never published"):
        await start(database, point, reserved.version)
    row = await published(database, point, 0)
    for candidate, changes, why in (
        ("7.7.7", {}, r"'7.7.7' was never published"),
        ("0.1.0", {}, "is already live"),
        (row.version, {"control": "8.8.8"}, r"control '8.8.8' was not found"),
        (row.version, {"share": 1.5}, "rollout_share_check"),
        (row.version, {"stage": "beta"}, "rollout_stage_check"),
    ):
        with pytest.raises(RolloutError, match=why):
            await start(database, point, candidate, **changes)
    async with connected(database, "worker", point[0]) as connection:
        await retract(connection, point, row.version)
    with pytest.raises(RolloutError, match="was retracted"):
        await start(database, point, row.version)
    assert not [one for one in await due(database) if one[0] == point[0]]


async def test_it_moves_and_ends(database, point):
    row = await started(database, point)
    later = NOW + timedelta(hours=1)
    one = await moved(
        database, row, 0, stage="canary", step=1, share=0.05, step_started_at=later, reason="fine"
    )
    assert (one.stage, one.step, one.share, one.step_started_at) == ("canary", 1, 0.05, later)
    assert (one.status, one.reason, one.started_at) == ("running", "fine", NOW)
    two = await moved(database, one, 0, status="paused")
    assert (two.status, two.stage, two.ended_at) == ("paused", "canary", None)
    with pytest.raises(RolloutError, match=r"cannot move rollout .* nothing was changed"):
        await moved(database, two, 0, share=-0.1)
    three = await moved(database, two, 0, status="promoted")
    assert (three.ended_at, three.is_under_way) == (NOW, False)
    assert not [one for one in await due(database) if one[0] == point[0]]
    # Also afterwards it may be taken back; when it ended stays.
    async with connected(database, "worker", point[0]) as connection:
        four = await move_rollout(connection, three, 0, now=later, status="rolled_back")
        assert (four.status, four.ended_at) == ("rolled_back", NOW)
        assert await active_rollouts(connection, point[0]) == []
    second = await start(database, point, row.candidate)
    async with connected(database, "app", point[0]) as connection:
        tenant = point[0]
        assert [one.id for one in await rollouts_of(connection, tenant)] == [second.id, row.id]
        assert await rollouts_of(connection, tenant, limit=1) == [second]
        assert await rollouts_of(connection, tenant, before=second.id) == [four]
        assert await rollouts_of(connection, tenant, skill="search", point="depth", limit=1) == [
            second
        ]
        assert await rollouts_of(connection, tenant, skill="other") == []


async def test_who_claims_it_fences_whoever_had_it(database, point):
    row = await started(database, point)
    first = await claimed(database, row, "one", idle_s=10)
    assert (first.epoch, first.holder) == (1, "one")
    assert await claimed(database, row, "two", idle_s=10) is None
    second = await claimed(database, row, "ann")
    assert second.epoch == 2
    with pytest.raises(FencedError, match="since epoch 1; nothing was written"):
        await moved(database, first, first.epoch, stage="live")
    async with connected(database, "worker", point[0]) as connection:
        with pytest.raises(FencedError):
            await fence_rollout(connection, first, first.epoch)
    async with connected(database, "worker", point[0]) as connection:
        held = await fence_rollout(connection, first, second.epoch, due_at=NOW + timedelta(hours=1))
        assert held.stage == "shadow"
    assert (point[0], row.id) not in await due(database)
    assert (await moved(database, first, second.epoch, stage="canary")).stage == "canary"
    # Whoever was not heard of is taken over from.
    await asyncio.sleep(0.02)
    assert (await claimed(database, row, "two", idle_s=0.01)).epoch == 3
    assert await claimed(database, row, "three", idle_s=60) is None


async def test_two_who_claim_at_once_do_not_both_hold_it(database, point):
    row = await started(database, point)
    rows = await asyncio.gather(*(claimed(database, row, str(n), idle_s=10) for n in range(6)))
    assert [one.epoch for one in rows if one is not None] == [1]
    rows = await asyncio.gather(*(claimed(database, row, str(n)) for n in range(6)))
    assert sorted(one.epoch for one in rows) == [2, 3, 4, 5, 6, 7]


async def test_a_claim_that_moves_is_waited_for(database, point):
    row = await started(database, point)
    mine = await claimed(database, row, "one")
    async with connected(database, "worker", point[0]) as connection:
        await fence_rollout(connection, mine, mine.epoch)
        other = asyncio.create_task(claimed(database, row, "ann"))
        await asyncio.sleep(0.05)
        assert not other.done()
        await move_rollout(connection, mine, mine.epoch, now=NOW, stage="canary")
    assert (await other).stage == "canary"


async def test_services_and_controllers_hear_of_it(database, point):
    heard = asyncio.Queue()
    async with connected(database) as listener:
        for channel in ("steersman_point", "steersman_rollout"):
            await listener.add_listener(channel, lambda *call: heard.put_nowait(call[2:]))
        row = await published(database, point, 0)
        row = await start(database, point, row.version)
        wanted = {("steersman_point", "/".join(map(str, point)))}
        wanted |= {("steersman_rollout", f"{point[0]}/{row.id}")}
        assert {await asyncio.wait_for(heard.get(), 10) for _ in range(2)} == wanted
        await moved(database, row, 0, stage="canary")
        assert {await asyncio.wait_for(heard.get(), 10) for _ in range(2)} == wanted


async def test_what_its_arms_depend_on_stays_as_it_is(database, point):
    row = await started(database, point)
    changed = DOCUMENT.replace("weight: 1", "weight: 2")
    with pytest.raises(RolloutError, match=f"rollout {row.id} of search/depth 0.1.1 is active"):
        await declare(database, point[0], changed, actor="me")
    await declare(database, point[0], DOCUMENT, actor="me")  # it changes nothing
    async with connected(database, "app", point[0]) as connection:
        (declared_row,) = await points_of(connection, point[0])
    with pytest.raises(RolloutError, match="promote it or roll it back first"):
        await rebuild(database, declared_row, actor="me")
    async with connected(database, "worker", point[0]) as connection:
        with pytest.raises(StateError, match="a rollout of it is active"):
            await retract(connection, point, row.candidate)
    await moved(database, row, 0, status="rolled_back")
    assert (await declare(database, point[0], changed, actor="me")).spec_hash
    assert (await rebuild(database, declared_row, actor="me")).snapshot == "0.2.0"


async def test_one_tenant_neither_sees_nor_moves_anothers_rollout(database, point):
    mine = (await create_tenant(database, f"t-{uuid4().hex}", actor="test")).id
    own = await declared(database, mine)
    theirs = await started(database, point)
    async with connected(database, "worker", mine) as connection:
        assert await find_rollout(connection, point[0], theirs.id) is None
        assert await find_rollout(connection, mine, theirs.id) is None
        assert await active_rollouts(connection, point[0]) == []
        assert await rollouts_of(connection, point[0]) == []
        assert await claim_rollout(connection, point[0], theirs.id, "eve", idle_s=None) is None
        for attempt in (
            fence_rollout(connection, theirs, 0, due_at=NOW + timedelta(days=9)),
            move_rollout(connection, theirs, 0, now=NOW, status="promoted"),
        ):
            with pytest.raises(FencedError):
                await attempt
        assert await connection.execute("DELETE FROM rollout_task") == "DELETE 0"
        assert await connection.execute("UPDATE rollout_task SET due_at = now()") == "UPDATE 0"
    task = "INSERT INTO rollout_task (tenant, rollout, due_at) VALUES ($1, $1, now())"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(database, "worker", mine) as connection:
            await connection.execute(task, point[0])
    # That they have one under way does not keep this one from starting.
    ours = await started(database, own)
    async with connected(database, "app", mine) as connection:
        assert await active_rollouts(connection, mine) == [ours]
    async with connected(database, "app", point[0]) as connection:
        assert await find_rollout(connection, point[0], theirs.id) == theirs


@pytest.mark.parametrize("role", ["app", "owner"])
async def test_the_queue_of_all_is_seen_by_worker_alone(database, point, role):
    await started(database, point)
    async with connected(database, role) as connection:
        try:
            assert await due_rollouts(connection, NOW) == []
        except asyncpg.InsufficientPrivilegeError:
            assert role == "app"


async def test_a_worker_sees_tenant_and_id_and_nothing_else(database, point):
    row = await started(database, point)
    async with connected(database, "worker") as connection:
        found = await connection.fetch("SELECT * FROM rollout_task WHERE rollout = $1", row.id)
        assert [set(one.keys()) for one in found] == [{"tenant", "rollout", "due_at"}]
        assert await connection.fetch("SELECT * FROM rollout") == []
        async with as_tenant(connection, UUID(int=1)):
            assert await connection.fetch("SELECT * FROM rollout") == []
