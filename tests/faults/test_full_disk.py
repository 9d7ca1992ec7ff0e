"""The disk of the store is full: nothing acknowledged is lost, and all goes on with room again."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from steersman.errors import StoreError
from tests.faults.checks import check_learning, check_promises, settled
from tests.faults.harness import installation, small_disk
from tests.faults.traffic import traffic


@pytest.fixture
def small(cluster):
    """Return an installation whose store has a disk of 200 MB."""
    home = Path(tempfile.mkdtemp(prefix="steersman-faults-"))
    with small_disk(home / "postgres", 200), installation(cluster, home) as one:
        yield one


@pytest.mark.slow
async def test_a_full_disk_loses_nothing_that_was_acknowledged(small):
    access = await small.tenant("one")
    await asyncio.to_thread(small.start_service)
    small.start_learner()
    async with traffic(small, access) as asking:
        async with asking.flowing(clients=6):
            await asyncio.sleep(0.5)
            for seed in range(2):
                filler = small.home / "postgres" / f"filler-{seed}"
                _fill(filler)
                if seed == 1:  # no room for the log either: the server gives up
                    await _want_log_files(small.database)
                await _asked_until(asking, lambda answer: answer["degraded"])
                await asyncio.sleep(0.5)
                filler.unlink()
                await asyncio.to_thread(small.start_postgres)
                await _asked_until(asking, lambda answer: answer["logged"] is True)
        await settled(small.database, access)
        await check_promises(small.database, access, asking.ledger)
        await check_learning(small.database, access)


async def _want_log_files(database):
    """Make the server need new files of its log until it gets none."""
    with suppress(OSError, StoreError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection = await database.connect(None)
        for _ in range(30):
            await connection.execute("SELECT pg_switch_wal(), txid_current()")
            await connection.execute("SELECT pg_logical_emit_message(true, 'test', 'x')")
        pytest.fail("there was room for the log")


async def _asked_until(asking, enough):
    """Ask until ten answers are as they should be now."""
    found, until = 0, time.monotonic() + 40
    while found < 10:
        assert time.monotonic() < until, "nobody noticed what happened to the disk"
        answer = await asking.decide(keyed=False)
        found += answer is not None and enough(answer)


def _fill(path):
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return
