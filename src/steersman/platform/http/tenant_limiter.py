"""Limited database connections for rare or privileged work.

The PostgreSQL server has about a hundred connections for services, learners, controllers and
people.
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
    """Fair queue for connections: one at a time per tenant, a few for all tenants.

    A tenant with many requests delays another tenant by one request at most.

    Args:
        at_a_time: maximum number of connections for all tenants.
        of_tenant: maximum number of running and waiting requests per tenant; more are refused.
    """

    def __init__(self, at_a_time: int = 2, of_tenant: int = 16) -> None:
        self._slots = asyncio.Semaphore(at_a_time)
        self._of_tenant = of_tenant
        self._own: dict[UUID, asyncio.Lock] = {}
        self._inside: Counter[UUID] = Counter()

    @asynccontextmanager
    async def turn(self, tenant: UUID) -> AsyncIterator[None]:
        """Wait for a connection slot and hold it within the context.

        Raises:
            Refused: the tenant has too many waiting requests.
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
