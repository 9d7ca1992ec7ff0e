"""Process supervisor: restarts children that die, and stops all of them in order.

Each child leads its own process group, so that Ctrl-C reaches only this process and the supervisor
controls the order of stopping. The standard input of each child is a pipe from this process. If
this process is killed, the pipe closes and the child stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from steersman.platform.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_BACKOFF = Backoff(first_s=0.2, longest_s=10.0)
_STEADY_S = 30.0
"""After this run time, a death is not a failed start: the restart pauses start again."""
_LARGEST_LOG = 16 << 20


@dataclass(slots=True)
class Child:
    """A supervised process.

    Attributes:
        name: name in messages and of the log file.
        arguments: arguments of the command ``steersman``.
        stops_first: whether it stops before the others. Services stop before the processes that
            they depend on.
        process: the running or last process.
        restarts: number of restarts.
    """

    name: str
    arguments: Sequence[str]
    stops_first: bool = False
    process: subprocess.Popen[bytes] | None = None
    restarts: int = field(default=0)


class Supervisor:
    """Supervisor of child processes.

    Children start in the given order. `logs` is the folder of their log files. `say` receives
    messages for people. A child that does not stop within `patience_s` seconds is killed.
    """

    def __init__(
        self,
        children: Sequence[Child],
        logs: Path,
        say: Callable[[str], None],
        *,
        patience_s: float = 8.0,
    ) -> None:
        self.children = tuple(children)
        self._logs = logs
        self._say = say
        self._patience_s = patience_s
        self._stopping = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Start all children, restart those that die, and stop all in order when `stop` is set."""
        tasks = [asyncio.ensure_future(self._keep(child)) for child in self.children]
        try:
            await stop.wait()
        finally:
            self._stopping.set()
            for first in (True, False):
                await self._stop([c for c in self.children if c.stops_first == first])
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, child: Child) -> None:
        failures = 0
        # A child that starts after the order to stop would never be stopped.
        while not self._stopping.is_set():
            begun = time.monotonic()
            said = await self._run(child)
            if self._stopping.is_set():
                return
            failures = 1 if time.monotonic() - begun > _STEADY_S else failures + 1
            pause_s = _BACKOFF.pause_s(failures)
            log = self._logs / f"{child.name}.log"
            self._tell(f"{child.name} {said}; restart in {pause_s:g} s; see {log}")
            await asyncio.sleep(pause_s)
            child.restarts += 1

    async def _run(self, child: Child) -> str:
        """Run a child until it ends; return the reason of its end."""
        try:
            process = child.process = self._start(child)
        except OSError as error:  # out of memory, processes or disk space: try again later
            return f"cannot start: {error}"
        status = await asyncio.to_thread(process.wait)
        if not self._stopping.is_set():
            _end_group(process)  # a killed service leaves its worker processes behind
            _let_go(process)
        return _told(status)

    def _tell(self, text: str) -> None:
        """Send a message to people. A closed output must not stop the supervisor."""
        with suppress(OSError):
            self._say(text)

    def _start(self, child: Child) -> subprocess.Popen[bytes]:
        with self._log(child.name).open("ab") as log:
            return subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, "-m", "steersman.cli", *child.arguments, "--supervised"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        self._logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = self._logs / f"{name}.log"
        if log.exists() and log.stat().st_size > _LARGEST_LOG:
            log.replace(log.with_suffix(".log.1"))
        return log

    async def _stop(self, children: Sequence[Child]) -> None:
        running = [(c.name, c.process) for c in children if c.process is not None]
        for _, process in running:
            process.terminate()
        endings = [asyncio.to_thread(_end, process, self._patience_s) for _, process in running]
        for (name, _), in_time in zip(running, await asyncio.gather(*endings), strict=True):
            if not in_time:
                self._tell(f"{name} did not stop in {self._patience_s:g} s and was killed")


def stop_with_parent() -> None:
    """Send SIGTERM to this process when its parent is gone."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` on SIGTERM and SIGINT; a second SIGINT has its usual effect."""
    loop = asyncio.get_running_loop()

    def enough() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, enough)


def _end(process: subprocess.Popen[bytes], patience_s: float) -> bool:
    """Wait for the end of a terminated process; return whether it ended in time."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    else:
        return True
    finally:
        _end_group(process)
        process.wait()
        _let_go(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the processes that a child left behind: they are in its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _told(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was killed by {signal.Signals(-status).name}"
