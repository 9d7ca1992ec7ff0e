"""Learning while commits come late, learners stand still and clocks jump: each counts once."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import asynccontextmanager
from uuid import UUID

import numpy as np
import pytest

from steersman.db.decisions import log_decisions
from steersman.db.group_commit import GroupCommit
from steersman.db.packed_events import event_pipeline, log_events, log_packed_events
from steersman.db.secret import load_secret
from steersman.serving.decide import Decider
from steersman.serving.event_intake import Intake
from steersman.serving.replicas import Replicas
from steersman.snapshots.verified_bases import VerifiedBases
from steersman.wire import id_time, new_id
from steersman.workers.learner import LearnerSettings, run_learner
from tests.db.rows import event
from tests.faults.checks import check_learning, check_promises, settled
from tests.faults.traffic import traffic


async def _late_events(made, access, decisions, rng):
    """Write events in transactions that commit in another order than they began."""

    async def write(chosen):
        connection = await made.database.connect("app")
        rows = [
            event(
                access.tenant,
                UUID(decision["decision_id"]),
                id=f"late-{new_id().hex}",
                type="task_result",
                outcomes={"success": rng.choice((0.0, 0.5, 1.0))},
                body=None,
            )
            for decision in chosen
        ]
        async with connection.transaction():
            await log_events(connection, rows)
            await asyncio.sleep(rng.uniform(0.0, 1.0))
        await connection.close()

    async def one_after_the_other(part):
        for place in range(0, len(part), 3):
            await write(part[place : place + 3])

    await asyncio.gather(*[one_after_the_other(decisions[n::6]) for n in range(6)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lease_s", "pause_s", "rounds"),
    [
        pytest.param(1.0, 2.5, 4, id="2.5 s"),
        pytest.param(10.0, 30.0, 1, id="30 s", marks=pytest.mark.nightly),
    ],
)
async def test_learners_that_are_paused_lose_and_double_nothing(made, lease_s, pause_s, rounds):
    rng = random.Random(4)
    access = await made.tenant("one")
    await asyncio.to_thread(made.start_service)
    for name in ("left", "right"):
        made.start_learner(name, lease_s=lease_s)
    async with traffic(made, access) as asking:
        decisions = [await asking.decide(keyed=False) for _ in range(120)]
        late = asyncio.create_task(_late_events(made, access, decisions, rng))
        async with asking.flowing(clients=3, pause_s=0.05):
            # One that is paused while it prepares a statement is given six leases, not one.
            await _learned(made.database, at_least=100)
            for _ in range(rounds):
                holder = await _holder(made.database)
                made.signal(holder, signal.SIGSTOP)
                await asyncio.sleep(pause_s)
                assert await _holder(made.database) != holder
                made.signal(holder, signal.SIGCONT)
                await asyncio.sleep(0.5)
        await late
        await settled(made.database, access)
        await check_promises(made.database, access, asking.ledger)
        await check_learning(made.database, access)


async def _learned(database, *, at_least):
    connection = await database.connect(None)
    try:
        until = time.monotonic() + 30
        while await connection.fetchval("SELECT count(*) FROM update") < at_least:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
    finally:
        await connection.close()


async def _holder(database):
    connection = await database.connect(None)
    try:
        until = time.monotonic() + 20
        while not (name := await connection.fetchval("SELECT holder FROM learner")):
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        return name
    finally:
        await connection.close()


class _Clock:
    """The time of day as a machine tells it whose clock is set now and then."""

    def __init__(self):
        self.offset_s = 0.0

    def __call__(self):
        return time.time() + self.offset_s


@asynccontextmanager
async def _parts(made, clock):
    """Return what decides and what takes in, on a clock of ours."""
    secret = load_secret(made.home)
    pool = await made.database.pool("app")
    replicas = Replicas(made.database, pool, VerifiedBases(made.home))
    decisions = GroupCommit(lambda: made.database.connect("app"), log_decisions, lambda row: row.id)
    events = GroupCommit(
        event_pipeline(made.database).connect, log_packed_events, lambda row: row.name, lanes=2
    )
    for part in (replicas, decisions, events):
        part.start()
    rng = np.random.default_rng(0)
    try:
        yield (
            Decider(replicas, decisions, pool, secret, rng=rng, clock=clock),
            Intake(replicas, decisions, events, secret, clock=clock),
        )
    finally:
        await decisions.close()
        await events.close()
        await replicas.close()
        await pool.close()


@pytest.mark.slow
async def test_clocks_that_jump_lose_and_double_nothing(made):
    access = await made.tenant("one")
    clock, rng = _Clock(), random.Random(6)
    stop = asyncio.Event()
    settings = LearnerSettings(poll_s=0.2, batch=5)
    learning = asyncio.create_task(
        run_learner(made.database, stop=stop, clock=clock, settings=settings)
    )
    ids = []
    async with _parts(made, clock) as (deciding, intake):
        for offset_s in (0, -3600, 5, -86_400 * 3, 300, -1, 0):
            clock.offset_s = offset_s
            decided_at = clock()
            body = {"skill": "search", "decision": "depth", "context": {"intent": "a"}}
            answers = [
                await deciding.decide(access.tenant, {**body, "deadline_ms": 9000})
                for _ in range(10)
            ]
            assert {answer.logged for answer in answers} == {True}
            assert all(abs(id_time(a.decision_id) - decided_at) < 30 for a in answers)
            ids += [answer.decision_id for answer in answers]
            events = [
                {
                    "event_id": f"e-{new_id().hex}",
                    "decision_id": str(rng.choice(ids[-20:])),
                    "type": "feedback.submit",
                    "outcomes": {"success": rng.choice((0, 1))},
                }
                for _ in range(10)
            ]
            for _ in range(2):
                results = await intake.take(access.tenant, events)
                assert {result.status for result in results} <= {"stored", "replayed"}
    clock.offset_s = 0.0
    assert len(set(ids)) == 70
    await settled(made.database, access)
    stop.set()
    await learning
    await check_learning(made.database, access)
