"""Final checkpoints of a stopping learner: only of points that it still holds."""

from __future__ import annotations

import asyncio
import time

from steersman.db.erasure import erase, sweep
from steersman.db.tenants import create_tenant
from steersman.db.work_queue import due_work
from steersman.learning.learner import Claims, learn_batch
from steersman.learning.rebuild import rebuild
from steersman.learning.replica import StoredBases
from steersman.workers import learner as module
from steersman.workers.learner import LearnerSettings, run_learner
from tests.db.rows import connected
from tests.learning.test_claims import LOCKS, workers
from tests.learning.test_two_learners import row_time
from tests.learning.world import declared, nothing_due, point_of, rows, traffic


async def test_a_point_lost_while_an_idle_one_is_stored_ends_no_learner(database, tenant):
    other = await create_tenant(database, f"{tenant.name}-2", actor="test")
    points = []
    for each in (tenant, other):
        row = await declared(database, each.id)
        await traffic(database, row, 3)
        points.append((each.id, row.skill, row.point))
    async with workers(database, 2) as (work, locks):
        claims = Claims(locks, "we", 10.0)
        for point in points:
            claim = await claims.take(point)
            ids = (await due_work(work, row_time()))[point]
            await learn_batch(work, claim, ids, now=time.time())
            claim.used -= 2 * module._IDLE_S
        stop = asyncio.Event()
        settings = LearnerSettings()
        learner = module._Learner(stop, time.time, lambda _: None, settings, StoredBases())
        await asyncio.gather(learner._let_idle_go(work, claims), claims.fenced(points[1], "they"))
        assert claims.held == {}
        assert await locks.fetchval(LOCKS) == 0


async def test_a_former_holder_stores_no_state_of_what_was_erased(database, tenant):
    row = await declared(database, tenant.id)
    first, *_ = await traffic(database, row, 5)
    stop = asyncio.Event()
    # So long a lease that it does not hear of the new snapshot before it is told to stop.
    settings = LearnerSettings(poll_s=0.05, linger_s=0.0, lease_s=3600.0)
    learning = asyncio.create_task(run_learner(database, stop=stop, settings=settings))
    await nothing_due(database, running=learning)
    await erase(database, tenant.id, reason="asked", actor="test", decisions=[first.id])
    await nothing_due(database, running=learning)
    made = await rebuild(database, await point_of(database, tenant.id), actor="test")
    async with connected(database, "owner", tenant.id) as connection:
        assert (await sweep(connection))["update"] == 2  # that it was learned, and taken back
    stop.set()
    await learning
    kept = await rows(database, tenant.id, "SELECT DISTINCT snapshot FROM checkpoint")
    assert [each["snapshot"] for each in kept] == [made.snapshot]
