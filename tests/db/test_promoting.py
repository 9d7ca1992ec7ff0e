"""Live snapshot: promotion with later updates, return and pins."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from steersman.db.declarations import declare
from steersman.db.derived_snapshots import hold_point, last_update, switch_snapshot
from steersman.db.points import points_of
from steersman.db.promotion import (
    last_number,
    pin_point,
    promote_snapshot,
    take_back_snapshot,
    unpin_point,
)
from steersman.db.rewards import learned_of
from steersman.db.snapshots import retract
from steersman.db.tenants import create_tenant
from steersman.db.updates import updates_after
from steersman.errors import InputError, RolloutError, StateError
from steersman.features import feature_map
from steersman.platform.postgres.database import as_tenant
from steersman.spec.loader import loads
from tests.db.published import declared, frozen, learn, published
from tests.db.rows import connected
from tests.db.test_points import DOCUMENT
from tests.kept import run


@pytest.fixture
def point(database, tenant):
    """Return a declared point."""
    return run(declared(database, tenant.id))


async def promoted(database, point, version, **options):
    async with connected(database, "worker") as connection, connection.transaction():
        return await promote_snapshot(connection, point, version, **options)


async def point_row(database, point):
    async with connected(database, "app", point[0]) as connection:
        (row,) = await points_of(connection, point[0])
        return row


async def log(database, point, snapshot):
    async with connected(database, "app", point[0]) as connection:
        return await updates_after(connection, point, snapshot, 0)


async def learner(database, point):
    async with connected(database, "worker", point[0]) as connection:
        return await connection.fetchrow("SELECT epoch, snapshot, seq, holder FROM learner")


async def queued(database, point):
    async with connected(database, "owner", point[0]) as connection:
        return {each["decision"] for each in await connection.fetch("SELECT decision FROM work")}


async def test_what_was_learned_since_goes_with_it(database, point):
    decisions = await learn(database, point, 7)
    row = await published(database, point, 4)
    before = await log(database, point, "0.1.0")
    epoch = (await learner(database, point))["epoch"]
    assert await promoted(database, point, row.version) == 3
    after = await log(database, point, row.version)
    assert [one._replace(seq=one.seq + 4) for one in after] == before[4:]
    assert await log(database, point, "0.1.0") == before
    assert tuple(await learner(database, point)) == (epoch + 1, row.version, 3, "")
    assert (await point_row(database, point)).snapshot == row.version
    async with connected(database, "worker", point[0]) as connection:
        times = await connection.fetch(
            "SELECT a.at = b.at FROM update AS a JOIN update AS b USING (decision) "
            "WHERE a.snapshot = '0.1.0' AND b.snapshot = $1",
            row.version,
        )
        assert [tuple(each) for each in times] == [(True,)] * 3
        # What it holds of a decision does not depend on which log says so.
        assert len(await learned_of(connection, point, row.version, decisions)) == 7
        assert await last_update(connection, point) == 3
    # And on it goes, from there.
    await learn(database, point, 2)
    second = await published(database, point, 5)
    assert second.line == row.version
    assert await promoted(database, point, second.version) == 0


async def test_declaration_and_hashes_follow_where_the_policy_is_another(database, point):
    await learn(database, point, 2)
    other = DOCUMENT.replace("floor: 0.02", "floor: 0.05")
    row = await published(database, point, 2, document=other)
    with pytest.raises(StateError, match="has other features than the live snapshot"):
        await promoted(database, point, row.version)
    assert await promoted(database, point, row.version, rows=()) == 0
    serving = await point_row(database, point)
    assert serving.spec_hash == bytes.fromhex(loads(other).spec_hash)
    assert serving.spec.floor == 0.05


async def test_a_state_of_another_layout_serves_with_its_own_hash(database, point, monkeypatch):
    """So that loaders see the other encoding."""
    first = await point_row(database, point)
    monkeypatch.setattr(feature_map, "_CHANGED", dict.fromkeys(("text", "category", "number"), 99))
    newer = await declare(database, point[0], DOCUMENT, actor="test")
    assert newer.feature_hash != first.feature_hash
    assert await promoted(database, point, first.snapshot, rows=()) == 0
    serving = await point_row(database, point)
    assert (serving.snapshot, serving.feature_hash) == (first.snapshot, first.feature_hash)


async def test_a_declaration_that_changes_no_state_stays_in_force(database, point):
    row = await published(database, point, 0)
    rewarded = DOCUMENT.replace("weight: 1", "weight: 2")
    newer = await declare(database, point[0], rewarded, actor="test")
    assert newer.snapshot == "0.1.0"
    await promoted(database, point, row.version)
    assert (await point_row(database, point)).spec_hash == newer.spec_hash


async def test_rows_of_another_making_are_numbered_on(database, point):
    await learn(database, point, 3)
    row = await published(database, point, 1)
    async with connected(database, "worker", point[0]) as connection:
        times = await connection.fetch("SELECT at FROM update ORDER BY seq")
    updates = await log(database, point, "0.1.0")
    rows = [(update, time["at"]) for update, time in zip(updates, times, strict=True)]
    with pytest.raises(StateError, match=r"updates 2 to 3 of .* do not follow its last update 0"):
        await promoted(database, point, row.version, rows=rows[1:])
    again = [(update._replace(seq=n), at) for n, (update, at) in enumerate(rows[1:], 1)]
    assert await promoted(database, point, row.version, rows=again) == 2
    assert [one.seq for one in await log(database, point, row.version)] == [1, 2]


async def test_what_may_not_serve_is_refused(database, point):
    reserved = await frozen(database, point, 0)
    with pytest.raises(StateError, match="was never published"):
        await promoted(database, point, reserved.version)
    row = await published(database, point, 0)
    async with connected(database, "worker", point[0]) as connection:
        await retract(connection, point, row.version)
    with pytest.raises(StateError, match="was retracted"):
        await promoted(database, point, row.version)
    with pytest.raises(StateError, match="is already live"):
        await promoted(database, point, "0.1.0", rows=())
    with pytest.raises(StateError, match=r"no snapshot '4.4.4'"):
        await promoted(database, point, "4.4.4")
    with pytest.raises(StateError, match="decision point not found"):
        await promoted(database, (point[0], "no", "where"), "0.1.0")
    assert (await point_row(database, point)).snapshot == "0.1.0"


async def test_a_state_of_another_line_is_not_continued_blindly(database, point):
    await learn(database, point, 2)
    row = await published(database, point, 1)
    async with connected(database, "worker") as connection, connection.transaction():
        other = await published(database, point, 2)
        await hold_point(connection, point)
        await switch_snapshot(connection, point, other.version, 0)
    with pytest.raises(StateError, match=f"not a state of the live snapshot {other.version}"):
        await promoted(database, point, row.version)


async def test_the_one_before_serves_again_and_what_came_since_is_learned_anew(database, point):
    shared = await learn(database, point, 3)
    row = await published(database, point, 2)
    await promoted(database, point, row.version)
    since = await learn(database, point, 2)
    async with connected(database, "worker") as connection, connection.transaction():
        assert await take_back_snapshot(connection, point, "0.1.0") == 3
    serving = await point_row(database, point)
    assert (serving.snapshot, tuple(await learner(database, point))[1:3]) == ("0.1.0", ("0.1.0", 3))
    assert await queued(database, point) == {shared[2], *since}
    # And forth again: its log goes on where it ended.
    anew = await learn(database, point, 1)
    with pytest.raises(StateError, match="has 3 updates after it"):
        await promoted(database, point, row.version)
    async with connected(database, "worker") as connection, connection.transaction():
        await connection.execute("DELETE FROM work WHERE tenant = $1", point[0])
        assert await take_back_snapshot(connection, point, row.version) == 3
    assert await queued(database, point) == {shared[2], *anew}  # after what both begin with
    assert await learn(database, point, 1)
    assert [one.seq for one in await log(database, point, row.version)] == [1, 2, 3, 4]


async def test_a_pin_holds_a_number_until_it_is_taken_off(database, point):
    await learn(database, point, 5)
    assert (await point_row(database, point)).pinned_seq is None
    async with connected(database, "worker", point[0]) as connection:
        await pin_point(connection, point, 3)
    assert (await point_row(database, point)).pinned_seq == 3
    same = await declare(database, point[0], DOCUMENT.replace("weight: 1", "weight: 3"), actor="x")
    assert (same.snapshot, same.pinned_seq) == ("0.1.0", 3)
    assert await point_row(database, point) == same
    for seq in (-1, 6):
        async with connected(database, "worker", point[0]) as connection:
            with pytest.raises(InputError, match=f"to update {seq}; allowed are 0 to 5"):
                await pin_point(connection, point, seq)
    async with connected(database, "worker", point[0]) as connection:
        await pin_point(connection, point, None)
    assert (await point_row(database, point)).pinned_seq is None


async def unpinned(database, point):
    async with connected(database, "worker") as connection, connection.transaction():
        return await unpin_point(connection, point)


async def test_what_the_drift_guard_pinned_is_let_go_once(database, point):
    async with connected(database, "worker", point[0]) as connection:
        await pin_point(connection, point, 0)
    assert await unpinned(database, point)
    assert (await point_row(database, point)).pinned_seq is None
    assert not await unpinned(database, point)
    with pytest.raises(StateError, match="decision point not found: search/width"):
        await unpinned(database, (*point[:2], "width"))


async def test_what_a_rollout_froze_only_that_lets_go(database, point):
    await learn(database, point, 3)
    frozen_by = uuid4()
    async with connected(database, "worker", point[0]) as connection:
        await pin_point(connection, point, 2, rollout=frozen_by)
    row = await point_row(database, point)
    assert (row.pinned_seq, row.pinned_by) == (2, frozen_by)
    with pytest.raises(RolloutError, match=f"steersman rollout resume {frozen_by}"):
        await unpinned(database, point)
    assert await point_row(database, point) == row
    async with connected(database, "worker", point[0]) as connection:
        await pin_point(connection, point, None)
    assert not await unpinned(database, point)


async def test_who_is_forgotten_with_the_pin(database, point):
    async with connected(database, "worker", point[0]) as connection:
        await pin_point(connection, point, 0, rollout=uuid4())
    changed = await declare(database, point[0], DOCUMENT.replace("dim: 8", "dim: 9"), actor="x")
    assert (changed.pinned_seq, changed.pinned_by) == (None, None)
    assert await point_row(database, point) == changed
    async with connected(database, "worker", point[0]) as connection:
        await pin_point(connection, point, 0)
    assert await unpinned(database, point)


async def test_another_snapshot_takes_the_pin_off(database, point):
    await learn(database, point, 2)
    row = await published(database, point, 1)
    for change in ("promote", "declare"):
        async with connected(database, "worker", point[0]) as connection:
            await pin_point(connection, point, 1)
        if change == "promote":
            await promoted(database, point, row.version)
        else:
            changed = DOCUMENT.replace("dim: 8", "dim: 9")
            assert (await declare(database, point[0], changed, actor="x")).pinned_seq is None
        assert (await point_row(database, point)).pinned_seq is None


async def test_services_and_replicas_hear_of_it_once_it_is_committed(database, point):
    row = await published(database, point, 0)
    heard = asyncio.Queue()
    async with connected(database) as listener, connected(database, "worker") as connection:
        for channel in ("steersman_point", "steersman_update"):
            await listener.add_listener(channel, lambda *call: heard.put_nowait(call[2:]))
        async with connection.transaction():
            await promote_snapshot(connection, point, row.version)
            await asyncio.sleep(0.05)
            assert heard.empty()
        name = "/".join(map(str, point))
        told = {await asyncio.wait_for(heard.get(), 10) for _ in range(2)}
        assert told == {("steersman_point", name), ("steersman_update", name)}
        async with as_tenant(connection, point[0]):
            await pin_point(connection, point, 0)
        assert await asyncio.wait_for(heard.get(), 10) == ("steersman_point", name)


async def test_one_tenant_moves_nothing_of_another(database, point):
    mine = (await create_tenant(database, f"t-{uuid4().hex}", actor="test")).id
    own = await declared(database, mine)
    await learn(database, point, 2)
    theirs = await published(database, point, 1)
    before = await point_row(database, point)
    own_row = await published(database, own, 0)
    assert own_row.version == theirs.version
    assert await promoted(database, own, own_row.version) == 0  # none of their updates
    assert await log(database, own, own_row.version) == []
    async with connected(database, "worker", mine) as connection:
        assert await last_number(connection, point, "0.1.0") == 0
        with pytest.raises(StateError, match="decision point not found"):
            await pin_point(connection, point, 0)
    assert await point_row(database, point) == before
    async with connected(database, "worker", mine) as connection:
        changed = await connection.execute("UPDATE decision_point SET pinned_seq = 1")
        assert changed == "UPDATE 1"  # its own alone
    assert (await point_row(database, point)).pinned_seq is None
