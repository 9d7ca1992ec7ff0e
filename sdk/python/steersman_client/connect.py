"""TCP connections with a deadline that includes name lookup and all addresses.

The system's name lookup has no time limit, and trying addresses in turn waits for each silent one:
eight addresses would take eight times the timeout.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Address: TypeAlias = tuple[int, int, int, str, Any]
"""Result of `socket.getaddrinfo`."""
NEXT_AFTER_S = 0.25
"""Delay before the next address is tried in parallel (RFC 8305, section 8)."""


class Names:
    """Name lookup in daemon threads that do not delay exit.

    >>> [address[4][0] for address in Names().find("127.0.0.1", 80).result()]
    ['127.0.0.1']
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start again after a fork, without the parent's threads."""
        self._lock = threading.Lock()
        self._sought: dict[tuple[str, int], Future[list[Address]]] = {}

    def find(self, host: str, port: int) -> Future[list[Address]]:
        """Return a future of a host's addresses; parallel lookups share it.

        The future raises OSError if the host is unknown or no thread can start.
        """
        found: Future[list[Address]] = Future()
        found.set_running_or_notify_cancel()  # no caller may cancel it for the others
        with suppress(socket.gaierror):  # it is a name
            found.set_result(_addresses(host, port, socket.AI_NUMERICHOST))
            return found
        with self._lock:
            sought = self._sought.get((host, port))
            if sought is not None:
                return sought
            self._sought[host, port] = found
        thread = threading.Thread(
            target=self._look_up, args=(host, port, found), name="steersman-name", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._done(host, port)
            found.set_exception(
                OSError(f"cannot look up host {host!r}: {error}; raise the limit of threads")
            )
        return found

    def _look_up(self, host: str, port: int, found: Future[list[Address]]) -> None:
        try:
            addresses = _addresses(host, port)
        except Exception as error:  # noqa: BLE001 (raised where it is waited for)
            self._done(host, port)
            found.set_exception(error)
        else:
            self._done(host, port)
            found.set_result(addresses)

    def _done(self, host: str, port: int) -> None:
        with self._lock:
            self._sought.pop((host, port), None)


def _addresses(host: str, port: int, flags: int = 0) -> list[Address]:
    return [*socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, flags)]


names = Names()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=names.forget)


def connect(
    host: str, port: int, until: float, options: Iterable[tuple[Any, ...]] = ()
) -> socket.socket:
    """Return a connection to the first of a host's addresses that responds.

    Args:
        host: host name or address.
        port: port.
        until: deadline on the monotonic clock.
        options: socket options, as for `socket.setsockopt`.

    Returns:
        Socket with the remaining time as its timeout.

    Raises:
        TimeoutError: deadline passed.
        OSError: unknown host, or every address refused.
    """
    addresses = names.find(host, port).result(max(0.0, until - time.monotonic()))
    with selectors.DefaultSelector() as selector:
        try:
            sock = _first(selector, addresses, until, tuple(options))
        finally:
            for key in list(selector.get_map().values()):
                selector.unregister(key.fileobj)
                key.data.close()
    sock.settimeout(max(0.001, until - time.monotonic()))
    return sock


def _first(
    selector: selectors.BaseSelector,
    addresses: Sequence[Address],
    until: float,
    options: Sequence[tuple[Any, ...]],
) -> socket.socket:
    """Return the first connected socket; the others stay in the selector."""
    left = deque(addresses)
    refused = OSError("the host name has no address")
    next_at = now = time.monotonic()
    while left or selector.get_map():
        if left and (now >= next_at or not selector.get_map()):
            next_at = now + NEXT_AFTER_S
            try:
                _begin(selector, left.popleft(), options)
            except OSError as error:
                refused, next_at = error, now
                continue
        wait_s = (min(until, next_at) if left else until) - now
        for key, _ in selector.select(max(0.0, wait_s)):
            sock: socket.socket = key.data
            selector.unregister(sock)
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not number:
                return sock
            sock.close()
            refused, next_at = OSError(number, os.strerror(number)), now
        now = time.monotonic()
        if now >= until:
            raise TimeoutError("none of its addresses responded in time")
    raise refused


def _begin(
    selector: selectors.BaseSelector, address: Address, options: Sequence[tuple[Any, ...]]
) -> None:
    family, kind, protocol, _, place = address
    sock = socket.socket(family, kind, protocol)
    try:
        for option in options:
            sock.setsockopt(*option)
        sock.setblocking(False)  # noqa: FBT003 (the standard library's)
        with suppress(BlockingIOError):  # it is under way
            sock.connect(place)
        selector.register(sock, selectors.EVENT_WRITE, sock)
    except BaseException:
        sock.close()
        raise
