"""One process at a time writes of a decision point into the registry."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.errors import RaceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.store import Point

_WAIT_S = 60


@asynccontextmanager
async def alone(connection: Any, point: Point) -> AsyncIterator[None]:
    """Let nobody else publish or mark this point meanwhile; whoever is killed lets go at once.

    Args:
        connection: outside of a transaction, used by nobody else.
        point: tenant, skill and decision point.

    Raises:
        RaceError: another process does, and takes longer than a minute.

    No doctest: it needs a server; ``tests/learn/test_publishing.py`` shows it.
    """
    name = "publish/" + "/".join(map(str, point))
    await connection.execute(f"SET lock_timeout = '{_WAIT_S}s'")
    try:
        await connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
    except asyncpg.LockNotAvailableError:
        message = f"another process has been publishing {point[1]}/{point[2]} for {_WAIT_S} s; "
        raise RaceError(message + "nothing was published; try again later") from None
    try:
        yield
    finally:
        await connection.execute("SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)
