"""The embedded server after it was killed: started again, whatever its process id has become."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from steersman.errors import StoreError
from steersman.platform.postgres import embedded
from steersman.platform.postgres.embedded import is_stuck
from tests.clusters import open_database
from tests.faults.harness import children, runs


@pytest.mark.slow
async def test_a_server_that_was_killed_a_moment_ago_is_started_again(made):
    for _ in range(3):
        made.kill_postgres()
        connection = await open_database(made.home).connect("app")
        await connection.close()


@pytest.mark.slow
def test_a_process_that_is_no_server_is_not_taken_for_one(made, monkeypatch):
    (postmaster, *_) = made.postgres()
    made.kill_postgres()
    while Path(f"/proc/{postmaster}").exists():  # as a zombie, until its parent has heard
        time.sleep(0.01)
    owner = (made.home / "postgres" / "data").stat().st_uid
    other = subprocess.Popen(["/bin/sleep", "60"], user=owner if os.geteuid() == 0 else None)
    pid_file = made.home / "postgres" / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(other.pid), *lines[1:], ""]))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(embedded, "_START_S", 0.5)
            with pytest.raises(StoreError, match="no server answers"):
                open_database(made.home)
    finally:
        other.kill()
        other.wait()
    assert open_database(made.home).server.started


@pytest.mark.slow
async def test_a_server_that_waits_for_a_recovery_that_nobody_does_is_started_again(made):
    """It hears of the start and of the end of its recovery together, which it takes for one."""
    until = time.monotonic() + 60
    made_so, rows = False, 0
    while not made_so:
        assert time.monotonic() < until, "its recovery never failed unheard"
        connection = await open_database(made.home).connect(None)
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (n int); CHECKPOINT")
        await connection.execute("INSERT INTO kept VALUES (1)")
        rows += 1
        name = await connection.fetchval("SELECT pg_relation_filepath('kept')")
        file = made.home / "postgres" / "data" / name
        file.chmod(0)  # so that redo fails
        made_so = _crash_and_hear_late(made.postgres()[0])
        file.chmod(0o600)
    assert is_stuck(made.home / "postgres" / "data")
    started = time.monotonic()
    assert open_database(made.home).server.started
    assert time.monotonic() - started < embedded._START_S / 2
    connection = await open_database(made.home).connect(None)
    assert await connection.fetchval("SELECT count(*) FROM kept") == rows
    await connection.close()


def _crash_and_hear_late(postmaster):
    """Kill a part of the server, and let it hear of its recovery only when that has failed."""
    (part, *_) = [child for child in _children(postmaster) if b"checkpointer" in _title(child)]
    os.kill(part, signal.SIGKILL)
    until = time.monotonic() + 5.0
    with suppress(OSError):  # it has ended before it was stopped
        while not (recovers := _recovering(postmaster)):
            if time.monotonic() > until:  # it failed unseen: unheard too, or the server is gone
                return runs(postmaster)
        os.kill(postmaster, signal.SIGSTOP)
        with suppress(OSError):
            for _ in range(200):
                if not runs(recovers):
                    break
                time.sleep(0.01)
        os.kill(postmaster, signal.SIGCONT)
        time.sleep(1.0)
        return runs(postmaster)
    return False


def _recovering(postmaster):
    return next((one for one in _children(postmaster) if b"startup" in _title(one)), None)


def _children(pid):
    """As most kernels list them, which is faster than to look at each process."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if Path(f"/proc/{pid}").exists() and not listed.exists():
        return children(pid)
    return [int(one) for one in listed.read_text().split()]


def _title(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
