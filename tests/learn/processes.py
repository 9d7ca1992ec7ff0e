"""Processes of tests that are killed and paused, and waiting for what they do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager

    from steersman.store import Database


@contextmanager
def running(module: str, *arguments: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module as a process of its own, and kill it in the end with all that it started."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "src"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def learner(
    database: Database, holder: str, signal_name: str = "none", at: int = 0
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run a learner as a process of its own."""
    return running("tests.learn.learning_process", database.url, holder, signal_name, at)


async def until(condition: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> None:
    """Wait until an async condition holds."""
    deadline = time.monotonic() + within_s
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def stopped(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process is stopped by a signal."""
    pid, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)  # noqa: ASYNC222 (it does not wait)
    return pid == process.pid and os.WIFSTOPPED(status)


async def ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended."""
    return process.poll() is not None
