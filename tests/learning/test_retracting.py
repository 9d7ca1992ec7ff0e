"""Retraction: the live version is replaced by the last good one, with an incident."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from steersman.db.derived_snapshots import hold_point, last_update
from steersman.db.incidents import incidents_of
from steersman.db.promotion import promote_snapshot, unpin_point
from steersman.db.rollout_transitions import move_rollout, start_rollout
from steersman.errors import RolloutError, StateError
from steersman.platform.postgres.database import as_tenant
from steersman.snapshots.retract import retract_version
from tests.db.published import published
from tests.learning.world import declared, learn_all, point_of, traffic

POINT = ("search", "depth")
AT = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def acting(database, tenant):
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant.id):
            yield connection
    finally:
        await connection.close()


@pytest.fixture
def point(tenant):
    return (tenant.id, *POINT)


async def lined(database, tenant, point, *lengths):
    """Learn, and publish states after given numbers of updates; return their versions."""
    await traffic(database, await declared(database, tenant.id), max(lengths))
    await learn_all(database)
    return [(await published(database, point, length)).version for length in lengths]


async def serve(database, tenant, point, version):
    async with acting(database, tenant) as connection:
        await promote_snapshot(connection, point, version, rows=())


async def taken_back(database, tenant, point, version, **options):
    async with acting(database, tenant) as connection:
        return await retract_version(
            connection,
            point,
            version,
            **{"actor": "ann", "reason": "a bot", "now": AT, "take_back": True, **options},
        )


async def test_the_newest_of_its_line_that_was_signed_before_it_serves(database, tenant, point):
    one, two, three, later = await lined(database, tenant, point, 2, 4, 6, 8)
    await serve(database, tenant, point, three)
    done = await taken_back(database, tenant, point, three)
    assert (done.serves, done.row.retracted_at is not None) == (two, True)
    row = await point_of(database, tenant.id)
    assert (row.snapshot, row.pinned_seq, row.pinned_by) == (two, 0, None)
    assert (await taken_back(database, tenant, point, two)).serves == one
    assert (await taken_back(database, tenant, point, one)).serves == "0.1.0"
    assert (await taken_back(database, tenant, point, later)).serves is None  # it does not serve
    async with acting(database, tenant) as connection:
        kinds = [incident.kind for incident in await incidents_of(connection, tenant.id)]
        assert kinds == ["retracted"] * 3
        assert await unpin_point(connection, point)


async def test_it_is_not_what_was_rolled_back_nor_what_sees_otherwise(database, tenant, point):
    one, harmful, three = await lined(database, tenant, point, 2, 4, 6)
    async with acting(database, tenant) as connection:
        await hold_point(connection, point)
        row = await begun(connection, point, harmful)
        await move_rollout(connection, row, row.epoch, now=AT, status="rolled_back")
    await serve(database, tenant, point, three)
    assert (await taken_back(database, tenant, point, three)).serves == one


async def begun(connection, point, candidate):
    return await start_rollout(
        connection,
        point,
        candidate=candidate,
        control="0.1.0",
        control_seq=await last_update(connection, point),
        stage="canary",
        share=0.05,
        salt="s",
        plan={},
        now=AT,
    )


async def test_without_one_the_line_before_it_serves(database, tenant, point):
    (first,) = await lined(database, tenant, point, 3)
    await serve(database, tenant, point, first)
    await traffic(database, await point_of(database, tenant.id), 4, seed=1)
    await learn_all(database)
    second = (await published(database, point, 2, line=first)).version
    await serve(database, tenant, point, second)
    done = await taken_back(database, tenant, point, second)
    assert done.serves == first  # what its line began with
    await serve_again(database, tenant, point)


async def serve_again(database, tenant, point):
    """Learn a retracted version's state further in the live lineage."""
    await learn_all(database)
    async with acting(database, tenant) as connection:
        assert await last_update(connection, point) > 0


async def test_while_a_rollout_is_under_way_it_is_ended_first(database, tenant, point):
    one, two = await lined(database, tenant, point, 2, 4)
    async with acting(database, tenant) as connection:
        await hold_point(connection, point)
        row = await begun(connection, point, two)
    with pytest.raises(StateError, match=f"steersman rollout rollback {row.id}"):
        await taken_back(database, tenant, point, two)
    async with acting(database, tenant) as connection:
        await move_rollout(connection, row, row.epoch, now=AT, status="aborted")
    await serve(database, tenant, point, one)
    async with acting(database, tenant) as connection:
        await hold_point(connection, point)
        fresh = await published_control(connection, point, two, one)
    with pytest.raises(RolloutError, match=f"{fresh.id} of search/depth"):
        await taken_back(database, tenant, point, one)
    assert (await point_of(database, tenant.id)).snapshot == one


async def published_control(connection, point, candidate, control):
    return await start_rollout(
        connection,
        point,
        candidate=candidate,
        control=control,
        control_seq=0,
        stage="canary",
        share=0.05,
        salt="s",
        plan={},
        now=AT,
    )


async def test_what_serves_is_kept_unless_it_is_to_be_taken_back(database, tenant, point):
    (one,) = await lined(database, tenant, point, 2)
    await serve(database, tenant, point, one)
    with pytest.raises(StateError, match=r"it is live; add --take-back"):
        await taken_back(database, tenant, point, one, take_back=False)
    for wrong in ("0.1.0", "9.9.9"):
        with pytest.raises(StateError):
            await taken_back(database, tenant, point, wrong)
    assert (await point_of(database, tenant.id)).pinned_seq is None
