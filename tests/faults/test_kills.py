"""kill -9, twenty times each, under load: nothing that was promised is lost or doubled."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.faults.checks import check_learning, check_live, check_promises, settled
from tests.faults.harness import POINT
from tests.faults.traffic import traffic

KILLS = 20
# Its probabilities change with every update: those of LinUCB are the floor's, whatever it knows.
SAMPLED = POINT.replace("{algorithm: lin_ucb, alpha: 0.5, ridge: 1.0}", "{algorithm: lin_ts}")


async def _check(made, access, asking):
    await settled(made.database, access)
    await check_promises(made.database, access, asking.ledger)
    await check_learning(made.database, access)
    await check_live(made.database, access, asking)


@pytest.mark.slow
async def test_services_that_are_killed_keep_their_promises(made):
    rng = random.Random(1)
    access = await made.tenant("one", SAMPLED)
    for name in ("left", "right"):
        made.start_service(name, wait=False)
    for name in ("left", "right"):
        await asyncio.to_thread(made.wait_ready, name)
    made.start_learner()
    async with traffic(made, access) as asking:
        async with asking.flowing():
            for kill in range(KILLS):
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                name = ("left", "right")[kill % 2]
                made.kill(name)
                made.start_service(name, wait=False)
                await asyncio.to_thread(made.wait_ready, name)
        ledger = asking.ledger
        assert len(ledger.logged) > 5 * KILLS
        assert ledger.lost > 0
        await _check(made, access, asking)


@pytest.mark.slow
async def test_learners_that_are_killed_learn_everything_once(made):
    rng = random.Random(3)
    access = await made.tenant("one", SAMPLED)
    await asyncio.to_thread(made.start_service)
    for name in ("left", "right"):
        made.start_learner(name)
    async with traffic(made, access) as asking:
        async with asking.flowing():
            for kill in range(KILLS):
                await asyncio.sleep(rng.uniform(0.2, 1.5))
                name = ("left", "right")[kill % 2]
                made.kill(name)
                made.start_learner(name)
        assert len(asking.ledger.outcomes) > 5 * KILLS
        await _check(made, access, asking)


@pytest.mark.slow
async def test_a_server_that_is_killed_loses_nothing_that_was_promised(made):
    rng = random.Random(2)
    access = await made.tenant("one", SAMPLED)
    await asyncio.to_thread(made.start_service)
    made.start_learner()
    async with traffic(made, access) as asking:
        async with asking.flowing():
            for _ in range(KILLS):
                await asyncio.sleep(rng.uniform(0.3, 1.2))
                await asyncio.to_thread(made.kill_postgres)
                await asyncio.sleep(rng.uniform(0.0, 0.5))
                await asyncio.to_thread(made.start_postgres)
        ledger = asking.ledger
        assert len(ledger.logged) > 5 * KILLS
        assert ledger.unknown
        assert ledger.degraded
        await _check(made, access, asking)
