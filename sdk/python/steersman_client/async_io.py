"""Sockets, pauses and blocking work for event loops; `sync_io` has the same names for threads."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING

from steersman_client.connect import NEXT_AFTER_S, names

if TYPE_CHECKING:
    from steersman_client.connect import Address

Slots = asyncio.Semaphore
here = asyncio.get_running_loop
in_thread = asyncio.to_thread
sleep = asyncio.sleep
timeout = asyncio.timeout


async def connect(host: str, port: int, until: float) -> socket.socket:  # noqa: ARG001
    """Return a connection to the first of a host's addresses that responds (RFC 8305).

    `until` is the deadline of the sync counterpart; here `timeout` cancels the call.

    Raises:
        OSError: unknown host, or every address refused.
    """
    addresses = await asyncio.wrap_future(names.find(host, port))
    left = deque(addresses)
    tried: set[asyncio.Task[socket.socket]] = set()
    refused: BaseException = OSError("the host name has no address")
    try:
        while left or tried:
            if left:
                tried.add(asyncio.ensure_future(_connected(left.popleft())))
            done, _ = await asyncio.wait(
                tried,
                timeout=NEXT_AFTER_S if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                tried.remove(task)
                if (error := task.exception()) is None:
                    return task.result()
                refused = error
        raise refused
    finally:
        for task in tried:
            task.add_done_callback(_discard)
            task.cancel()


async def _connected(address: Address) -> socket.socket:
    family, kind, protocol, _, place = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)  # noqa: FBT003 (the standard library's)
        await asyncio.get_running_loop().sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


def _discard(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def send_all(sock: socket.socket, data: bytes, until: float) -> None:  # noqa: ARG001
    """Send all data."""
    await asyncio.get_running_loop().sock_sendall(sock, data)


async def receive(sock: socket.socket, most: int, until: float) -> bytes:  # noqa: ARG001
    """Return up to `most` bytes; none at the end of the connection."""
    return await asyncio.get_running_loop().sock_recv(sock, most)
