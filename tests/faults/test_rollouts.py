"""Rollouts under kill -9 and under load: no wrong share, the right snapshot, nobody turned away."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from contextlib import asynccontextmanager

import aiohttp
import pytest

from steersman.db.decisions import DecisionRow
from steersman.rollouts.units import place, position
from tests.api.shipping import Shipping
from tests.faults.checks import check_learning, check_live, check_promises, settled
from tests.faults.harness import POINT
from tests.faults.traffic import Traffic

UNITS = 300
STEPS = (("canary", 0.05), ("ab", 0.25), ("ab", 0.5), ("live", 0.95))
SETTLES_S = 5.0  # a change reaches a process within a second; this machine may be busy
PATIENT = POINT.replace("deadline_ms: 400", "deadline_ms: 5000")


class _OfUnits(Traffic):
    """Traffic of a few hundred users."""

    async def decide(self, *, keyed, **more):
        """Return a decision for one of them."""
        more.setdefault("unit", f"user-{self.rng.randrange(UNITS)}")
        return await super().decide(keyed=keyed, **more)


@asynccontextmanager
async def _traffic(made, access):
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield _OfUnits(session, lambda: made.urls, access.key)


@asynccontextmanager
async def _running(made):
    """Two services, a learner, and a version that has learned from some traffic."""
    access = await made.tenant("one", PATIENT)
    ships = Shipping(made.database, access.tenant, "one", made.home)
    for name in ("left", "right"):
        made.start_service(name, wait=False)
    for name in ("left", "right"):
        await asyncio.to_thread(made.wait_ready, name)
    made.start_learner()
    async with _traffic(made, access) as asking:
        async with asking.flowing(4):
            await asyncio.sleep(0.5)
        await settled(made.database, access)
        yield access, ships, asking


@pytest.mark.slow
async def test_services_and_learner_killed_at_every_change_serve_the_right_arms(made):
    rng = random.Random(5)
    async with _running(made) as (access, ships, asking):
        version = (await ships.publish()).version
        changes = [(0.0, 0.0, None)]
        async with asking.flowing(6):
            for turn, (stage, share) in enumerate((*STEPS, ("promoted", 1.0))):
                name = ("left", "right")[turn % 2]
                soon, learner_soon = rng.uniform(0.0, 0.2), rng.uniform(0.0, 0.2)
                killing = asyncio.create_task(_kill_soon(made, name, soon))
                learner = asyncio.create_task(_kill_learner_soon(made, learner_soon))
                changes.append(await _change(ships, changes, version, stage, share))
                await asyncio.gather(killing, learner)
                await asyncio.to_thread(made.wait_ready, name)
                await asyncio.sleep(1.0)
        await settled(made.database, access)
        await check_promises(made.database, access, asking.ledger)
        rows = await _rows(made.database, access)
        assert len(rows) > 300
        _check_rows(rows, changes, version)
        await check_learning(made.database, access)
        await check_live(made.database, access, asking)


async def _kill_soon(made, name, after_s):
    await asyncio.sleep(after_s)
    made.kill(name)
    made.start_service(name, wait=False)


async def _kill_learner_soon(made, after_s):
    await asyncio.sleep(after_s)
    made.kill("learner")
    made.start_learner()


async def _change(ships, changes, version, stage, share):
    begun, before = time.time(), changes[-1][2]
    if before is None:
        now = await ships.start(version, stage, share)
    elif stage == "promoted":
        await ships.promote(before)
        now = "promoted"
    else:
        now = await ships.move(before, stage=stage, share=share)
    return begun, time.time(), now


async def _rows(database, access):
    connection = await database.connect(None)
    try:
        found = await connection.fetch(
            "SELECT * FROM steersman.decision WHERE tenant = $1 AND p_kind = 'exact' ORDER BY at",
            access.tenant,
        )
    finally:
        await connection.close()
    return [DecisionRow(**row) for row in found]


def _check_rows(rows, changes, version):
    """Every row is as some state says that was in force when it was made, or just before."""
    seen = set()
    for row in rows:
        at = row.at.timestamp()
        ends = [done for _, done, _ in changes[1:]] + [float("inf")]
        states = [
            state
            for (start, _, state), end in zip(changes, ends, strict=True)
            if start - 0.5 <= at and end >= at - SETTLES_S
        ]
        told = (row.rollout, row.stage, row.arm, row.snapshot)
        fits = [state for state in states if told == _wanted(row, state, version)]
        assert fits, (told, at, changes)
        if row.rollout is not None:
            wanted_seq = 0 if row.arm == "candidate" else fits[0].control_seq
            # A request that came before a promotion and is drawn after it: the candidate learns on.
            learns_on = row.arm == "candidate" and "promoted" in states
            assert learns_on or row.update_seq == wanted_seq, (told, row.update_seq, at, changes)
        seen.add((row.stage, row.arm))
    assert {(stage, arm) for stage in ("ab", "live") for arm in ("control", "candidate")} <= seen


def _wanted(row, state, version):
    if state is None:
        return None, "live", "control", "0.1.0"
    if state == "promoted":
        return None, "live", "control", version
    unit = row.unit or str(row.id)
    placed = place(position(state.salt, unit), state.stage, min(state.share, 0.5), holdback=0.05)
    if placed.arm == "candidate":
        return str(state.id), state.stage, "candidate", version
    if placed.analysed:
        return str(state.id), state.stage, "control", "0.1.0"
    return None, "live", "control", "0.1.0"


@pytest.mark.slow
async def test_hot_reload_under_load_reaches_all_processes_and_turns_nobody_away(made):
    async with _running(made) as (access, ships, asking):
        versions = []
        for _ in range(3):
            versions.append((await ships.publish()).version)
            async with asking.flowing(4):
                await asyncio.sleep(0.3)
            await settled(made.database, access)
        assert len(set(versions)) == 3
        took, degraded = [], len(asking.ledger.degraded)
        async with asking.flowing(4):
            for version in (*versions, *versions):
                begun = await ships.serve(version)
                took += await asyncio.gather(
                    *(_until(asking, url, begun, snapshot=version) for url in asking.urls())
                )
        assert statistics.median(took) < 1.0, took
        assert max(took) < SETTLES_S, took
        assert asking.ledger.lost == 0
        assert len(asking.ledger.degraded) == degraded


@pytest.mark.slow
async def test_rollback_reaches_all_processes(made):
    async with _running(made) as (_, ships, asking):
        version = (await ships.publish()).version
        took = []
        for _ in range(3):
            rollout = await ships.start(version, "live", 0.95)
            async with asking.flowing(4):
                for url in asking.urls():
                    await _until(asking, url, time.monotonic(), arm="candidate")
                await ships.move(rollout, status="rolled_back", reason="a test")
                begun = time.monotonic()
                took += await asyncio.gather(
                    *(_until(asking, url, begun, arm="control", row=10) for url in asking.urls())
                )
        assert statistics.median(took) < 1.0, took
        assert max(took) < SETTLES_S, took
        assert asking.ledger.lost == 0


async def _until(asking, url, begun, *, row=1, **wanted):
    """Return when decisions of a process began to say so, several in a row, and went on to."""
    since, count = begun, 0
    while count < row:
        one = await asking.decide(keyed=False, url=url, unit=f"probe-{asking.rng.random()}")
        if one is not None and all(one[name] == value for name, value in wanted.items()):
            since = since if count else time.monotonic()
            count += 1
        else:
            count = 0
        assert time.monotonic() - begun < 20, (one, wanted)
        await asyncio.sleep(0.002)
    return max(0.0, since - begun)
