"""Sockets, pauses and blocking work for threads; `async_io` has the same names for event loops."""

from __future__ import annotations

import time
from contextlib import nullcontext
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from steersman_client import connect as tcp

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
Slots = nullcontext  # every thread may have a connection
sleep = time.sleep
timeout = nullcontext  # each function gets the deadline instead


def here() -> object:
    """Return the event loop: none."""
    return None


def in_thread(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Return the result of blocking work, which a thread may do itself."""
    return work(*args, **options)


def connect(host: str, port: int, until: float) -> socket.socket:
    """Return a connection to the first of a host's addresses that responds."""
    return tcp.connect(host, port, until, [(IPPROTO_TCP, TCP_NODELAY, 1)])


def send_all(sock: socket.socket, data: bytes, until: float) -> None:
    """Send all data before the deadline on the monotonic clock."""
    sock.settimeout(_left(until))
    sock.sendall(data)


def receive(sock: socket.socket, most: int, until: float) -> bytes:
    """Return up to `most` bytes; none at the end of the connection."""
    # A timeout applies to each call: a server that sends single bytes would never reach it.
    sock.settimeout(_left(until))
    return sock.recv(most)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("the answer arrived too slowly")
    return left
