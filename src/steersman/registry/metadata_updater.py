"""Refresh of a registry's metadata: verification, grace period and clock rules.

Online, TUF's own rules apply (``tuf.ngclient``). Verified metadata stays valid for some days while
no newer metadata is available. Expired metadata stays expired when the clock is set back, unless
new metadata shows that the clock had been ahead.
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
from steersman.registry.metadata_signer import at
from steersman.registry.storage import read_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from steersman.registry.cache import Cache
    from steersman.registry.chain import Chain
    from steersman.registry.fetch import Fetcher

_log = logging.getLogger(__name__)
_CONFIG = UpdaterConfig(
    max_root_rotations=MAX_ROTATIONS,
    root_max_length=MAX_ROOT,
    timestamp_max_length=MAX_TIMESTAMP,
    snapshot_max_length=MAX_SNAPSHOT,
    targets_max_length=MAX_TARGETS,
)
_FAILURES = (RepositoryError, DownloadError, SteersmanError, OSError, ValueError)
_MOST = 1 << 53  # a stolen timestamp key allows any version number
_NAMES = ("timestamp.json", "snapshot.json", "targets.json")


@dataclass(frozen=True)
class RefreshResult:
    """Result of a refresh.

    Attributes:
        at: effective time, which never goes back.
        online: whether everything verified; if not, earlier metadata stays valid for some days.
        reasons: reasons for the failure; empty if it verified.
    """

    at: datetime
    online: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrustedMetadata:
    """Verified metadata.

    Attributes:
        chain: the metadata.
        verified_at: time of the last verification, in seconds since 1970.
    """

    chain: Chain
    verified_at: float

    def fresh(self, now: float) -> bool:
        """Return whether no part has expired."""
        parts = (self.chain.root, self.chain.timestamp, self.chain.snapshot, self.chain.targets)
        return not any(part.is_expired(at(now)) for part in parts)


class _ClockedUpdater(Updater):
    """TUF updater with an injected clock."""

    def __init__(self, folder: str, fetcher: Fetcher, root: bytes, now: float) -> None:
        super().__init__(folder, "metadata/", fetcher=fetcher, config=_CONFIG, bootstrap=root)
        # The library has no public API for this; tests/registry/test_clocks.py guards it.
        self._trusted_set.reference_time = at(now)

    @property
    def root(self) -> int:
        """Return the version of the trusted root; other processes may cache later roots."""
        return self._trusted_set.root.version

    @property
    def seen(self) -> int:
        """Return the version of the newest correctly signed timestamp; 0: none."""
        found = self._trusted_set.get(Timestamp.type)
        return found.version if found is not None else 0


class MetadataFollower:
    """Refresh of one registry's metadata, in a cache shared with other processes.

    Args:
        trusted_root: trusted root metadata.
        fetcher: fetcher of the registry.
        cache: shared cache.
        clock: returns seconds since 1970.
        timeout_s: timeout of a refresh in seconds.

    Raises:
        VerificationError: the root is invalid.
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
        self.known: TrustedMetadata | None = None
        self.last: RefreshResult | None = None

    def now(self) -> float:
        """Return the effective time: the later of the clock and the latest time seen."""
        self._high = max(self._clock(), self._high)
        return self._high

    def refresh(self) -> RefreshResult:
        """Fetch and verify the newest metadata."""
        begun = time.monotonic()
        try:
            with self._cache.alone("metadata", self._timeout_s) as ours:
                if not ours:
                    message = "another process held the refresh lock until the timeout"
                    raise TimeoutError(message)
                left = self._timeout_s - (time.monotonic() - begun)
                with self._fetcher.within(max(left, 0.001)):
                    self.last = self._refresh()
        except _FAILURES as error:  # the cache is not usable
            self.last = RefreshResult(at(self.now()), online=False, reasons=(_reason(error),))
        if not self.last.online:
            _log.warning("registry verification failed: %s", "; ".join(self.last.reasons))
        return self.last

    def _refresh(self) -> RefreshResult:
        memory = self._cache.memory()
        known_high = self._high if memory.healed == self._healed else 0.0
        self._high = max(known_high, memory.high)
        now, seen, reasons = self.now(), [memory.seen], []
        try:
            chain, then = self._newest(now, memory.seen, seen)
            healed = memory.healed + (then < now)
            memory, now = self._believe(chain, then, healed), then
        except _FAILURES as error:
            reasons.append(_reason(error))
            self._recall(memory, reasons)
        self._high, self._healed = now, memory.healed
        self._cache.remember(msgspec.structs.replace(memory, high=now, seen=min(max(seen), _MOST)))
        return RefreshResult(at(now), online=not reasons, reasons=tuple(reasons))

    def _newest(self, now: float, seen: int, found: list[int]) -> tuple[Chain, float]:
        """Return the current metadata of the registry, and the effective time."""
        try:
            return self._updated(now, found), now
        except ExpiredMetadataError:
            wall = self._clock()
            if wall >= now:
                raise
            # The clock was set back. Metadata not seen before is newer than the time it was ahead.
            chain = self._updated(wall, found)
            if chain.timestamp.version <= seen:
                raise
            return chain, wall

    def _updated(self, now: float, found: list[int]) -> Chain:
        updater = _ClockedUpdater(str(self._cache.trust), self._fetcher, self._root, now)
        try:
            updater.refresh()
        finally:
            found.append(updater.seen)
        newest = follow_root(self._root, self._kept, until=updater.root)[-1]
        return read_chain(read_root(newest), self._kept)

    def _kept(self, name: str, most: int) -> bytes | None:
        """Return metadata verified and stored by the updater."""
        plain = name.split(".", 1)[1] if name[0].isdigit() else name
        path = self._cache.trust / ("root_history/" + name if plain == "root.json" else plain)
        return read_file(path, most) if path.exists() else None

    def _believe(self, chain: Chain, now: float, healed: int) -> Memory:
        followed = follow_root(self._root, self._kept, until=chain.root.version)
        roots = tuple(text.decode() for text in followed)
        texts = tuple(text.decode() for text in chain.texts)
        self.known, self._texts = TrustedMetadata(chain, now), texts
        return Memory(healed=healed, verified_at=now, roots=roots, texts=texts)

    def _recall(self, memory: Memory, reasons: list[str]) -> None:
        """Verify and use again the metadata that verified last, in any process."""
        if memory.texts == self._texts and self.known is not None:
            self.known = TrustedMetadata(self.known.chain, memory.verified_at)
        elif memory.texts:
            try:
                self.known = _recalled(self._root, memory)
                self._texts = memory.texts
            except SteersmanError as error:
                reasons.append(f"the cache: {_reason(error)}")


def _recalled(trusted: bytes, memory: Memory) -> TrustedMetadata:
    """Return the last verified metadata, verified again except for expiry."""
    roots = {f"{read_root(text.encode()).version}.root.json": text for text in memory.roots}
    kept = {**dict(zip(_NAMES, memory.texts, strict=False)), **roots}

    def fetch(name: str, most: int) -> bytes | None:
        text = kept.get(name) or kept.get(name.partition(".")[2])
        return text.encode()[: most + 1] if text is not None else None

    newest = read_root(follow_root(trusted, fetch)[-1])
    return TrustedMetadata(read_chain(newest, fetch), memory.verified_at)


def _reason(error: BaseException) -> str:
    # Without file names: tenants read this message, and it must not show local paths.
    text = getattr(error, "strerror", None) or str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
