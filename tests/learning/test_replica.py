"""Replicas: identical bits on every path, and no gaps."""

import numpy as np
import pytest

from steersman.db.updates import updates_after
from steersman.errors import StateError
from steersman.learning.replica import catch_up, load, state_at
from steersman.platform.postgres.database import as_tenant
from steersman.workers.learner import LearnerSettings
from tests.learning.world import (
    POLICIES,
    bits,
    corrections,
    declared,
    learn_all,
    replica_of,
    rows,
    traffic,
)

SETTINGS = LearnerSettings(batch=6, checkpoint_every=8, poll_s=0.05, linger_s=0.0)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_replica_that_followed_has_the_bits_of_one_that_loaded(database, tenant, policy):
    row = await declared(database, tenant.id, policy=policy)
    followed = await replica_of(database, tenant.id)
    connection = await database.connect("app")
    decisions = await traffic(database, row, 30)
    for step in range(3):
        await learn_all(database, settings=SETTINGS)
        async with as_tenant(connection, tenant.id):
            await catch_up(connection, followed)
            loaded = await load(connection, row)
        assert loaded.stored > 0
        assert loaded.seq == followed.seq
        assert bits(loaded.policy) == bits(followed.policy)
        await corrections(database, decisions[step:])
    await learn_all(database)
    await connection.close()


@pytest.mark.parametrize("policy", ["lin_ucb_forgets", "beta"])
async def test_any_past_state_can_be_rebuilt(database, tenant, policy):
    row = await declared(database, tenant.id, policy=policy)
    past = await replica_of(database, tenant.id)
    await traffic(database, row, 25)
    await learn_all(database, settings=SETTINGS)
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        for update in await updates_after(connection, past.point, "0.1.0", 0):
            past.apply([update])
            at = await state_at(connection, row, "0.1.0", update.seq)
            assert bits(at) == bits(past.policy)
        with pytest.raises(StateError, match="has 25 updates; got 26"):
            await state_at(connection, row, "0.1.0", 26)
        with pytest.raises(StateError, match=r"no snapshot '9\.9\.9'"):
            await state_at(connection, row, "9.9.9", 1)
    await connection.close()


async def test_gaps_and_repetitions_are_refused(database, tenant):
    row = await declared(database, tenant.id)
    replica = await replica_of(database, tenant.id)
    await traffic(database, row, 5)
    await learn_all(database)
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        updates = await updates_after(connection, replica.point, "0.1.0", 0)
    await connection.close()
    with pytest.raises(StateError, match="is at update 2 and got 4; expected 3"):
        replica.apply([*updates[:2], updates[3]])
    with pytest.raises(StateError, match="got 1; expected 3"):
        replica.apply(updates)
    with pytest.raises(StateError, match="does not fit"):
        replica.apply([updates[2]._replace(action="unknown")])
    replica.apply(updates[2:])
    assert bits(replica.policy) == bits((await replica_of(database, tenant.id)).policy)


async def test_what_decides_is_what_is_stored(database, tenant):
    await declared(database, tenant.id)
    replica = await replica_of(database, tenant.id)
    x, key = replica.encode({"intent": "2", "length": 0.1})
    assert key is None
    assert np.array_equal(x, x.astype(np.float32))


async def test_a_point_declared_anew_is_not_followed_but_loaded(database, tenant):
    await declared(database, tenant.id)
    replica = await replica_of(database, tenant.id)
    new = await declared(database, tenant.id, dim=20)
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        assert await catch_up(connection, replica) == 0
        assert replica.policy.dim == 12
        assert (await load(connection, new)).policy.dim == 20
    await connection.close()


async def test_old_checkpoints_go(database, tenant):
    row = await declared(database, tenant.id)
    await traffic(database, row, 40)
    await learn_all(database, settings=SETTINGS)
    kept = await rows(database, tenant.id, "SELECT seq FROM checkpoint ORDER BY seq")
    assert len(kept) == 3
    assert kept[-1][0] == 40
