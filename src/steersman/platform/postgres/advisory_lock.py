"""Named advisory locks of a session; PostgreSQL releases them when the session ends."""

from __future__ import annotations

from typing import Any

import asyncpg


async def try_lock(connection: Any, name: str) -> bool:
    """Take a lock if no other session holds it; a session may take its own lock repeatedly.

    Returns:
        Whether this session holds the lock.
    """
    taken: bool = await connection.fetchval(
        "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name
    )
    return taken


async def lock_within(connection: Any, name: str, seconds: int) -> bool:
    """Wait for a lock; the timeout stays set for the rest of the session.

    Returns:
        Whether this session holds the lock.
    """
    await connection.execute(f"SET lock_timeout = '{seconds}s'")
    try:
        await connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
    except asyncpg.LockNotAvailableError:
        return False
    return True


async def unlock(connection: Any, name: str) -> None:
    """Release a lock once."""
    await connection.execute("SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)
