"""Leases on work: an advisory lock, a lease and a fencing epoch.

The lock ends with its session, so a dead worker is noticed at once. A paused worker keeps its
session, so each worker also sends heartbeats; after one lease without any, another worker takes
over. Each takeover increases the epoch, and the store rejects writes of an older epoch.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import asyncpg

from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from uuid import UUID


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


_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class Lease:
    """Work that this process holds.

    Attributes:
        locked: whether this process also holds the advisory lock.
    """

    locked: bool = False


Key = TypeVar("Key", bound="tuple[UUID, *tuple[Any, ...]]")
Held = TypeVar("Held", bound=Lease)


class Leases(ABC, Generic[Key, Held]):
    """Work that one worker holds, by tenant and name.

    Args:
        kind: first part of the lock names.
        connection: of role worker, used only for locks.
        holder: display name of the worker; empty: host and process id.
        lease_s: seconds without a heartbeat after which a worker loses its work.
    """

    def __init__(self, kind: str, connection: Any, holder: str, lease_s: float) -> None:
        self.held: dict[Key, Held] = {}
        self._kind = kind
        self._connection = connection
        self._turn = asyncio.Lock()
        self._holder = holder or f"{socket.gethostname()}/{os.getpid()}"
        self._lease_s = lease_s
        self._elsewhere: dict[Key, float] = {}

    @abstractmethod
    async def _claim(self, key: Key, idle_s: float | None) -> Held | None:
        """Claim work in a transaction of its tenant.

        Args:
            idle_s: claim only after this many seconds without a heartbeat; None: always.
        """

    def elsewhere(self) -> list[Key]:
        """Return the work to skip because another worker holds it."""
        now = asyncio.get_running_loop().time()
        self._elsewhere = {key: until for key, until in self._elsewhere.items() if until > now}
        return list(self._elsewhere)

    def avoid(self, key: Key, seconds: float) -> None:
        """Skip work for a while."""
        self._elsewhere[key] = asyncio.get_running_loop().time() + seconds

    async def take(self, key: Key) -> Held | None:
        """Return the lease on work, claiming it if possible.

        Returns:
            The lease; None if another worker holds the work, which is then skipped for a while.
        """
        if key in self.held:
            return self.held[key]
        if key in self.elsewhere():
            return None
        async with self._turn:
            found = await self._try(key)
        if found is None:
            self.avoid(key, min(1.0, self._lease_s / 4))
            return None
        self.held[key] = found
        return found

    async def give_up(self, key: Key, *, pause_s: float = 0.0) -> None:
        """Release work.

        Args:
            pause_s: seconds before the next attempt.
        """
        if pause_s:
            self.avoid(key, pause_s)
        gone = self.held.pop(key, None)
        if gone is not None and gone.locked:
            async with self._turn:
                await unlock(self._connection, self._name(key))

    async def keep(self) -> None:
        """Take the locks of work taken over from a paused worker, if they are free by now."""
        for key, held in list(self.held.items()):
            if not held.locked:
                async with self._turn:
                    await self._lock(key, held)

    def has(self, key: Key, held: Held) -> bool:
        """Return whether this worker still holds a lease; it can end during a query."""
        return self.held.get(key) is held

    async def _lock(self, key: Key, held: Held) -> None:
        """Take the lock of a lease if it is free; release it if the lease ended meanwhile."""
        if not self.has(key, held):
            return
        locked = await try_lock(self._connection, self._name(key))
        if self.has(key, held):
            held.locked = locked
        elif locked:
            await unlock(self._connection, self._name(key))

    async def _try(self, key: Key) -> Held | None:
        locked = await try_lock(self._connection, self._name(key))
        found = None
        try:
            async with as_tenant(self._connection, key[0]):
                found = await self._claim(key, None if locked else self._lease_s)
        except asyncpg.LockNotAvailableError:
            _log.info("%s is locked by another process", self._name(key))
        if found is not None:
            found.locked = locked
            if not locked:
                _log.warning("taking over %s: its worker sends no heartbeat", self._name(key))
        elif locked:
            await unlock(self._connection, self._name(key))
        return found

    def _name(self, key: Key) -> str:
        return "/".join(map(str, (self._kind, *key)))
