"""Revisions of corpora in memory, bounded in bytes; a newer one is made while the old serves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from steersman.retrieval import Opened, Place

_log = logging.getLogger(__name__)
_AGAIN_S = 5.0


class Key(NamedTuple):
    """Which revision of whose corpus; with erasures, what was loaded before one is another.

    Attributes:
        tenant: whose.
        corpus: its id.
        erasures: how often documents were erased from it.
        revision: of it.
    """

    tenant: UUID
    corpus: UUID
    erasures: int
    revision: int


@dataclass(slots=True)
class Counts:
    """What the cache did.

    Attributes:
        loads: revisions that were loaded.
        failures: that could not be.
        evicted: that made room for others.
    """

    loads: int = 0
    failures: int = 0
    evicted: int = 0


@dataclass(slots=True)
class CorpusCache:
    """What is searched, by revision; what was used longest ago goes first.

    One revision is loaded at a time, so that loading takes one core at most. A revision that alone
    is larger than the cache is kept until another is needed.

    Args:
        load: brings a revision into memory.
        max_bytes: what all of them may take together, about.
        clock: seconds that never step back.

    No doctest: it needs a corpus; ``tests/service/test_searching.py`` shows it.
    """

    load: Callable[[UUID, Place], Awaitable[Opened]]
    max_bytes: int = 1 << 30
    clock: Callable[[], float] = time.monotonic
    counts: Counts = field(default_factory=Counts)
    searching: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="search")
    )
    _held: OrderedDict[Key, Opened] = field(default_factory=OrderedDict)
    _newest: dict[tuple[UUID, UUID, int], Key] = field(default_factory=dict)
    _loading: dict[Key, asyncio.Task[Opened]] = field(default_factory=dict)
    _failed: dict[Key, tuple[float, BaseException]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def bytes(self) -> int:
        """About how many bytes the revisions take that are held."""
        return sum(one.loaded.bytes for one in self._held.values())

    def __len__(self) -> int:
        """Return how many revisions are held."""
        return len(self._held)

    async def get(self, tenant: UUID, place: Place) -> Opened:
        """Return a revision, or the one before it while the newest is being loaded.

        Args:
            tenant: whose.
            place: which revision; without a snapshot an older one will do.

        Returns:
            What can be searched; it stays so whatever becomes of the corpus or of the cache.

        Raises:
            MissingCorpusError: it was dropped meanwhile.
            DataError: an extra is missing, or it is damaged. What failed is told again for five
                seconds, and then loaded again.
        """
        key = Key(tenant, place.corpus.id, place.corpus.erasures, place.revision)
        self._forget_erased(key)
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
            return found
        older = None if place.snapshot is not None else self._older(key)
        if older is not None and older.loaded.place.revision > key.revision:
            return older  # who asks found its place before it was committed
        at, error = self._failed.get(key, (0.0, None))
        failed = error if self.clock() - at < _AGAIN_S else None
        if older is None:
            if failed is not None:
                raise failed
            # Whoever asked first may go away: what is loaded is there for the next.
            return await asyncio.shield(self._begin(key, place))
        if failed is None:
            self._begin(key, place)
        return older

    async def close(self) -> None:
        """Stop loading, and let go of everything."""
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        self._held.clear()
        self.searching.shutdown(wait=False, cancel_futures=True)

    def _older(self, key: Key) -> Opened | None:
        """Return what was the newest revision before; what only a snapshot named is no such."""
        before = self._newest.get(key[:3])
        return None if before is None else self._held.get(before)

    def _forget_erased(self, key: Key) -> None:
        """Let go of revisions of the corpus that hold what was erased since."""
        for one in [one for one in self._held if one[:2] == key[:2] and one[2] < key[2]]:
            self._held.pop(one)

    def _begin(self, key: Key, place: Place) -> asyncio.Task[Opened]:
        task = self._loading.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._loaded(key, place))
            self._loading[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return task

    async def _loaded(self, key: Key, place: Place) -> Opened:
        async with self._turn:
            opened = await self.load(key.tenant, place)
        self.counts.loads += 1
        self._failed.pop(key, None)
        if place.snapshot is None:
            replaced = self._newest.get(key[:3])
            if replaced is not None and replaced in self._held:
                if replaced.revision > key.revision:
                    return opened  # who comes next wants the newer one
                self._held.pop(replaced)
            self._newest[key[:3]] = key
        self._held[key] = opened
        self._make_room(key)
        return opened

    def _ended(self, key: Key, task: asyncio.Task[Opened]) -> None:
        self._loading.pop(key, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.counts.failures += 1
            now = self.clock()
            lately = {k: one for k, one in self._failed.items() if now - one[0] < _AGAIN_S}
            # Without its frames, which may hold what was loaded so far.
            self._failed = {**lately, key: (now, error.with_traceback(None))}
            _log.warning("corpus %s cannot be loaded: %r", key.corpus, error)

    def _make_room(self, newest: Key) -> None:
        """Let go of what was used longest ago, but not of what was loaded just now."""
        total = self.bytes
        for key in list(self._held):
            if total <= self.max_bytes:
                break
            if key != newest:
                total -= self._held.pop(key).loaded.bytes
                self.counts.evicted += 1
        for place, key in list(self._newest.items()):
            if key not in self._held:
                del self._newest[place]
