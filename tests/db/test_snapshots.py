"""Published versions: reserved once, published once, retracted for good."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from steersman.db.derived_snapshots import hold_point
from steersman.db.promotion import promote_snapshot
from steersman.db.snapshots import (
    FrozenState,
    find_snapshot,
    mark_published,
    reserve_snapshot,
    retract,
    snapshots_of,
    store_spec,
)
from steersman.db.tenants import create_tenant
from steersman.db.updates import base_state
from steersman.errors import StateError
from steersman.points.policy_factory import initial_policy
from steersman.points.state_bytes import pack_state, unpack_state
from steersman.spec.loader import loads
from steersman.wire import new_id
from tests.db.published import declared, found, frozen, learn, published
from tests.db.rows import connected
from tests.db.test_points import DOCUMENT
from tests.kept import run


@pytest.fixture
def point(database, tenant):
    """Return a declared point."""
    return run(declared(database, tenant.id))


async def test_a_state_gets_a_version_and_is_published_under_it(database, point):
    await learn(database, point, 3)
    row = await frozen(database, point, 2)
    assert (row.version, row.parent, row.line, row.line_seq) == ("0.1.1", "0.1.0", "0.1.0", 2)
    assert (row.reason, row.algorithm, row.samples) == ("published", "lin_ucb", 2)
    assert (row.published_at, row.is_available) == (None, False)
    async with connected(database, "worker", point[0]) as connection:
        done = await mark_published(connection, point, row.version, {"size": 3})
    assert done.is_available
    assert done.description == {"size": 3}
    async with connected(database, "worker", point[0]) as connection:
        again = await mark_published(connection, point, row.version, {"size": 4})
        assert again == done
        listed = await snapshots_of(connection, point)
        state = await base_state(connection, point, row.version)
    assert [one.version for one in listed] == ["0.1.0", "0.1.1"]
    assert listed[1] == done
    assert state == pack_state(initial_policy(loads(DOCUMENT)).state())


async def test_a_publisher_that_was_stopped_goes_on_with_the_same_version(database, point):
    await learn(database, point, 2)
    first = await frozen(database, point, 2)
    assert await frozen(database, point, 2) == first
    done = await published(database, point, 2)
    assert done.version == first.version
    assert await frozen(database, point, 2) == done
    # Another state, declaration or place is another version.
    other = initial_policy(loads(DOCUMENT))
    other.learn([1.0] * 8, "deep", 1.0)
    versions = [
        (await frozen(database, point, 1)).version,
        (await frozen(database, point, 2, state=pack_state(other.state()))).version,
        (await frozen(database, point, 2, document=DOCUMENT.replace("0.02", "0.05"))).version,
        (await frozen(database, point, 2, document=DOCUMENT.replace("lin_ucb", "lin_ts"))).version,
    ]
    assert versions == ["0.1.2", "0.1.3", "0.2.0", "1.0.0"]


async def test_two_publishers_of_the_same_state_agree(database, point):
    await learn(database, point, 1)
    rows = await asyncio.gather(*(frozen(database, point, 1) for _ in range(5)))
    assert {row.version for row in rows} == {"0.1.1"}


async def test_a_retracted_version_is_never_given_out_again(database, point):
    await learn(database, point, 1)
    first = await published(database, point, 1)
    async with connected(database, "worker", point[0]) as connection:
        gone = await retract(connection, point, first.version)
        assert (gone.is_available, gone.published_at) == (False, first.published_at)
        assert await retract(connection, point, first.version) == gone
    second = await frozen(database, point, 1)
    assert second.version == "0.1.2"


async def test_what_serves_is_not_retracted(database, point):
    row = await published(database, point, 0)
    async with connected(database, "worker") as connection, connection.transaction():
        await promote_snapshot(connection, point, row.version)
    async with connected(database, "worker", point[0]) as connection:
        with pytest.raises(StateError, match="it is live; add --take-back"):
            await retract(connection, point, row.version)
        with pytest.raises(StateError, match=r"no published snapshot '0.1.0'"):
            await retract(connection, point, "0.1.0")  # it was never published


async def test_what_does_not_fit_is_refused(database, point):
    with pytest.raises(StateError, match=r"has no snapshot '9.9.9'"):
        await frozen(database, point, 0, line="9.9.9")
    async with connected(database, "worker") as connection, connection.transaction():
        await hold_point(connection, point)
        with pytest.raises(StateError, match=r"has no snapshot '7.0.0'"):
            await find_snapshot(connection, point, "7.0.0")
        with pytest.raises(StateError, match=r"no unpublished snapshot '0.1.0'"):
            await mark_published(connection, point, "0.1.0", {})
    row = await frozen(database, point, 0)
    one = await found(database, point, row.version)
    assert one == row


async def test_a_version_that_is_taken_is_refused(database, point):
    state = FrozenState(
        line="0.1.0",
        line_seq=0,
        spec_hash=bytes.fromhex(loads(DOCUMENT).spec_hash),
        feature_hash=bytes(32),
        state=pack_state(initial_policy(loads(DOCUMENT)).state()),
        algorithm="lin_ucb",
        samples=0,
    )
    async with connected(database, "worker") as connection, connection.transaction():
        await hold_point(connection, point)
        with pytest.raises(StateError, match=r"already has a snapshot 0.1.0"):
            await reserve_snapshot(connection, point, state, lambda taken: next(iter(taken)))


async def test_what_the_line_excluded_stays_excluded(database, point):
    barred, left_out = new_id(), new_id()
    async with connected(database, "worker", point[0]) as connection:
        await connection.execute(
            "INSERT INTO excluded (tenant, skill, point, snapshot, decision) "
            "VALUES ($1, $2, $3, '0.1.0', $4)",
            *(*point, barred),
        )
    row = await frozen(database, point, 0, left_out=[left_out])
    async with connected(database, "worker", point[0]) as connection:
        rows = await connection.fetch(
            "SELECT decision FROM excluded WHERE snapshot = $1", row.version
        )
    assert {one["decision"] for one in rows} == {barred, left_out}


async def test_the_state_of_a_version_cannot_be_changed(database, point):
    row = await published(database, point, 0)
    for role in ("app", "worker"):
        for change in ("state = ''", "sha256 = ''", "line_seq = 7", "spec_hash = ''", "id = 'x'"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with connected(database, role, point[0]) as connection:
                    await connection.execute(f"UPDATE snapshot SET {change}")
    async with connected(database, "app", point[0]) as connection:
        assert unpack_state(await base_state(connection, point, row.version))


async def test_one_tenant_knows_nothing_of_anothers_snapshots(database, point):
    mine = (await create_tenant(database, f"t-{uuid4().hex}", actor="test")).id
    own = await declared(database, mine)
    theirs = await published(database, point, 0)
    async with connected(database, "worker", mine) as connection:
        assert await snapshots_of(connection, point) == []
        assert [row.version for row in await snapshots_of(connection, own)] == ["0.1.0"]
        for attempt in (
            lambda: find_snapshot(connection, point, theirs.version),
            lambda: mark_published(connection, point, theirs.version, {}),
            lambda: retract(connection, point, theirs.version),
        ):
            with pytest.raises(StateError, match=r"has no ((un)?published )?snapshot"):
                await attempt()
    # Their version is as free for this one as any other.
    assert (await published(database, own, 0)).version == theirs.version
    async with connected(database, "worker", mine) as connection:
        change = "UPDATE snapshot SET retracted_at = now() WHERE tenant = $1 RETURNING 1"
        assert await connection.fetch(change, point[0]) == []
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(database, "worker", mine) as connection:
            await store_spec(connection, point, bytes(32), "x")
    assert await found(database, point, theirs.version) == theirs
