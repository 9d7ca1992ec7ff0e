"""Timeout for reads whose duration depends on the tenant's log size.

A circuit breaker counts hanging calls and then blocks all tenants. A long log of one tenant is not
an outage of the store.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from steersman.platform.breaker import GivenUp
from steersman.wire import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
READ_S = 4.0
"""Read timeout in seconds; shorter than that of a breaker."""


async def in_time(make: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """Return the result of a call, or refuse after a timeout that no circuit breaker counts.

    Args:
        seconds: timeout in seconds, shorter than that of the breaker around it.

    Raises:
        GivenUp: timeout.

    >>> asyncio.run(in_time(lambda: asyncio.sleep(0, "made"), 5.0, "nothing was made; wait"))
    'made'
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await make()
    except TimeoutError:
        if not limit.expired():
            raise  # it was the store's
        detail = f"{what} within {seconds:g} s; try again later"
        raise GivenUp(Problem.of("unavailable", detail, retry_after_s=5.0)) from None
