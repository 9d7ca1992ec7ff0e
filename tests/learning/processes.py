"""Test processes that are killed or paused, and waits for conditions."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.forked import Process, run_module

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager

    from steersman.platform.postgres.database import Database


@contextmanager
def running(module: str, *arguments: Any) -> Iterator[Process]:
    """Run a module as a process; kill its process group in the end."""
    process = run_module(module, *arguments)
    try:
        yield process
    finally:
        process.kill_group()


def learner(
    database: Database, holder: str, signal_name: str = "none", at: int = 0
) -> AbstractContextManager[Process]:
    """Run a learner process."""
    return running("tests.learning.learning_process", database.url, holder, signal_name, at)


async def until(
    condition: Callable[[], Awaitable[bool]], within_s: float = 60.0, *, every_s: float = 0.05
) -> None:
    """Poll an async condition until it holds."""
    deadline = time.monotonic() + within_s
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(every_s)


async def stopped(process: Process) -> bool:
    return process.is_stopped


async def ended(process: Process) -> bool:
    return process.poll() is not None
