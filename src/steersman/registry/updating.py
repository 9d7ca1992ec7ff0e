"""Following a registry's metadata: what is believed, since when, and by which clock.

Online, the rules are TUF's own (``tuf.ngclient``). What verified there stays believed for some
days while nothing newer can be had. Time never runs backwards: what was seen to expire stays
expired when a clock is set back, unless metadata that nobody has seen before shows that the clock
had been ahead.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from tuf.api.exceptions import DownloadError, ExpiredMetadataError, RepositoryError
from tuf.api.metadata import Timestamp
from tuf.ngclient import Updater, UpdaterConfig

from steersman.errors import SteersmanError
from steersman.registry.cache import Memory
from steersman.registry.chain import (
    MAX_ROOT,
    MAX_ROTATIONS,
    MAX_SNAPSHOT,
    MAX_TARGETS,
    MAX_TIMESTAMP,
    follow_root,
    read_chain,
    read_root,
)
from steersman.registry.place import read_file
from steersman.registry.signing import at

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from steersman.registry.cache import Cache
    from steersman.registry.chain import Chain
    from steersman.registry.fetching import Fetcher

_log = logging.getLogger(__name__)
_CONFIG = UpdaterConfig(
    max_root_rotations=MAX_ROTATIONS,
    root_max_length=MAX_ROOT,
    timestamp_max_length=MAX_TIMESTAMP,
    snapshot_max_length=MAX_SNAPSHOT,
    targets_max_length=MAX_TARGETS,
)
_FAILURES = (RepositoryError, DownloadError, SteersmanError, OSError, ValueError)
_MOST = 1 << 53  # a thief of the timestamp's key may count as high as they like
_NAMES = ("timestamp.json", "snapshot.json", "targets.json")


@dataclass(frozen=True)
class Refreshed:
    """What came of asking the registry.

    Attributes:
        at: the time that counts, which never steps back.
        online: whether everything verified; else what verified before stays believed for a while.
        reasons: why not; empty if it did.
    """

    at: datetime
    online: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """Metadata that verified.

    Attributes:
        chain: all of it.
        verified_at: when it did last, in seconds since 1970.
    """

    chain: Chain
    verified_at: float

    def fresh(self, now: float) -> bool:
        """Return whether nothing of it has expired.

        Args:
            now: seconds since 1970.
        """
        parts = (self.chain.root, self.chain.timestamp, self.chain.snapshot, self.chain.targets)
        return not any(part.is_expired(at(now)) for part in parts)


class _Clocked(Updater):
    """An updater whose clock is ours."""

    def __init__(self, folder: str, fetcher: Fetcher, root: bytes, now: float) -> None:
        super().__init__(folder, "metadata/", fetcher=fetcher, config=_CONFIG, bootstrap=root)
        # There is no public way; tests/registry/test_clocks.py notices if this one goes away.
        self._trusted_set.reference_time = at(now)

    @property
    def root(self) -> int:
        """Return the number of the root that counts: a cache may hold later ones of others."""
        return self._trusted_set.root.version

    @property
    def seen(self) -> int:
        """Return the number of the newest timestamp whose signature is good; 0: none."""
        found = self._trusted_set.get(Timestamp.type)
        return found.version if found is not None else 0


class Following:
    """Keeps metadata of one registry up to date, in a cache that other processes share.

    Args:
        trusted_root: metadata of a root that is trusted.
        fetcher: of the registry.
        cache: remembers between processes.
        clock: returns seconds since 1970.
        timeout_s: the longest that a refresh may take.

    Raises:
        VerificationError: the root is none.
    """

    def __init__(
        self,
        trusted_root: bytes,
        fetcher: Fetcher,
        cache: Cache,
        *,
        clock: Callable[[], float],
        timeout_s: float,
    ) -> None:
        read_root(trusted_root)
        self._root = trusted_root
        self._fetcher = fetcher
        self._cache = cache
        self._clock = clock
        self._timeout_s = timeout_s
        self._high = 0.0
        self._healed = 0
        self._texts: tuple[str, ...] = ()
        self.known: Known | None = None
        self.last: Refreshed | None = None

    def now(self) -> float:
        """Return the time that counts: that of the clock, or the latest there ever was."""
        self._high = max(self._clock(), self._high)
        return self._high

    def refresh(self) -> Refreshed:
        """Ask the registry, and believe what verifies."""
        begun = time.monotonic()
        try:
            with self._cache.alone("metadata", self._timeout_s) as ours:
                if not ours:
                    message = "another process held the refresh lock until the timeout"
                    raise TimeoutError(message)
                left = self._timeout_s - (time.monotonic() - begun)
                with self._fetcher.within(max(left, 0.001)):
                    self.last = self._refresh()
        except _FAILURES as error:  # the cache itself cannot be used
            self.last = Refreshed(at(self.now()), online=False, reasons=(_told(error),))
        if not self.last.online:
            _log.warning("registry verification failed: %s", "; ".join(self.last.reasons))
        return self.last

    def _refresh(self) -> Refreshed:
        memory = self._cache.memory()
        known_high = self._high if memory.healed == self._healed else 0.0
        self._high = max(known_high, memory.high)
        now, seen, reasons = self.now(), [memory.seen], []
        try:
            chain, then = self._newest(now, memory.seen, seen)
            healed = memory.healed + (then < now)
            memory, now = self._believe(chain, then, healed), then
        except _FAILURES as error:
            reasons.append(_told(error))
            self._recall(memory, reasons)
        self._high, self._healed = now, memory.healed
        self._cache.remember(msgspec.structs.replace(memory, high=now, seen=min(max(seen), _MOST)))
        return Refreshed(at(now), online=not reasons, reasons=tuple(reasons))

    def _newest(self, now: float, seen: int, found: list[int]) -> tuple[Chain, float]:
        """Return what the registry has now, and the time it is."""
        try:
            return self._updated(now, found), now
        except ExpiredMetadataError:
            wall = self._clock()
            if wall >= now:
                raise
            # The clock was set back. What nobody has seen yet was not there when it was ahead.
            chain = self._updated(wall, found)
            if chain.timestamp.version <= seen:
                raise
            return chain, wall

    def _updated(self, now: float, found: list[int]) -> Chain:
        updater = _Clocked(str(self._cache.trust), self._fetcher, self._root, now)
        try:
            updater.refresh()
        finally:
            found.append(updater.seen)
        newest = follow_root(self._root, self._kept, until=updater.root)[-1]
        return read_chain(read_root(newest), self._kept)

    def _kept(self, name: str, most: int) -> bytes | None:
        """Return metadata that the updater has verified and kept."""
        plain = name.split(".", 1)[1] if name[0].isdigit() else name
        path = self._cache.trust / ("root_history/" + name if plain == "root.json" else plain)
        return read_file(path, most) if path.exists() else None

    def _believe(self, chain: Chain, now: float, healed: int) -> Memory:
        followed = follow_root(self._root, self._kept, until=chain.root.version)
        roots = tuple(text.decode() for text in followed)
        texts = tuple(text.decode() for text in chain.texts)
        self.known, self._texts = Known(chain, now), texts
        return Memory(healed=healed, verified_at=now, roots=roots, texts=texts)

    def _recall(self, memory: Memory, reasons: list[str]) -> None:
        """Believe again what verified last, here or in another process, if it still verifies."""
        if memory.texts == self._texts and self.known is not None:
            self.known = Known(self.known.chain, memory.verified_at)
        elif memory.texts:
            try:
                self.known = _recalled(self._root, memory)
                self._texts = memory.texts
            except SteersmanError as error:
                reasons.append(f"the cache: {_told(error)}")


def _recalled(trusted: bytes, memory: Memory) -> Known:
    """Return what verified last, verified again but for its dates."""
    roots = {f"{read_root(text.encode()).version}.root.json": text for text in memory.roots}
    kept = {**dict(zip(_NAMES, memory.texts, strict=False)), **roots}

    def fetch(name: str, most: int) -> bytes | None:
        text = kept.get(name) or kept.get(name.partition(".")[2])
        return text.encode()[: most + 1] if text is not None else None

    newest = read_root(follow_root(trusted, fetch)[-1])
    return Known(read_chain(newest, fetch), memory.verified_at)


def _told(error: BaseException) -> str:
    # Of files without their names: tenants read this, and where they lie does not concern them.
    said = getattr(error, "strerror", None) or str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
