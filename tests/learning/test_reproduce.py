"""Snapshots are reproduced byte for byte from the log."""

import signal
import time
from uuid import uuid4

import pytest

from steersman.db.erasure import erase, sweep
from steersman.db.tenants import create_tenant
from steersman.errors import StateError
from steersman.learning.rebuild import rebuild
from steersman.platform.postgres.database import as_tenant
from steersman.points.state_bytes import unpack_state
from steersman.registry.snapshot import pack_snapshot
from steersman.snapshots.reproduce import reproduce
from tests.learning.processes import ended, learner, until
from tests.learning.shipping_world import promote_point, publish_point, snapshot_of
from tests.learning.world import (
    POLICIES,
    corrections,
    declared,
    learn_all,
    point_of,
    replica_of,
    rows,
    traffic,
)


async def published_bytes(database, tenant, version):
    _, state = await snapshot_of(database, tenant, version)
    return pack_snapshot(unpack_state(state))


@pytest.mark.parametrize("policy", POLICIES)
async def test_bytes_come_from_the_log_alone(database, signer, policy):
    tenant = await create_tenant(database, f"b-{time.time_ns()}", actor="test")
    row = await declared(database, tenant.id, policy=policy)
    decisions = await traffic(database, row, 15)
    await learn_all(database)
    await corrections(database, decisions)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant))
    await database_loses_checkpoints(database, tenant.id)
    again = await reproduce(database, tenant.id, "search", "depth", made.version)
    assert again == await published_bytes(database, tenant.id, made.version)
    assert len(again) == made.size


async def database_loses_checkpoints(database, tenant):
    await rows(database, tenant, "DELETE FROM checkpoint")


async def test_versions_of_a_long_line_come_from_its_beginning(database, tenant, signer):
    """Versions of a lineage, a promotion, a candidate and a rebuild."""
    row = await declared(database, tenant.id)
    decisions = await traffic(database, row, 12)
    await learn_all(database)
    made = [await publish_point(database, tenant.id, signer(tenant))]
    await traffic(database, row, 5, seed=1)
    await learn_all(database)
    await promote_point(database, tenant.id, made[-1].version)
    await corrections(database, decisions)
    await learn_all(database)
    made.append(await publish_point(database, tenant.id, signer(tenant)))
    made.append(await publish_point(database, tenant.id, signer(tenant), policy="lin_ts"))
    await promote_point(database, tenant.id, made[-1].version)
    await traffic(database, row, 5, seed=2)
    await learn_all(database)
    made.append(await publish_point(database, tenant.id, signer(tenant)))
    now = await point_of(database, tenant.id)
    await rebuild(database, now, exclude=f"id = '{decisions[0].id}'", actor="test")
    made.append(await publish_point(database, tenant.id, signer(tenant)))
    assert [one.version for one in made] == ["0.1.1", "0.1.2", "1.0.1", "1.0.2", "1.1.1"]
    await database_loses_checkpoints(database, tenant.id)
    for one in made:
        again = await reproduce(database, tenant.id, "search", "depth", one.version)
        assert again == await published_bytes(database, tenant.id, one.version), one.version


async def test_what_stands_on_erased_decisions_cannot_be_made_again(database, tenant, signer):
    row = await declared(database, tenant.id)
    decisions = await traffic(database, row, 12)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant))
    ids = [decisions[0].id]
    await erase(database, tenant.id, decisions=ids, reason="asked to", actor="test")
    await learn_all(database)
    again = await reproduce(database, tenant.id, "search", "depth", made.version)
    assert again  # the line still serves, so its log is whole
    await rebuild(database, await point_of(database, tenant.id), actor="test")
    await swept(database, tenant.id)
    with pytest.raises(StateError, match="erased"):
        await reproduce(database, tenant.id, "search", "depth", made.version)


async def test_what_the_serving_snapshot_stands_on_is_kept(database, tenant, signer):
    row = await declared(database, tenant.id)
    decisions = await traffic(database, row, 12)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant))
    await promote_point(database, tenant.id, made.version)
    ids = [decisions[0].id]
    await erase(database, tenant.id, decisions=ids, reason="asked to", actor="test")
    await swept(database, tenant.id)  # before the learner could take it back
    await learn_all(database)
    assert (await replica_of(database, tenant.id)).policy.updates == 11
    assert await reproduce(database, tenant.id, "search", "depth", made.version)


async def swept(database, tenant):
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant):
            await sweep(connection)
    finally:
        await connection.close()


async def test_an_unknown_version_is_refused(database, tenant):
    await declared(database, tenant.id)
    with pytest.raises(StateError, match=r"0\.7\.0"):
        await reproduce(database, tenant.id, "search", "depth", "0.7.0")
    with pytest.raises(StateError, match=r"0\.1\.0"):
        await reproduce(database, uuid4(), "search", "depth", "0.1.0")


@pytest.mark.slow
async def test_bytes_survive_killed_learners_a_rebuild_and_lost_checkpoints(
    database, tenant, signer
):
    row = await declared(database, tenant.id, policy="lin_ucb_forgets")
    published = []
    for seed in range(3):
        decisions = await traffic(database, row, 20, seed=seed)
        with learner(database, "killed", "SIGKILL", 5 + 9 * seed) as process:
            await until(lambda process=process: ended(process))
            assert process.returncode == -signal.SIGKILL
        await corrections(database, decisions)
        await learn_all(database)
        now = await point_of(database, tenant.id)
        await rebuild(database, now, exclude=f"id = '{decisions[0].id}'", actor="test")
        published.append(await publish_point(database, tenant.id, signer(tenant)))
    await database_loses_checkpoints(database, tenant.id)
    place = signer(tenant).place
    for made in published:
        again = await reproduce(database, tenant.id, "search", "depth", made.version)
        assert again == place.read(made.url).data
