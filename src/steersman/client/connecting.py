"""A connection to a host by a moment, whatever its name server and its addresses do.

The system looks names up for as long as it likes, and who tries a host's addresses one after the
other waits for each that says nothing: with eight of them eight times as long as was asked for.
"""

from __future__ import annotations

import asyncio
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
"""As `socket.getaddrinfo` returns them."""
NEXT_AFTER_S = 0.25
"""RFC 8305, section 8: what an address is given before the next is tried beside it."""


class Names:
    """Looks names up, each in a thread of its own that nobody waits for at exit.

    >>> [address[4][0] for address in Names().find("127.0.0.1", 80).result()]
    ['127.0.0.1']
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew after a fork: the threads that looked up are not here."""
        self._lock = threading.Lock()
        self._sought: dict[tuple[str, int], Future[list[Address]]] = {}

    def find(self, host: str, port: int) -> Future[list[Address]]:
        """Return what will be a host's addresses; who asks for the same meanwhile shares it.

        Args:
            host: its name, or an address.
            port: to be connected to.
        """
        found: Future[list[Address]] = Future()
        found.set_running_or_notify_cancel()  # nobody who shares it may take it from the others
        with suppress(socket.gaierror):  # it is a name
            found.set_result(_addresses(host, port, socket.AI_NUMERICHOST))
            return found
        with self._lock:
            sought = self._sought.get((host, port))
            if sought is not None:
                return sought
            self._sought[host, port] = found
        threading.Thread(
            target=self._look_up, args=(host, port, found), name="steersman-name", daemon=True
        ).start()
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


class Resolver:
    """What aiohttp asks for names; its own looks them up in threads that a loop waits for."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        """Return a host's addresses.

        Args:
            host: its name.
            port: to be connected to.
            family: of the addresses wanted; 0: any.
        """
        addresses = await asyncio.wrap_future(names.find(host, port))
        return [
            {
                "hostname": host,
                "host": f"{place[0]}%{place[3]}" if place[3:] and place[3] else place[0],
                "port": port,
                "family": kind,
                "proto": protocol,
                "flags": socket.AI_NUMERICHOST,
            }
            for kind, _, protocol, _, place in addresses
            if family in (0, kind)
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to give back."""


def connect(
    host: str, port: int, until: float, options: Iterable[tuple[Any, ...]] = ()
) -> socket.socket:
    """Return a connection to the first of a host's addresses that answers.

    Args:
        host: its name, or an address.
        port: of it.
        until: on the monotonic clock.
        options: of the socket, as `socket.setsockopt` takes them.

    Returns:
        A socket whose timeout is what is left.

    Raises:
        TimeoutError: there was no connection by then.
        OSError: there is no such name, or every address refused.
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
    """Return the socket that is connected first; those still under way stay in the selector."""
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
