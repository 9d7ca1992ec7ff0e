"""Publish lock: one process at a time writes a decision point into the registry."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.errors import RaceError

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
    if not await _lock(connection, name, wait=wait):
        message = f"another process is publishing {point[1]}/{point[2]}"
        message += f", and has been for {_WAIT_S} s" * wait
        raise RaceError(message + "; nothing was published; try again later")
    try:
        yield
    finally:
        await connection.execute("SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)


async def _lock(connection: Any, name: str, *, wait: bool) -> bool:
    if not wait:
        taken = await connection.fetchval(
            "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name
        )
        return bool(taken)
    await connection.execute(f"SET lock_timeout = '{_WAIT_S}s'")
    try:
        await connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
    except asyncpg.LockNotAvailableError:
        return False
    return True
