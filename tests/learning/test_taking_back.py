"""Return to the previous snapshot: the learner catches up on missed decisions."""

import numpy as np
import pytest

from steersman.db.promotion import take_back_snapshot
from steersman.learning.verify import verify
from tests.db.rows import connected
from tests.learning.shipping_world import promote_point, publish_point
from tests.learning.world import (
    corrections,
    declared,
    learn_all,
    point_of,
    replica_of,
    traffic,
)


async def taken_back(database, tenant, version):
    async with connected(database, "worker") as connection, connection.transaction():
        await take_back_snapshot(connection, (tenant, "search", "depth"), version)
    await learn_all(database)
    assert (await point_of(database, tenant)).snapshot == version


@pytest.mark.parametrize("candidate", [{}, {"policy": "lin_ts"}, {"dim": 16}])
async def test_it_learns_what_came_since(database, tenant, signer, candidate):
    row = await declared(database, tenant.id)
    first = await traffic(database, row, 20)
    await learn_all(database)
    made = await publish_point(database, tenant.id, signer(tenant), **candidate)
    await traffic(database, row, 5, seed=1)
    await learn_all(database)
    await promote_point(database, tenant.id, made.version)
    served = await point_of(database, tenant.id)
    second = await traffic(database, served, 10, seed=2)
    await corrections(database, [*first[:6], *second])
    await learn_all(database)
    await taken_back(database, tenant.id, "0.1.0")
    found = await verify(database, await point_of(database, tenant.id))
    assert (found.holds, found.not_learned, found.pending) == (True, [], 0)
    assert (await replica_of(database, tenant.id)).policy.updates == 35
    # The same data in another order: the same sums, but for rounding.
    states = [(await replica_of(database, tenant.id)).policy.state()]
    if not candidate:
        await taken_back(database, tenant.id, made.version)
        states.append((await replica_of(database, tenant.id)).policy.state())
        for name in states[0].keys() - {"meta"}:
            np.testing.assert_allclose(states[0][name], states[1][name], rtol=1e-9, atol=1e-9)
