"""Drift guard: a lineage outside the bounds of its base is pinned, with an incident."""

import time

from steersman.db.incidents import incidents_of
from steersman.learning.drift import check_drift
from steersman.learning.held_out import HeldOutReport
from steersman.platform.postgres.database import as_tenant
from tests.learning.shipping_world import lessons, promote_point, publish_point
from tests.learning.world import declared, learn_all, point_of, rows, traffic

NOW = 1_800_000_000.0


async def incidents(database, tenant):
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            return await incidents_of(connection, tenant.id)
    finally:
        await connection.close()


async def promoted(database, tenant, signer, *, n=130):
    row = await declared(database, tenant.id)
    await traffic(database, row, n)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant))
    await promote_point(database, tenant.id, made.version)
    return row


async def test_a_line_within_its_bounds_goes_on(database, tenant, signer):
    row = await promoted(database, tenant, signer)
    assert await check_drift(database, row, now=NOW) == []
    await traffic(database, row, 40, seed=1)
    await learn_all(database)
    assert await check_drift(database, row, now=NOW) == []
    assert (await point_of(database, tenant.id)).pinned_seq is None


async def test_another_scale_sends_it_back_once(database, tenant, signer):
    row = await promoted(database, tenant, signer)
    await traffic(database, row, 40, seed=1)
    await learn_all(database)
    await rows(
        database,
        tenant.id,
        "INSERT INTO update SELECT tenant, skill, point, snapshot, seq + 40, gen_random_uuid(), "
        "revision, (SELECT array_agg(e * 5) FROM unnest(x) AS e), key, action, reward_change, "
        "weight_change, weight, bucket, traceparent, at FROM update WHERE snapshot = '0.1.1'",
    )
    await rows(database, tenant.id, "UPDATE learner SET seq = seq + 40")
    (reason,) = await check_drift(database, row, now=NOW)
    assert "largest eigenvalue" in reason
    point = await point_of(database, tenant.id)
    assert (point.snapshot, point.pinned_seq) == ("0.1.1", 0)
    (incident,) = await incidents(database, tenant)
    assert (incident.kind, incident.at.timestamp()) == ("drift", NOW)
    assert reason in incident.summary
    assert await check_drift(database, row, now=NOW) == []  # it is pinned already
    assert len(await incidents(database, tenant)) == 1
    (act,) = await rows(database, tenant.id, "SELECT * FROM audit WHERE action = 'point.pin'")
    assert act["actor"] == "drift guard"


async def test_a_line_that_learned_what_is_wrong_goes_back(database, tenant, signer):
    """Inverted rewards of a broken reporter are learned; correct ones show the loss."""
    row = await declared(database, tenant.id, policy="lin_ts")
    await lessons(database, row, 1500)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant))
    await promote_point(database, tenant.id, made.version)
    await rows(
        database,
        tenant.id,
        "INSERT INTO update SELECT tenant, skill, point, '0.1.1', seq, gen_random_uuid(), "
        "revision, x, key, action, 1 - 2 * (action = 'deep')::int, weight_change, weight * 5, "
        "bucket + 9, traceparent, at FROM update WHERE snapshot = '0.1.0'",
    )
    await rows(database, tenant.id, "UPDATE learner SET seq = 1500")
    await lessons(database, row, 3500, seed=4)
    await learn_all(database)
    (reason,) = await check_drift(database, row, now=NOW)
    assert "held-out decisions" in reason
    assert (await point_of(database, tenant.id)).pinned_seq == 0


async def test_where_nothing_is_signed_there_is_nothing_to_go_back_to(database, tenant):
    row = await declared(database, tenant.id)
    await traffic(database, row, 10)
    await learn_all(database)
    assert await check_drift(database, row, now=time.time()) == []


def test_only_what_is_shown_to_be_worse_is_worse():
    assert HeldOutReport("0.1.0", high=-0.02).is_worse
    assert not HeldOutReport("0.1.0", high=-0.005).is_worse
    assert not HeldOutReport("0.1.0").is_worse
