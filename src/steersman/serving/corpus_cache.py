"""Cache of corpus revisions in memory, limited in bytes; the old revision serves during a load."""

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

    from steersman.retrieval.corpora_reader import OpenCorpus
    from steersman.retrieval.loaded_corpus import Place

_log = logging.getLogger(__name__)
_AGAIN_S = 5.0
_LOOK_S = 60.0


class Key(NamedTuple):
    """Cache key of a corpus revision.

    Attributes:
        tenant: tenant id.
        corpus: corpus id.
        erasures: number of erasures from the corpus; a load before an erasure is never reused.
        revision: revision number.
        hnsw: pgvector index of the corpus; None: no index. A revision loaded with another index
            cannot be searched by vectors correctly.
    """

    tenant: UUID
    corpus: UUID
    erasures: int
    revision: int
    hnsw: int | None = None


@dataclass(slots=True)
class Counts:
    """Counters of the cache.

    Attributes:
        loads: number of loaded revisions.
        failures: number of failed loads.
        evicted: number of evicted revisions.
    """

    loads: int = 0
    failures: int = 0
    evicted: int = 0


@dataclass(slots=True)
class CorpusCache:
    """LRU cache of searchable corpus revisions.

    It loads one revision at a time, so that loading uses one core at most. A revision larger than
    the cache stays until another one is needed.

    Args:
        load: function that loads a revision.
        max_bytes: approximate limit for all revisions in bytes.
        clock: monotonic clock in seconds.
    """

    load: Callable[[UUID, Place], Awaitable[OpenCorpus]]
    max_bytes: int = 1 << 30
    clock: Callable[[], float] = time.monotonic
    counts: Counts = field(default_factory=Counts)
    searching: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="search")
    )
    _held: OrderedDict[Key, OpenCorpus] = field(default_factory=OrderedDict)
    _newest: dict[tuple[UUID, UUID, int], Key] = field(default_factory=dict)
    _named: set[Key] = field(default_factory=set)
    _looked: dict[UUID, float] = field(default_factory=dict)
    _loading: dict[Key, asyncio.Task[OpenCorpus]] = field(default_factory=dict)
    _failed: dict[Key, tuple[float, BaseException]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def bytes(self) -> int:
        """Approximate size of all cached revisions in bytes."""
        return sum(one.loaded.bytes for one in self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    async def get(self, tenant: UUID, place: Place) -> OpenCorpus:
        """Return a revision, or the previous one while the newest is loading.

        The result stays valid if the corpus is deleted or evicted.

        Raises:
            MissingCorpusError: the corpus was deleted.
            DataError: an extra is missing, or the data is damaged. A failure is repeated from the
                cache for five seconds.
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
            return older  # the caller read its revision before the commit
        at, error = self._failed.get(key, (0.0, None))
        failed = error if self.clock() - at < _AGAIN_S else None
        if older is None and failed is not None:
            raise failed
        if older is None or (failed is None and self._lost_index(key)):
            # Shielded: the first caller may leave, but the load continues for the next one.
            opened = await asyncio.shield(self._begin(key, place))
            self._note(key, place)
            return opened
        if failed is None:
            self._begin(key, place)
        return older

    def wants_look(self, tenant: UUID) -> bool:
        """Return whether to check the corpora of a cached tenant now, at most once a minute."""
        if not any(key.tenant == tenant for key in self._held):
            self._looked.pop(tenant, None)
            return False
        return self.clock() >= self._looked.setdefault(tenant, self.clock()) + _LOOK_S

    def keep_only(self, tenant: UUID, corpora: Collection[UUID]) -> None:
        """Evict the revisions of corpora that the tenant no longer has."""
        self._looked[tenant] = self.clock()
        for key in [key for key in self._held if key.tenant == tenant]:
            if key.corpus not in corpora:
                self._held.pop(key)
        self._forget_names()

    async def close(self) -> None:
        """Stop loading and clear the cache."""
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        self._held.clear()
        self._forget_names()
        self.searching.shutdown(wait=False, cancel_futures=True)

    def _older(self, key: Key) -> OpenCorpus | None:
        """Return the previous newest revision; revisions of named snapshots do not count."""
        before = self._newest.get(key[:3])
        return None if before is None else self._held.get(before)

    def _lost_index(self, key: Key) -> bool:
        """Return whether the previous newest revision uses a deleted index."""
        before = self._newest.get(key[:3])
        return before is not None and before.hnsw is not None and key.hnsw is None

    def _note(self, key: Key, place: Place) -> None:
        """Record that a snapshot names a cached revision, or that it is the newest revision."""
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
        """Evict revisions that contain documents erased since."""
        for one in [one for one in self._held if one[:2] == key[:2] and one[2] < key[2]]:
            self._held.pop(one)

    def _begin(self, key: Key, place: Place) -> asyncio.Task[OpenCorpus]:
        task = self._loading.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._loaded(key, place))
            self._loading[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return task

    async def _loaded(self, key: Key, place: Place) -> OpenCorpus:
        async with self._turn:
            opened = await self.load(key.tenant, place)
        self.counts.loads += 1
        self._failed.pop(key, None)
        newest = self._newest.get(key[:3])
        late = newest is not None and newest in self._held and newest.revision > key.revision
        if place.snapshot is None and late:
            return opened  # a newer revision is already cached
        self._held[key] = opened
        self._note(key, place)
        # Evict the same revision with an older index.
        for one in [one for one in self._held if one[:4] == key[:4] and one != key]:
            self._held.pop(one)
        self._make_room(key)
        return opened

    def _ended(self, key: Key, task: asyncio.Task[OpenCorpus]) -> None:
        self._loading.pop(key, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.counts.failures += 1
            now = self.clock()
            lately = {k: one for k, one in self._failed.items() if now - one[0] < _AGAIN_S}
            # Without the traceback, whose frames may keep the partial load in memory.
            self._failed = {**lately, key: (now, error.with_traceback(None))}
            _log.warning("corpus %s cannot be loaded: %r", key.corpus, error)

    def _make_room(self, newest: Key) -> None:
        """Evict the least recently used revisions, but not the newest load."""
        total = self.bytes
        for key in list(self._held):
            if total <= self.max_bytes:
                break
            if key != newest:
                total -= self._held.pop(key).loaded.bytes
                self.counts.evicted += 1
        self._forget_names()

    def _forget_names(self) -> None:
        self._newest = {place: key for place, key in self._newest.items() if key in self._held}
        self._named &= self._held.keys()
