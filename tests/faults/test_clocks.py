"""The clocks of a whole installation are set while it works: all together, or those of one part.

A step is an hour at most, six times the window of a reward. After one forward an event may be too
late for its decision, by the clock that stamped both: it is stored, and `check_learning` knows that
it is not learned. Every other promise holds whatever the clocks say.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from steersman.db.keys import create_key, revoke_key
from steersman.db.secret import load_secret
from steersman.wire import id_time
from tests.faults.checks import check_learning, check_live, check_promises, settled
from tests.faults.clocks import Clocks
from tests.faults.harness import Access, installation
from tests.faults.test_kills import SAMPLED
from tests.faults.traffic import traffic

SERVICES, LEARNERS, SERVER = "services", "learners", "server"
ALL = SERVICES, LEARNERS, SERVER
STEPS = [
    *((ALL, offset_s) for offset_s in (-5, -3600, 300, -1, 0)),
    *(((SERVER,), offset_s) for offset_s in (-3600, 300, 0)),
    *(((LEARNERS,), offset_s) for offset_s in (300, 0)),
    *(((SERVICES,), offset_s) for offset_s in (300, 0, -3600)),
]
_SOON_S = 10.0


@contextmanager
def _stepped(cluster):
    """Return an installation and its clocks; PostgreSQL runs, by its own."""
    home = Path(tempfile.mkdtemp(prefix="steersman-faults-"))
    clocks = Clocks(home, ALL)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in clocks.environment(SERVER).items():
            patch.setenv(name, value)
        with installation(cluster, home) as made:
            patch.undo()
            yield made, clocks


async def _start(made, clocks):
    """Start two services and two learners."""
    made.environment = clocks.environment(SERVICES)
    for name in ("north", "south"):
        made.start_service(name, wait=False)
    made.environment = clocks.environment(LEARNERS)
    for name in ("left", "right"):
        made.start_learner(name)
    for name in ("north", "south"):
        await asyncio.to_thread(made.wait_ready, name)
    for name in ("left", "right"):  # what the others' clocks say is asked
        maps = Path(f"/proc/{made.processes[name].pid}/maps")
        assert f"{LEARNERS}.offset" in await asyncio.to_thread(maps.read_text)


async def _learn_one(connection, asking):
    """Ask and report once, and wait until it is learned; return the decision's id."""
    until = time.monotonic() + _SOON_S
    while (decision := await asking.decide(keyed=True))["degraded"]:
        assert time.monotonic() < until, "the fallback answers"
    await asking.report(decision, {"success": 1})
    named = UUID(decision["decision_id"])
    while not await connection.fetchval("SELECT count(*) FROM update WHERE decision = $1", named):
        assert time.monotonic() < until, "learning has stopped"
        await asyncio.sleep(0.02)
    return named


async def _check_clocks(connection, named, offsets):
    """What was made just now has the time that its maker's clock tells."""
    true_s = time.time()
    assert abs(id_time(named) - true_s - offsets[SERVICES]) < _SOON_S
    told = (await connection.fetchval("SELECT clock_timestamp()")).timestamp()
    assert abs(told - true_s - offsets[SERVER]) < 1


async def _kill_learner(made, clocks, connection, asking):
    """Kill the one that learns and set the server's clock back: its last word is of an hour on."""
    holder = await connection.fetchval("SELECT holder FROM learner")
    made.kill(holder)
    clocks.step(-3600, SERVER)
    await _learn_one(connection, asking)
    assert await connection.fetchval("SELECT holder FROM learner") != holder
    made.start_learner(holder)
    clocks.step(0, SERVER)


@pytest.mark.slow
async def test_promises_hold_whatever_the_clocks_say(cluster):
    offsets = dict.fromkeys(ALL, 0)
    with _stepped(cluster) as (made, clocks):
        access = await made.tenant("one", SAMPLED)
        await _start(made, clocks)
        connection = await made.database.connect(None)
        async with traffic(made, access) as asking:
            async with asking.flowing(clients=6):
                for groups, offset_s in STEPS:
                    await asyncio.sleep(0.5)
                    clocks.step(offset_s, *groups)
                    offsets |= dict.fromkeys(groups, offset_s)
                    named = await _learn_one(connection, asking)
                    await _check_clocks(connection, named, offsets)
                await _kill_learner(made, clocks, connection, asking)
            await connection.close()
            assert len(asking.ledger.logged) > 20 * len(STEPS)
            assert not asking.ledger.lost
            # The services stay an hour behind: nothing that holds may depend on it.
            await settled(made.database, access)
            await check_promises(made.database, access, asking.ledger)
            await check_learning(made.database, access)
            await check_live(made.database, access, asking)


async def _statuses(made, key):
    """Return what each service answers to an empty question with a key."""
    async with traffic(made, key) as asking:
        answers = [await asking.post("/v1/decide", {}, url=url) for url in made.urls]
    return {status for status, _ in answers}


async def _refused(made, key):
    until = time.monotonic() + 2
    while await _statuses(made, key) != {401}:
        assert time.monotonic() < until, "a revoked key holds"
        await asyncio.sleep(0.02)


async def _revoked(made, tenant):
    """Return a key that was used, revoked and then refused."""
    row, text = await create_key(
        *(made.database, tenant),
        secret=load_secret(made.home),
        name="short",
        role="operator",
        actor="test",
    )
    key = Access(tenant, text)
    assert await _statuses(made, key) == {422}
    await revoke_key(made.database, tenant, row.id, actor="test")
    await _refused(made, key)
    return key


@pytest.mark.slow
async def test_revoked_keys_are_refused_whatever_the_clocks_say(cluster):
    with _stepped(cluster) as (made, clocks):
        access = await made.tenant("one")
        await _start(made, clocks)
        keys = [await _revoked(made, access.tenant)]
        for groups in ((SERVICES,), (SERVER,)):
            clocks.step(-3600, *groups)
            keys.append(await _revoked(made, access.tenant))
            await asyncio.sleep(1.2)  # a service remembers for a second that a key is unknown
            for key in keys:
                await _refused(made, key)
            clocks.step(0)
