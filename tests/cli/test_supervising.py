"""Children that are kept running: what keeps them from it, and what comes after the end."""

import asyncio
import sys
import time
from types import SimpleNamespace

import pytest

from steersman.cli import supervisor as supervising
from steersman.cli.supervisor import Child, Supervisor
from steersman.platform.retry import Backoff

LIVES = "import sys; sys.stdin.read()"
DIES = "raise SystemExit(3)"


@pytest.fixture
def programs(monkeypatch):
    """Let children run a line of Python instead of the command."""
    popen, started = supervising.subprocess.Popen, []

    def start(command, **options):
        process = popen([sys.executable, "-c", command[3]], **options)
        started.append(process)
        return process

    monkeypatch.setattr(supervising, "subprocess", SimpleNamespace(
        Popen=start, PIPE=supervising.subprocess.PIPE,
        TimeoutExpired=supervising.subprocess.TimeoutExpired,
    ))  # fmt: skip
    return started


async def until(condition, within_s=20.0):
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


def test_a_child_that_cannot_be_started_now_is_started_later(programs, tmp_path, monkeypatch):
    told, child = [], Child("one", [LIVES])
    supervisor = Supervisor([child], tmp_path / "logs", told.append)
    (tmp_path / "logs").write_text("in the way")

    async def work():
        stop = asyncio.Event()
        running = asyncio.ensure_future(supervisor.run(stop))
        await until(lambda: told)
        (tmp_path / "logs").unlink()
        await until(lambda: child.process is not None)
        stop.set()
        await running

    asyncio.run(work())
    assert told[0].startswith("one cannot start: ")
    assert child.process.returncode is not None
    assert len(programs) == 1


def test_children_are_kept_running_though_nobody_listens(programs, tmp_path):
    def say(_):
        raise BrokenPipeError

    child = Child("one", [DIES])
    supervisor = Supervisor([child], tmp_path / "logs", say)

    async def work():
        stop = asyncio.Event()
        running = asyncio.ensure_future(supervisor.run(stop))
        await until(lambda: child.restarts >= 2)
        stop.set()
        await running

    asyncio.run(work())
    assert len(programs) >= 3


def test_a_child_that_waits_to_be_started_again_is_not_when_all_are_stopped(
    programs, tmp_path, monkeypatch
):
    monkeypatch.setattr(supervising, "_BACKOFF", Backoff(first_s=0.5, longest_s=10.0))
    mark = tmp_path / "begun"
    again = f"import pathlib, time; begun = pathlib.Path({str(mark)!r}); "
    again += "begun.exists() and time.sleep(20); begun.touch(); raise SystemExit(3)"
    slow = "import signal, time; signal.signal(15, lambda *_: time.sleep(1) or exit(0)); "
    slow += "print(1, flush=True); time.sleep(60)"
    children = [Child("first", [again], stops_first=True), Child("second", [slow])]
    supervisor = Supervisor(children, tmp_path / "logs", lambda _: None)

    async def work():
        stop = asyncio.Event()
        running = asyncio.ensure_future(supervisor.run(stop))
        log = tmp_path / "logs" / "second.log"
        await until(lambda: log.exists() and log.read_text() == "1\n" and mark.exists())
        await until(lambda: children[0].process.poll() is not None)
        stop.set()
        await running

    asyncio.run(work())
    assert len(programs) == 2
