"""Reading that takes as long as a tenant has logged: given up before it is taken for an outage.

A breaker counts what hangs, and keeps all tenants from asking for a while. How much one of them
logged is not the store's fault.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from steersman.store import GivenUp
from steersman.wire import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
READ_S = 4.0
"""Less than a breaker waits."""


async def in_time(make: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """Return what a call makes, or refuse when it takes too long, which tells a breaker nothing.

    Args:
        make: makes it; cancelled when the time is over.
        seconds: how long it may take, less than the breaker around it waits.
        what: was not done in time, and what to do instead.

    Raises:
        GivenUp: it took too long.

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
