"""Connections whose caller stops waiting while they are being made."""

from __future__ import annotations

import asyncio
import gc


async def test_a_connection_that_nobody_waits_for_any_more_is_closed(database):
    begun = asyncio.get_running_loop().time()
    await (await database.connect("app")).close()
    takes = asyncio.get_running_loop().time() - begun
    given_up = 0
    for part in range(100):  # in every state that it can be in
        try:
            async with asyncio.timeout(takes * part / 100):
                connection = await database.connect("app")
        except TimeoutError:
            given_up += 1
        else:
            await connection.close()
    assert given_up > 0
    gc.collect()  # whatever is still open then tells, and no test may leave warnings
    await asyncio.sleep(0)
