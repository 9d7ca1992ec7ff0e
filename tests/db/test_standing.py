"""Snapshot states: which are kept and which are removed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.erasure import count_erased, erase, sweep
from steersman.db.promotion import promote_snapshot
from steersman.db.retention import keep
from steersman.db.rollout_transitions import move_rollout
from steersman.db.snapshot_references import thin_states
from steersman.db.snapshots import describe_reserved, mark_published, retract, snapshots_of
from steersman.db.tenants import create_tenant
from steersman.db.updates import base_state
from steersman.errors import RolloutError, StateError
from tests.db.published import declared, found, frozen, learn, published
from tests.db.rows import connected, decision
from tests.db.test_points import DOCUMENT
from tests.db.test_rollouts import start
from tests.kept import run

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def point(database, tenant):
    """Return a declared point."""
    return run(declared(database, tenant.id))


async def promoted(database, point, version):
    async with connected(database, "worker") as connection, connection.transaction():
        await promote_snapshot(connection, point, version)


async def forget(database, point, *decisions):
    return await erase(database, point[0], decisions=decisions, reason="asked to", actor="me")


async def swept(database, point):
    async with connected(database, "owner", point[0]) as connection:
        return await sweep(connection)


async def stored(database, point):
    async with connected(database, "app", point[0]) as connection:
        return {row.version for row in await snapshots_of(connection, point) if row.is_stored}


async def test_published_states_that_learned_of_it_are_named_and_go(database, point):
    decisions = await learn(database, point, 6)
    before = await published(database, point, 2)
    after = await published(database, point, 5)
    done = await forget(database, point, decisions[3])
    assert done.published == (("search", "depth", after.version),)
    assert await swept(database, point) == {"snapshot": 1}
    assert await stored(database, point) == {"0.1.0", before.version}
    gone = await found(database, point, after.version)
    assert not gone.is_available
    async with connected(database, "app", point[0]) as connection:
        with pytest.raises(StateError, match="was removed"):
            await base_state(connection, point, after.version)
    with pytest.raises(StateError, match="no longer has a state"):
        await promoted(database, point, after.version)
    with pytest.raises(RolloutError, match=f"the state of {after.version} or 0.1.0 was removed"):
        await start(database, point, after.version)
    assert await swept(database, point) == {}
    async with connected(database, "worker", point[0]) as connection:
        await retract(connection, point, after.version)
    assert (await forget(database, point, decisions[3])).published == ()


async def test_what_a_serving_line_stands_on_stays_until_another_serves(database, point):
    decisions = await learn(database, point, 4)
    first = await published(database, point, 3)
    await promoted(database, point, first.version)
    decisions += await learn(database, point, 2)
    second = await published(database, point, 3)
    await promoted(database, point, second.version)
    done = await forget(database, point, decisions[0], decisions[3])
    # Directly, or through what it was made from.
    assert [version for *_, version in done.published] == [first.version, second.version]
    assert await swept(database, point) == {}
    async with connected(database, "owner", point[0]) as connection:
        assert len(await connection.fetch("SELECT FROM update WHERE snapshot = '0.1.0'")) == 4
    # A declaration that begins anew stands on none of them.
    await declare(database, point[0], DOCUMENT.replace("dim: 8", "dim: 9"), actor="me")
    assert await swept(database, point) == {"snapshot": 2, "update": 3}
    assert await stored(database, point) == {"0.1.0", "0.2.0"}


async def test_the_arms_of_a_rollout_stay_while_it_is_under_way(database, point):
    decisions = await learn(database, point, 2)
    row = await published(database, point, 2)
    rollout = await start(database, point, row.version)
    await forget(database, point, decisions[1])
    assert await swept(database, point) == {}
    async with connected(database, "worker", point[0]) as connection:
        await move_rollout(connection, rollout, 0, now=NOW, status="rolled_back")
    assert await swept(database, point) == {"snapshot": 1}


async def test_old_states_that_never_served_make_room(database, point):
    await learn(database, point, 9)
    served = await published(database, point, 1)
    await promoted(database, point, served.version)
    await learn(database, point, 1)
    back = await published(database, point, 5)
    await promoted(database, point, back.version)
    rows = [await published(database, point, seq) for seq in range(5)]
    rollout = await start(database, point, rows[0].version, control=back.version)
    async with connected(database, "owner", point[0]) as connection:
        assert await thin_states(connection, 2) == 2
        assert await thin_states(connection, 2) == 0
    kept = {"0.1.0", served.version, back.version, rows[0].version, rows[3].version}
    assert await stored(database, point) == {*kept, rows[4].version}
    async with connected(database, "worker", point[0]) as connection:
        await move_rollout(connection, rollout, 0, now=NOW, status="aborted")
    # Retention does it for every tenant.
    assert (await keep(database, days=36_500, snapshots=1)).snapshots >= 2
    assert await stored(database, point) == {
        "0.1.0",
        served.version,
        back.version,
        rows[4].version,
    }


async def test_nothing_of_another_tenant_counts_or_goes(database, point):
    mine = (await create_tenant(database, f"t-{uuid4().hex}", actor="test")).id
    own = await declared(database, mine)
    theirs = await learn(database, point, 2)
    row = await published(database, point, 2)
    assert (await published(database, own, 0)).version == row.version
    assert (await forget(database, own, *theirs)).published == ()
    assert await swept(database, own) == {}
    async with connected(database, "owner", mine) as connection:
        assert await thin_states(connection, 1) == 0
    assert await stored(database, point) == {"0.1.0", row.version}


async def trained(database, point, state, **grown):
    """Publish a policy without updates, such as trees."""
    row = await frozen(database, point, 0, state=state)
    described = {"samples": 0, "evidence": {"trained": True, **grown}}
    async with connected(database, "worker", point[0]) as connection:
        return (await mark_published(connection, point, row.version, described)).version


async def test_what_was_trained_is_named_for_what_it_may_have_been_trained_from(
    database, tenant, point
):
    elsewhere = await declare(
        database, tenant.id, DOCUMENT.replace("decision: depth", "decision: width"), actor="test"
    )
    made = [decision(tenant.id) for _ in range(3)]
    other = decision(tenant.id, point=elsewhere.point)
    async with connected(database) as connection:
        await log_decisions(connection, [*made, other])
    ids = sorted(one.id for one in made)
    grown = {"grown": {"oldest": str(ids[0]), "newest": str(ids[1])}}
    told = await trained(database, point, b"told", **grown)
    untold = await trained(database, point, b"untold")
    named = [("search", "depth", told), ("search", "depth", untold)]
    assert list((await forget(database, point, ids[1])).published) == named
    assert (await forget(database, point, ids[2])).published == (named[1],)
    assert (await forget(database, point, other.id)).published == ()
    # Nothing that serves stands on them, so their states go; their rows stay.
    assert (await swept(database, point))["snapshot"] == 2
    assert await stored(database, point) == {"0.1.0"}
    await asyncio.sleep(0.002)  # ids tell milliseconds
    after = decision(tenant.id)
    async with connected(database) as connection:
        await log_decisions(connection, [after])
    assert (await forget(database, point, after.id)).published == ()


async def test_what_waits_to_be_signed_is_named_and_never_signed(database, tenant, point):
    made = decision(tenant.id)
    async with connected(database) as connection:
        await log_decisions(connection, [made])
    row = await frozen(database, point, 0, state=b"trees")
    described = {"samples": 0, "evidence": {"trained": True}}
    async with connected(database, "worker", point[0]) as connection:
        await describe_reserved(connection, point, row.version, described)
        assert await count_erased(connection, [made.id]) == 0
    assert row.version in await stored(database, point)
    named = (("search", "depth", row.version),)
    assert (await forget(database, point, made.id)).published == named
    assert row.version not in await stored(database, point)  # without a state nobody signs it
    async with connected(database, "worker", point[0]) as connection:
        assert await count_erased(connection, [made.id]) == 1
