"""Two learners per point with kills and pauses: nothing is lost or learned twice."""

import asyncio
import signal
import time
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from steersman.db.work_queue import due_work
from steersman.errors import FencedError
from steersman.learning.learner import Claims, learn_batch
from steersman.learning.verify import verify
from tests.learning.learning_process import LEASE_S
from tests.learning.processes import ended, learner, stopped, until
from tests.learning.world import (
    bits,
    corrections,
    declared,
    learn_all,
    nothing_due,
    point_of,
    replica_of,
    rows,
    traffic,
)

HOLDER = "SELECT holder, epoch FROM learner"


async def holder_of(database, tenant):
    return dict((await rows(database, tenant.id, HOLDER))[0])


async def holder_is(database, tenant, name):
    return (await holder_of(database, tenant))["holder"] == name


async def check(database, tenant, decisions):
    """Check that every decision was learned once and the state follows from its log."""
    found = await verify(database, await point_of(database, tenant.id))
    assert found.holds, found
    assert (found.decisions, found.pending) == (len(decisions), 0)
    assert found.not_learned == []
    first = "SELECT count(*), count(DISTINCT decision) FROM update WHERE weight_change = 1"
    assert tuple((await rows(database, tenant.id, first))[0]) == (len(decisions),) * 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
async def test_a_learner_killed_after_any_query_lost_nothing(database, tenant, seed):
    row = await declared(database, tenant.id, policy="lin_ucb_forgets")
    decisions = await traffic(database, row, 20, seed=seed)
    with learner(database, "killed", "SIGKILL", 1 + 3 * seed) as process:
        await until(lambda: ended(process))
        assert process.returncode == -signal.SIGKILL
    await corrections(database, decisions)
    await learn_all(database)
    await check(database, tenant, decisions)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 3])
async def test_a_paused_learner_is_taken_over_from_and_then_fenced(database, tenant, at):
    """Paused within a statement (1), and between two statements (3)."""
    row = await declared(database, tenant.id, policy="lin_ucb_forgets")
    decisions = await traffic(database, row, 20)
    with ExitStack() as processes:
        paused = processes.enter_context(learner(database, "paused", "SIGSTOP", at))
        await until(lambda: stopped(paused))
        other = processes.enter_context(learner(database, "other"))
        await nothing_due(database)
        took = await holder_of(database, tenant)
        assert took["holder"] == "other"
        paused.send_signal(signal.SIGCONT)
        await corrections(database, decisions)
        await asyncio.sleep(2 * LEASE_S)
        await nothing_due(database)
        # On a machine so busy that the other is not heard of for a lease, it is taken over from in
        # its turn: under a new epoch, as everybody.
        holds = await holder_of(database, tenant)
        assert holds == took or holds["epoch"] > took["epoch"]
        assert other.poll() is None
        assert paused.poll() is None
        other.kill()
        more = await traffic(database, row, 5, seed=9)
        await until(lambda: holder_is(database, tenant, "paused"))  # it is as good as any
        await nothing_due(database)
    await learn_all(database)  # what the killed one may have left
    await check(database, tenant, [*decisions, *more])


async def test_of_two_at_once_one_learns(database, tenant):
    row = await declared(database, tenant.id)
    decisions = await traffic(database, row, 40)
    await asyncio.gather(learn_all(database), learn_all(database))
    await check(database, tenant, decisions)
    assert bits((await replica_of(database, tenant.id)).policy)


async def test_what_the_former_holder_writes_is_refused(database, tenant):
    row = await declared(database, tenant.id)
    await traffic(database, row, 3)
    first, second, work = [await database.connect("worker") for _ in range(3)]
    point = (tenant.id, row.skill, row.point)
    ours, theirs = Claims(first, "we", 0.05), Claims(second, "they", 0.05)
    claim = await ours.take(point)
    assert claim.locked
    await asyncio.sleep(0.1)
    taken = await theirs.take(point)
    assert not taken.locked
    ids = (await due_work(work, row_time()))[point]
    with pytest.raises(FencedError, match="epoch"):
        await learn_batch(work, claim, ids, now=time.time())
    assert (await due_work(work, row_time()))[point] == ids
    await ours.keep()
    assert ours.held == {}
    await theirs.keep()
    assert taken.locked
    done = await learn_batch(work, taken, ids, now=time.time())
    assert (done.taken, done.updates) == (3, 3)
    for connection in (first, second, work):
        await connection.close()


async def test_a_learner_that_is_alive_is_left_alone(database, tenant):
    row = await declared(database, tenant.id)
    first, second = [await database.connect("worker") for _ in range(2)]
    point = (tenant.id, row.skill, row.point)
    ours, theirs = Claims(first, "we", 30.0), Claims(second, "they", 30.0)
    assert await ours.take(point)
    assert await theirs.take(point) is None
    assert theirs.elsewhere() == [point]
    await ours.give_up(point)
    theirs._elsewhere.clear()
    assert (await theirs.take(point)).epoch == 2
    for connection in (first, second):
        await connection.close()


def row_time():
    return datetime.now(UTC)
