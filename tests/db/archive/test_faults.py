"""Compaction killed at seeded steps and moments: readers see every row exactly once.

`die_at.py` kills itself at a step of the destination; here a process is also killed from outside.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from steersman.db.archive.compaction import compact
from steersman.db.archive.destination import Directory
from steersman.db.archive.query import query
from steersman.errors import StoreError

DIE_AT = Path(__file__).with_name("die_at.py")


@contextmanager
def killable(past, cold, day):
    """Run `die_at.py` for as many compactions as there are kills."""
    command = [sys.executable, DIE_AT, past.database.url, cold.root, past.tenant, day]
    process = subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield process
        process.stdin.close()
        assert process.wait() == 0


async def compact_and_die(process, *, step=0, seconds=0.0):
    """Compact in a process that dies; return its exit status."""
    process.stdin.write(f"{step} {seconds}\n")
    process.stdin.flush()
    return int(await asyncio.to_thread(process.stdout.readline))


async def counted(past, cold):
    """Return the number of visible rows and of distinct rows per kind."""
    keys = {"decision": "id", "event": "id", "reward": "decision || revision"}
    counts = ", ".join(
        f"(SELECT (count(*), count(DISTINCT {key})) FROM {name}) AS {name}"
        for name, key in keys.items()
    )
    row = (await query(past.database, cold, past.tenant, f"SELECT {counts}")).to_pylist()[0]
    return {name: tuple(pair.values()) for name, pair in row.items()}


async def whole(past, cold):
    """Check that every row is visible exactly once."""
    expected = {name: (len(keys), len(keys)) for name, keys in past.keys().items()}
    assert await counted(past, cold) == expected


async def finish(past, cold, days):
    """Run to the end; no leftovers remain."""
    await compact(past.database, cold, tenants=[past.tenant], until=days[-1])
    await whole(past, cold)
    again = await compact(past.database, cold, tenants=[past.tenant], until=days[-1])
    assert (again.written, again.removed) == ((), 0)
    parts = [path for path in cold.root.rglob("*") if path.is_file()]
    assert len(parts) == again.unchanged


@pytest.mark.nightly
@pytest.mark.slow
async def test_killed_at_every_step_the_next_run_completes(past, cold, days):
    statuses = []
    with killable(past, cold, days[-1]) as process:
        for step in range(1, 15):
            # News for every day, so that every process publishes, fetches and removes.
            late = [row for day in days for row in await past.add(day, 2)]
            if step % 3 == 0:
                await past.erase(late[:2])
            statuses.append(await compact_and_die(process, step=step))
            await whole(past, cold)
    assert set(statuses) <= {0, -signal.SIGKILL}
    assert statuses.count(-signal.SIGKILL) > 10
    await finish(past, cold, days)


@pytest.mark.slow
async def test_killed_at_any_moment_the_next_run_completes(past, cold, days):
    rng = random.Random(3)
    for day in days:
        await past.add(day, 300)
    statuses = []
    with killable(past, cold, days[-1]) as process:
        for _ in range(12):
            statuses.append(await compact_and_die(process, seconds=0.3 * rng.random()))
            await whole(past, cold)
            await past.add(rng.choice(days), 2)
    assert set(statuses) <= {0, -signal.SIGALRM}
    assert statuses.count(-signal.SIGALRM) > 3
    await finish(past, cold, days)


async def test_what_a_killed_process_left_half_written_never_counts(past, cold, days):
    await past.add(days[0], 5)
    await compact(past.database, cold, tenants=[past.tenant], until=days[-1])
    (cold.scratch() / "compaction").mkdir(exist_ok=True)
    (cold.scratch() / "compaction" / "draft.parquet").write_bytes(b"PAR1 half")
    await past.add(days[0], 1)
    await finish(past, cold, days)


class Late(Directory):
    """Destination where another process publishes the same generation first."""

    def publish(self, file, path):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)  # of a run that was thought dead
        super().publish(file, path)


async def test_a_run_never_replaces_what_another_has_published(past, cold, days):
    await past.add(days[0], 2)
    with pytest.raises(StoreError, match="File exists"):
        await compact(past.database, Late(cold.root), tenants=[past.tenant], until=days[-1])
    await whole(past, cold)
    await finish(past, cold, days)


class Full(Directory):
    """Full disk."""

    def publish(self, file, path):
        raise OSError(28, "No space left on device")


async def test_a_full_disk_is_told_and_leaves_nothing_half(past, cold, days):
    await past.add(days[0], 2)
    with pytest.raises(StoreError, match="No space left"):
        await compact(past.database, Full(cold.root), tenants=[past.tenant], until=days[-1])
    await whole(past, cold)
    await finish(past, cold, days)


async def test_readers_and_compactions_do_not_disturb_each_other(past, cold, days):
    for day in days:
        await past.add(day, 30)
    stop = asyncio.Event()

    async def compacting():
        while not stop.is_set():
            await compact(past.database, cold, tenants=[past.tenant], until=days[-1])

    async def reading():
        for _ in range(12):
            rows, different = (await counted(past, cold))["decision"]
            assert rows == different
            assert rows >= 90

    task = asyncio.create_task(compacting())
    reader = asyncio.create_task(reading())
    for number in range(8):
        await past.add(days[number % 3], 1)
    await reader
    stop.set()
    await task
    await finish(past, cold, days)
