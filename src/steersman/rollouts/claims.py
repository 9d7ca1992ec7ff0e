"""Claims of controllers on rollouts: a lock, a lease and a fencing epoch.

As learners hold decision points, controllers hold rollouts. The lock shows at once that a
controller
has ended, the lease shows that one hangs. A takeover raises the epoch, and only the newest epoch
can
write. Manual actions raise it too, so a controller never writes a decision made before them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.db.rollout_transitions import claim_rollout
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow

_log = logging.getLogger(__name__)
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"

Task = tuple["UUID", "UUID"]
"""Tenant and rollout."""


class Claims:
    """Rollouts claimed by one controller.

    Args:
        connection: connection of role worker, used for nothing else: locks live as long as it.
        holder: display name.
        lease_s: time in seconds after which a silent controller loses its claims.
    """

    def __init__(self, connection: Any, holder: str, lease_s: float) -> None:
        self.held: dict[Task, RolloutRow] = {}
        self._locked: set[Task] = set()
        self._connection = connection
        self._holder = holder
        self._lease_s = lease_s
        self._elsewhere: dict[Task, float] = {}

    async def take(self, task: Task) -> RolloutRow | None:
        """Return a rollout that this controller may move, claiming it if possible.

        Returns:
            Rollout with the epoch of the claim; None if another controller has it, which pauses the
            next attempt.
        """
        if task in self.held:
            if task not in self._locked:  # taken over from one that is paused; the lock comes later
                await self._lock(task)
            return self.held[task]
        now = asyncio.get_running_loop().time()
        if self._elsewhere.get(task, 0.0) > now:
            return None
        row = await self._claim(task)
        if row is None:
            self._elsewhere[task] = now + min(1.0, self._lease_s / 4)
            return None
        self._elsewhere.pop(task, None)
        self.held[task] = row
        return row

    async def give_up(self, task: Task, *, pause_s: float = 0.0) -> None:
        """Release a rollout.

        Args:
            pause_s: time in seconds before the next attempt.
        """
        self.held.pop(task, None)
        if pause_s:
            self._elsewhere[task] = asyncio.get_running_loop().time() + pause_s
        if task in self._locked:
            self._locked.discard(task)
            await self._connection.fetchval(_UNLOCK, _name(task))

    async def _lock(self, task: Task) -> bool:
        if await self._connection.fetchval(_LOCK, _name(task)):
            self._locked.add(task)
            return True
        return False

    async def _claim(self, task: Task) -> RolloutRow | None:
        locked = await self._lock(task)
        row = None
        try:
            async with as_tenant(self._connection, task[0]):
                idle_s = None if locked else self._lease_s
                row = await claim_rollout(
                    self._connection, task[0], task[1], self._holder, idle_s=idle_s
                )
        except asyncpg.LockNotAvailableError:
            _log.info("rollout %s is being changed by another process", task[1])
        if row is None:
            await self.give_up(task)
        elif not locked:
            _log.warning("taking over rollout %s from an unresponsive controller", task[1])
        return row


def _name(task: Task) -> str:
    return "rollout/" + "/".join(map(str, task))
