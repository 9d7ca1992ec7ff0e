"""Connections of their own for what has to be done as another role, or alone: few at a time.

The server has about a hundred for everybody: services, learners, controllers and people.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID


class Apart:
    """Says who opens a connection when: of each tenant one at a time, of all a few.

    So whoever comes next to a tenant that asks without end waits for one of its requests, not for
    all of them.

    Args:
        at_a_time: connections, of all tenants.
        of_tenant: requests of one that have a connection or wait for it; one more is put off.
    """

    def __init__(self, at_a_time: int = 2, of_tenant: int = 16) -> None:
        self._slots = asyncio.Semaphore(at_a_time)
        self._of_tenant = of_tenant
        self._own: dict[UUID, asyncio.Lock] = {}
        self._inside: Counter[UUID] = Counter()

    @asynccontextmanager
    async def turn(self, tenant: UUID) -> AsyncIterator[None]:
        """Wait for a turn, and have it.

        Args:
            tenant: whose.

        Returns:
            A context; at its end the next one has its turn.

        Raises:
            Refused: as many of this tenant's requests wait as may.
        """
        if self._inside[tenant] >= self._of_tenant:
            detail = (
                f"{self._of_tenant} requests of this kind are already waiting, the maximum per "
                "tenant; "
            )
            raise Refused.of("unavailable", detail + "try again later", retry_after_s=1.0)
        self._inside[tenant] += 1
        try:
            async with self._own.setdefault(tenant, asyncio.Lock()), self._slots:
                yield
        finally:
            self._inside[tenant] -= 1
            if not self._inside[tenant]:
                del self._inside[tenant], self._own[tenant]
