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
    from collections.abc import Awaitable, Callable, Collection
    from uuid import UUID

    from steersman.retrieval import Opened, Place

_log = logging.getLogger(__name__)
_AGAIN_S = 5.0
_LOOK_S = 60.0


class Key(NamedTuple):
    """Which revision of whose corpus; with erasures, what was loaded before one is another.

    Attributes:
        tenant: whose.
        corpus: its id.
        erasures: how often documents were erased from it.
        revision: of it.
        hnsw: which index of pgvector it has; None: none. What was loaded with another one cannot
            be searched by meaning any more, or is searched otherwise than it is to be.
    """

    tenant: UUID
    corpus: UUID
    erasures: int
    revision: int
    hnsw: int | None = None


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
    _named: set[Key] = field(default_factory=set)
    _looked: dict[UUID, float] = field(default_factory=dict)
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
        key = Key(tenant, place.corpus.id, place.corpus.erasures, place.revision, place.hnsw)
        self._forget_erased(key)
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
            self._note(key, place)
            return found
        older = None if place.snapshot is not None else self._older(key)
        if older is not None and older.loaded.place.revision > key.revision:
            return older  # who asks found its place before it was committed
        at, error = self._failed.get(key, (0.0, None))
        failed = error if self.clock() - at < _AGAIN_S else None
        if older is None and failed is not None:
            raise failed
        if older is None or (failed is None and self._lost_index(key)):
            # Whoever asked first may go away: what is loaded is there for the next.
            opened = await asyncio.shield(self._begin(key, place))
            self._note(key, place)
            return opened
        if failed is None:
            self._begin(key, place)
        return older

    def wants_look(self, tenant: UUID) -> bool:
        """Return whether it is time, once a minute, to look which corpora a tenant still has.

        Args:
            tenant: whose.

        Returns:
            False too where nothing of the tenant is held.
        """
        if not any(key.tenant == tenant for key in self._held):
            self._looked.pop(tenant, None)
            return False
        return self.clock() >= self._looked.setdefault(tenant, self.clock()) + _LOOK_S

    def keep_only(self, tenant: UUID, corpora: Collection[UUID]) -> None:
        """Let go of what is held of corpora that a tenant has no more.

        Args:
            tenant: whose.
            corpora: ids of those that there are.
        """
        self._looked[tenant] = self.clock()
        for key in [key for key in self._held if key.tenant == tenant]:
            if key.corpus not in corpora:
                self._held.pop(key)
        self._forget_names()

    async def close(self) -> None:
        """Stop loading, and let go of everything."""
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        self._held.clear()
        self._forget_names()
        self.searching.shutdown(wait=False, cancel_futures=True)

    def _older(self, key: Key) -> Opened | None:
        """Return what was the newest revision before; what only a snapshot named is no such."""
        before = self._newest.get(key[:3])
        return None if before is None else self._held.get(before)

    def _lost_index(self, key: Key) -> bool:
        """Whether what was the newest revision before is searched by an index that is gone."""
        before = self._newest.get(key[:3])
        return before is not None and before.hnsw is not None and key.hnsw is None

    def _note(self, key: Key, place: Place) -> None:
        """Keep in mind that a snapshot names what is held, or that it is the newest revision."""
        if key not in self._held:
            return
        if place.snapshot is not None:
            self._named.add(key)
            return
        before = self._newest.get(key[:3])
        if before is not None and before != key and before in self._held:
            if before.revision > key.revision:
                return
            if before not in self._named:
                self._held.pop(before)
        self._newest[key[:3]] = key

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
        newest = self._newest.get(key[:3])
        late = newest is not None and newest in self._held and newest.revision > key.revision
        if place.snapshot is None and late:
            return opened  # who comes next wants the newer one
        self._held[key] = opened
        self._note(key, place)
        # The same revision with another index than it has now.
        for one in [one for one in self._held if one[:4] == key[:4] and one != key]:
            self._held.pop(one)
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
        self._forget_names()

    def _forget_names(self) -> None:
        """Keep in mind nothing of what is held no more."""
        self._newest = {place: key for place, key in self._newest.items() if key in self._held}
        self._named &= self._held.keys()
