"""Publish lock: one process at a time writes a decision point into the registry."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from steersman.errors import RaceError
from steersman.platform.postgres.advisory_lock import lock_within, try_lock, unlock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.db.work_queue import Point

_WAIT_S = 60


@asynccontextmanager
async def alone(connection: Any, point: Point, *, wait: bool = True) -> AsyncIterator[None]:
    """Hold the publish lock of a point; it ends with the process.

    Raises:
        RaceError: another process holds the lock longer than the wait time.
    """
    name = "publish/" + "/".join(map(str, point))
    taking = lock_within(connection, name, _WAIT_S) if wait else try_lock(connection, name)
    if not await taking:
        message = f"another process is publishing {point[1]}/{point[2]}"
        message += f", and has been for {_WAIT_S} s" * wait
        raise RaceError(message + "; nothing was published; try again later")
    try:
        yield
    finally:
        await unlock(connection, name)
