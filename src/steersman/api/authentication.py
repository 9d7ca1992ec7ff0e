"""Authentication with bearer keys and a short cache, so that not every request reads the store.

The cache knows keys only by keyed hash. One query every half second verifies all keys in use, and a
change notice triggers it at once, so revocation takes effect within a second. During a store outage
keys verified in the last ten minutes stay valid, so that decisions continue. For an unknown key the
answer is then 503, not 401, because clients give up after 401.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import time
from collections import OrderedDict
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from steersman.platform.postgres.database import store_is_away
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from steersman.db.keys import KeyRow

_log = logging.getLogger(__name__)
_SHAPE = re.compile(rb"sk_[A-Za-z0-9]{20,100}")
_FOREVER = float("inf")
_CHUNK = 1_000


class _CachedKey:
    """Cached key with its expiry and the times of last verification and use."""

    __slots__ = ("ends", "place", "row", "used", "verified")

    def __init__(self, row: KeyRow, now: float) -> None:
        self.row = row
        self.ends = _ends(row)
        self.place = b""
        self.verified = self.used = now


class Authenticator:
    """Lookup of the key in a request.

    Args:
        look_up: returns the rows of known keys by keyed hash; raises `Refused` or an error that
            `store_is_away` recognises if the store does not respond.
        secret: secret for the keyed hash.
        clock: monotonic clock in seconds.
        wall: seconds since 1970, for expiry.
        refresh_s: interval for verifying keys in use, in seconds.
        trust_s: time in seconds for which a verified key stays valid during a store outage, and for
            which an unused key stays cached.
        absent_s: time in seconds for which an unknown key stays cached.
        most_absent: maximum number of cached unknown keys.
        most_pending: maximum number of parallel lookups.
    """

    def __init__(
        self,
        look_up: Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, KeyRow]]],
        secret: bytes,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        refresh_s: float = 0.5,
        trust_s: float = 600.0,
        absent_s: float = 1.0,
        most_absent: int = 10_000,
        most_pending: int = 1_000,
    ) -> None:
        self._look_up = look_up
        self._secret = secret
        self._clock = clock
        self._wall = wall
        self._refresh_s = refresh_s
        self._trust_s = trust_s
        self._absent_s = absent_s
        self._most_absent = most_absent
        self._most_pending = most_pending
        self._known: dict[bytes, _CachedKey] = {}
        # The same entries by a faster hash (a third of the time), because every request needs it.
        self._places: dict[bytes, _CachedKey] = {}
        self._place_key = os.urandom(32)
        self._absent: OrderedDict[bytes, float] = OrderedDict()
        self._pending: dict[bytes, asyncio.Future[KeyRow | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Start verifying the keys in use."""
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def close(self) -> None:
        """Stop verifying and looking up keys."""
        for task in (self._refreshing, self._asking):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def key_changed(self, *_: Any) -> None:
        """Verify all keys at once, after a change notice of the store."""
        self._absent.clear()
        self._changed.set()

    def known(self, authorization: bytes | None) -> KeyRow | None:
        """Return the cached key of a header; None: call `find`.

        Raises:
            Refused: the key is missing, malformed or no longer valid.
        """
        if authorization is None:
            raise _unauthorized("missing Authorization header; send `Authorization: Bearer sk_…`")
        if not authorization.startswith(b"Bearer ") and authorization[:7].lower() != b"bearer ":
            raise _unauthorized("the Authorization header has no bearer key; send `Bearer sk_…`")
        # Looked up by keyed hash, so the time of a comparison reveals nothing about a key.
        entry = self._places.get(self._place(authorization[7:].strip()))
        if entry is None:
            return None
        now = self._clock()
        if now - entry.verified > self._trust_s:
            return None
        if self._wall() >= entry.ends:
            raise _unauthorized("the API key has expired or was revoked; create a new one")
        entry.used = now
        return entry.row

    async def find(self, authorization: bytes) -> KeyRow:
        """Return the key of a header that `known` accepted, with a lookup in the store.

        Raises:
            Refused: the key is unknown, expired or revoked, or the store does not respond.
        """
        text = authorization[7:].strip()
        if _SHAPE.fullmatch(text) is None:
            raise _unauthorized("malformed API key; copy the whole key, which begins with sk_")
        digest = hmac.digest(self._secret, text, "sha256")
        row = None
        if self._absent.get(digest, -_FOREVER) <= self._clock():
            row = await asyncio.shield(self._ask(digest))
            entry = self._known.get(digest)
            if entry is not None:
                entry.place = self._place(text)
                self._places[entry.place] = entry
        if row is None or self._wall() >= _ends(row):
            raise _unauthorized("unknown, expired or revoked API key; create a new one")
        return row

    def _place(self, text: bytes) -> bytes:
        return blake2b(text, digest_size=16, key=self._place_key).digest()

    def _ask(self, digest: bytes) -> asyncio.Future[KeyRow | None]:
        """Return the future of a key's lookup; requests with the same key share it."""
        future = self._pending.get(digest)
        if future is None:
            if len(self._pending) >= self._most_pending:
                raise _away("too many unknown API keys are being looked up")
            future = self._pending[digest] = asyncio.get_running_loop().create_future()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_all())
        return future

    async def _ask_all(self) -> None:
        """Look up all waiting keys in one query; repeat while more arrive."""
        while self._pending:
            asked = dict(list(self._pending.items())[:_CHUNK])
            now = self._clock()
            try:
                rows = await self._look_up(list(asked))
            # Every waiting request gets a result, also after an unexpected error.
            except asyncio.CancelledError:
                self._fail(dict(self._pending))
                raise
            except Exception as error:  # noqa: BLE001 (logged; the loop continues)
                self._fail(asked)
                expected = isinstance(error, Refused) or store_is_away(error)
                log = _log.warning if expected else _log.exception
                log("keys cannot be verified now: %r", error)
            else:
                for digest, future in asked.items():
                    self._settle(digest, future, rows.get(digest), now)

    def _fail(self, asked: Mapping[bytes, asyncio.Future[KeyRow | None]]) -> None:
        for digest, future in asked.items():
            self._pending.pop(digest, None)
            if not future.done():
                detail = "the store does not respond, and this API key is not cached"
                future.set_exception(_away(detail))
                future.exception()  # retrieved, even if the caller has left

    def _settle(
        self, digest: bytes, future: asyncio.Future[KeyRow | None], row: KeyRow | None, now: float
    ) -> None:
        self._pending.pop(digest, None)
        if row is not None and self._wall() < _ends(row):
            self._known[digest] = _CachedKey(row, now)
        else:
            self._absent[digest] = now + self._absent_s
            while len(self._absent) > self._most_absent:
                self._absent.popitem(last=False)
        if not future.done():
            future.set_result(row)

    async def _refresh(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._refresh_s):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.verify()
            except Exception as error:  # noqa: BLE001 (the loop must continue, or no key is revoked)
                known = isinstance(error, Refused) or store_is_away(error)
                _log.warning("API keys in use cannot be verified: %r", error, exc_info=not known)

    async def verify(self) -> None:
        """Verify every key in use and drop those that are deleted or revoked.

        Raises:
            Refused: the store does not respond; the cache stays unchanged.
        """
        digests = list(self._known)
        for start in range(0, len(digests), _CHUNK):
            chunk = digests[start : start + _CHUNK]
            now = self._clock()
            rows = await self._look_up(chunk)
            for digest in chunk:
                self._renew(digest, rows.get(digest), now)

    def _renew(self, digest: bytes, row: KeyRow | None, now: float) -> None:
        entry = self._known.get(digest)
        if entry is None:
            return
        if row is None or now - entry.used > self._trust_s or self._wall() >= _ends(row):
            del self._known[digest]
            self._places.pop(entry.place, None)
            return
        entry.row, entry.ends, entry.verified = row, _ends(row), now


def authorize(row: KeyRow, scope: str) -> None:
    """Refuse a key without the given scope.

    Raises:
        Refused: 403.
    """
    if scope not in row.scopes:
        held = ", ".join(row.scopes) or "none"
        detail = (
            f"missing scope {scope}: the API key {row.prefix}… has {held}; use a key with this "
            "scope"
        )
        raise Refused.of("forbidden", detail)


def _ends(row: KeyRow) -> float:
    """Return the expiry time in seconds since 1970; a rotated key may have a grace period."""
    ends = [at.timestamp() for at in (row.expires_at, row.revoked_at) if at is not None]
    return min(ends, default=_FOREVER)


def _unauthorized(detail: str) -> Refused:
    return Refused.of("unauthorized", detail)


def _away(detail: str) -> Refused:
    return Refused.of("unavailable", detail + "; try again later", retry_after_s=1.0)
