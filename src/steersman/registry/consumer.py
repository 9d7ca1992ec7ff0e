"""Consumer of a registry: loads verified snapshots, and serves cached ones for some days."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from tuf.api.exceptions import DownloadError, DownloadHTTPError, DownloadLengthMismatchError

from steersman.errors import (
    InputError,
    RegistryError,
    SnapshotError,
    StaleError,
    StateError,
    VerificationError,
)
from steersman.points.state_bytes import is_compressed, unpack_state
from steersman.registry.cache import Cache, LoadedVersion, SignedFiles
from steersman.registry.chain import (
    MAX_ROOT,
    file_of,
    follow_root,
    read_chain,
    read_root,
    releases,
    releases_of,
    standings_of,
)
from steersman.registry.description import MAX_DESCRIPTION, Description
from steersman.registry.fetch import Fetcher, open_source
from steersman.registry.loaded import Anchor, LoadedSnapshot
from steersman.registry.metadata_signer import at
from steersman.registry.metadata_updater import MetadataFollower
from steersman.registry.snapshot import check_state, unpack_snapshot
from steersman.registry.storage import MAX_FILE, read_file
from steersman.registry.version_choice import VersionChoice

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray
    from tuf.api.metadata import Targets

    from steersman.platform.breaker import Breaker
    from steersman.registry.chain import Release, Standing
    from steersman.registry.metadata_updater import RefreshResult, TrustedMetadata

    State = Mapping[str, NDArray[Any]]
    from collections.abc import Iterator

    from steersman.registry.chain import Chain
    from steersman.registry.storage import Place

_FAILED = 500


class Circuit(Fetcher):
    """Fetcher behind a circuit breaker; any response, also a refusal, counts as success.

    Args:
        fetcher: fetcher of the registry.
        breaker: breaker of the server, file share or bucket that holds the registry.
    """

    def __init__(self, fetcher: Fetcher, breaker: Breaker) -> None:
        self._fetcher = fetcher
        self._breaker = breaker

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set a total timeout in seconds for all fetches inside the block."""
        with self._fetcher.within(seconds):
            yield

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """Return a file.

        Raises:
            DownloadError: the fetch failed, or the breaker is open.
        """
        turn = self._breaker.turn()
        if turn.wait_s:
            message = (
                f"{url} was not requested: the registry failed recently; it will be retried soon"
            )
            raise DownloadError(message)
        try:
            data = self._fetcher.download_bytes(url, max_length)
        except BaseException as error:
            if _answered(error):
                self._breaker.succeeded(turn)
            else:
                self._breaker.failed(turn)
            raise
        self._breaker.succeeded(turn)
        return data

    def _fetch(self, url: str) -> Iterator[bytes]:
        yield self.download_bytes(url, 1 << 62)


def _answered(error: BaseException) -> bool:
    if isinstance(error, DownloadHTTPError):
        return bool(error.status_code < _FAILED)
    return isinstance(error, DownloadLengthMismatchError)


_log = logging.getLogger(__name__)
_DAY_S = 86_400.0


class Consumer:
    """Reader of one tenant's registry that accepts only verified data.

    Several processes may share a cache. Within one process, use a consumer from one thread at a
    time, or create one per thread.

    Args:
        source: directory, ``file:///…``, ``s3://…``, ``http://…`` or ``https://…``; its last part
            is the tenant name.
        trusted_root: root metadata received over a trusted channel.
        cache: cache folder; created if missing.
        keep: number of versions kept in the cache per decision point, >= 1.
        max_age_days: maximum age in days of the last verification, > 0.
        major: major version that this consumer supports; None: the major version chosen first,
            while the cache holds it and a suitable version of it is published.
        clock: returns seconds since 1970.
        timeout_s: timeout of a refresh or a download in seconds, > 0.
        refresh_s: minimum time between two refreshes in seconds, >= 0.
        breaker: circuit breaker, shared by consumers of the same server, file share or bucket;
            None: no circuit breaker.

    Raises:
        VerificationError: the trusted root is invalid.
        InputError: an argument is out of range.
        RegistryError: the cache cannot be used.
    """

    def __init__(
        self,
        source: str | Path,
        trusted_root: bytes,
        cache: Path,
        *,
        keep: int = 3,
        max_age_days: float = 7.0,
        major: int | None = None,
        clock: Callable[[], float] = time.time,
        timeout_s: float = 60.0,
        refresh_s: float = 30.0,
        breaker: Breaker | None = None,
    ) -> None:
        for name, value, good in (
            ("keep", keep, keep >= 1),
            ("max_age_days", max_age_days, max_age_days > 0),
            ("timeout_s", timeout_s, timeout_s > 0),
            ("refresh_s", refresh_s, refresh_s >= 0),
        ):
            if not good:
                message = f"{name} is {value}; it must be above 0 (keep: at least 1)"
                raise InputError(message)
        fetcher = open_source(source)
        if breaker is not None:
            fetcher = Circuit(fetcher, breaker)
        self._cache = Cache(Path(cache).expanduser().absolute(), keep)
        try:
            self._cache.prepare()
        except OSError as error:
            message = f"the cache {cache} cannot be used: {error.strerror}; check its permissions"
            raise RegistryError(message) from error
        self._following = MetadataFollower(
            trusted_root, fetcher, self._cache, clock=clock, timeout_s=timeout_s
        )
        self._files = SignedFiles(fetcher, self._cache, timeout_s)
        self._max_age_s = max_age_days * _DAY_S
        self._choosing = VersionChoice(self._cache, major)
        self._refresh_s = refresh_s

    def refresh(self) -> RefreshResult:
        """Fetch the newest metadata; never raises for registry errors."""
        return self._following.refresh()

    def points(self) -> list[tuple[str, str]]:
        """Return skill and name of every decision point with published versions.

        Raises:
            SnapshotError: no verified metadata, or it is too old.
        """
        return sorted({(it.skill, it.point) for it in releases(self._targets())})

    def versions(self, skill: str, point: str) -> list[str]:
        """Return the published versions, candidates included, the newest first.

        Raises:
            SnapshotError: no verified metadata, or it is too old.
        """
        return [str(it.version) for it in self._choosing.releases(self._targets(), skill, point)]

    def standings(self, skill: str, point: str) -> dict[str, Standing]:
        """Return the release status of each published version, the newest first.

        Raises:
            SnapshotError: no verified metadata, or it is too old.
        """
        targets = self._targets()
        marks = standings_of(releases_of(targets, skill, point))
        ours = self._choosing.releases(targets, skill, point)
        return {str(it.version): marks[str(it.version)] for it in ours}

    def describe(self, skill: str, point: str, version: str) -> Description:
        """Return the signed description of a version.

        Raises:
            SnapshotError: no verified metadata, version not found, or verification failed.
        """
        known = self._known()
        release = self._choosing.named(known.chain.targets, skill, point, version)
        return self._files.description(known.chain, release, online=self._online(known))

    def anchor(self) -> Anchor | None:
        """Return the signed head of the audit log; None if there is none.

        Raises:
            SnapshotError: no verified metadata, it is too old, or the signed head is invalid.
        """
        return Anchor.of(self._known().chain)

    def data(self, skill: str, point: str, version: str) -> bytes:
        """Return the state file of a version, exactly as signed.

        Raises:
            SnapshotError: no verified metadata, version not found, or verification failed.
        """
        known = self._known()
        release = self._choosing.named(known.chain.targets, skill, point, version)
        return self._files.read(release.state, MAX_FILE, online=self._online(known))

    def load(
        self,
        skill: str,
        point: str,
        version: str | None = None,
        *,
        candidates: bool = False,
        among: Collection[str] | None = None,
    ) -> LoadedSnapshot:
        """Return a verified state.

        Args:
            version: published version, with any status; None: the newest available released version
                of the supported major version.
            among: without ``version``: accept only these versions, with any status; None: select by
                status.

        Raises:
            MissingSnapshotError: the version does not exist, no version is released, or its files
                are missing.
            VerificationError: verification failed, or no metadata ever verified.
            StaleError: the last verification is older than ``max_age_days``.
        """
        known = self._known()
        place = known.chain.targets, skill, point
        if version is not None:
            named = self._choosing.named(*place, version)
            return self._load(known, named, (), chosen=False)
        found = self._choosing.wanted(*place, candidates=candidates, among=among)
        reasons = list(self._following.last.reasons) if self._following.last else []
        tried: list[str] = []
        for release in found:
            try:
                return self._load(known, release, (*reasons, *tried), chosen=not candidates)
            except SnapshotError as error:
                _log.warning("%s/%s %s: %s", skill, point, release.version, error)
                tried.append(str(error))
        if not found:
            raise self._choosing.none(*place, chosen=candidates or among is not None)
        message = f"no version of {skill}/{point} can be loaded: {'; '.join(tried)}"
        raise VerificationError(message)

    def load_or(
        self,
        skill: str,
        point: str,
        version: str | None = None,
        *,
        prior: Callable[[], State],
        warm_start: Path | None = None,
        candidates: bool = False,
    ) -> LoadedSnapshot:
        """Return a verified state, else the warm start, else the prior."""
        try:
            return self.load(skill, point, version, candidates=candidates)
        except RegistryError as error:
            reasons = [str(error)]
        if warm_start is not None:
            try:
                state = _read_state(warm_start)
            except (RegistryError, StateError, OSError) as error:
                reasons.append(f"{warm_start}: {error}")
            else:
                return LoadedSnapshot(state, None, "warm_start", None, tuple(reasons))
        return LoadedSnapshot(prior(), None, "prior", None, tuple(reasons))

    def watch(
        self,
        on_new: Callable[[LoadedSnapshot], None],
        *,
        interval_s: float = 30.0,
        stop: threading.Event,
        points: Sequence[tuple[str, str]] | None = None,
        on_gone: Callable[[str, str, str], None] = lambda _skill, _point, _version: None,
        candidates: bool = False,
    ) -> None:
        """Call back with the current version, then with every new released version, until stopped.

        After a retraction or rollback, the previous version is reported. Loading errors are logged
        and retried; an exception in a callback ends the watch.

        Args:
            interval_s: poll interval in seconds; default 30.
            points: skill and name of each decision point to watch; None: all.
        """
        reported: dict[tuple[str, str], str] = {}
        while not stop.is_set():
            self.refresh()
            for skill, point in self._watched(points):
                loaded = self._news(
                    skill, point, reported.get((skill, point)), candidates=candidates
                )
                if loaded is not None and loaded.description is not None:
                    reported[skill, point] = loaded.description.version
                    on_new(loaded)
            for skill, point in [
                place for place in reported if self._is_gone(*place, candidates=candidates)
            ]:
                version = reported.pop((skill, point))
                _log.warning(
                    "%s/%s %s was retracted or rolled back; no other version is available",
                    skill,
                    point,
                    version,
                )
                on_gone(skill, point, version)
            stop.wait(interval_s)

    def _watched(self, points: Sequence[tuple[str, str]] | None) -> Sequence[tuple[str, str]]:
        try:
            return self.points() if points is None else points
        except SnapshotError as error:
            _log.warning("cannot watch the registry: %s", error)
            return ()

    def _is_gone(self, skill: str, point: str, *, candidates: bool) -> bool:
        """Return whether verified metadata offers no version of a point."""
        try:
            return not self._choosing.wanted(self._targets(), skill, point, candidates=candidates)
        except SnapshotError:  # use the metadata that verified last
            return False

    def _news(
        self, skill: str, point: str, reported: str | None, *, candidates: bool
    ) -> LoadedSnapshot | None:
        try:
            found = self._choosing.wanted(self._targets(), skill, point, candidates=candidates)
            if not found or str(found[0].version) == reported:
                return None
            loaded = self.load(skill, point, candidates=candidates)
        except SnapshotError as error:
            _log.warning("%s/%s cannot be loaded: %s", skill, point, error)
            return None
        same = loaded.description is not None and loaded.description.version == reported
        return None if same else loaded

    def _targets(self) -> Targets:
        return self._known().chain.targets

    def _known(self) -> TrustedMetadata:
        """Return the verified metadata; refresh it first if it is old."""
        last, now = self._following.last, self._following.now()
        if last is None or now - last.at.timestamp() >= self._refresh_s:
            last = self.refresh()
            now = self._following.now()
        known = self._following.known
        if known is None:
            message = f"no registry metadata has verified yet: {'; '.join(last.reasons)}; "
            raise VerificationError(message + "check that the registry is reachable, then retry")
        age_s = now - known.verified_at
        if age_s > self._max_age_s:
            message = (
                f"the registry last verified {age_s / _DAY_S:.1f} days ago, the maximum is "
                f"{self._max_age_s / _DAY_S:g}: {'; '.join(last.reasons)}; check that it is "
                "reachable and that its timestamp is refreshed"
            )
            raise StaleError(message)
        return known

    def _online(self, known: TrustedMetadata) -> bool:
        """Return whether new versions may be loaded."""
        last = self._following.last
        return last is not None and last.online and known.fresh(self._following.now())

    def _load(
        self, known: TrustedMetadata, release: Release, reasons: tuple[str, ...], *, chosen: bool
    ) -> LoadedSnapshot:
        online = self._online(known)
        description = self._files.description(known.chain, release, online=online)
        data = self._files.read(release.state, MAX_FILE, online=online)
        state = unpack_snapshot(data, state_sha256=description.state_sha256)
        check_state(state)
        good = LoadedVersion(
            str(release.version),
            release.state.hashes["sha256"],
            release.description.hashes["sha256"],
            chosen,
        )
        try:
            self._cache.note(release.skill, release.point, good)
        except OSError as error:  # verified data is valid even if the cache cannot record it
            _log.warning("%s cannot be recorded in the cache: %s", release.state.path, error)
        source: Literal["registry", "cache"] = "registry" if online else "cache"
        return LoadedSnapshot(state, description, source, at(known.verified_at), reasons)


def _read_state(path: Path) -> State:
    data = read_file(path, MAX_FILE)
    state = unpack_snapshot(data) if is_compressed(data) else unpack_state(data)
    check_state(state)
    return state


def manifest(source: Consumer | Place) -> str:
    """Return a list of the published versions, for people and scripts.

    The manifest is created on request and not signed. Nothing is loaded from it.

    Raises:
        SnapshotError: no verified metadata, or a description is missing or damaged.
        RegistryError: reading the registry failed.

    >>> import tempfile
    >>> from steersman.registry.storage import DirectoryPlace
    >>> from steersman.registry.keys import Keys
    >>> from steersman.registry.repository import Publisher
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = DirectoryPlace(f"{folder}/acme")
    ...     root = Publisher(place, Keys(f"{folder}/keys")).create("acme", "a long passphrase")
    ...     manifest(place)
    ''
    """
    found = _of_consumer(source) if isinstance(source, Consumer) else _of_place(source)
    return "".join(
        msgspec.json.encode(description.to_json(), order="sorted").decode() + "\n"
        for description in found
    )


def _of_consumer(consumer: Consumer) -> Iterator[Description]:
    for skill, point in consumer.points():
        for version in consumer.versions(skill, point):
            yield consumer.describe(skill, point, version)


def _of_place(place: Place) -> Iterator[Description]:
    chain = _chain(place)
    found = sorted(releases(chain.targets), key=lambda it: it.version, reverse=True)
    for release in sorted(found, key=lambda it: (it.skill, it.point)):
        held = place.read(file_of(release.description), max_bytes=MAX_DESCRIPTION)
        if held is None:
            message = f"{file_of(release.description)} not found; publish or retract the version"
            raise VerificationError(message)
        yield Description.from_json(held.data)


def _chain(place: Place) -> Chain:
    def fetch(name: str, most: int) -> bytes | None:
        held = place.read(f"metadata/{name}", max_bytes=most)
        return held.data if held else None

    first = fetch("1.root.json", MAX_ROOT)
    if first is None:
        message = "registry not found: root metadata is missing; create it, or pass another place"
        raise VerificationError(message)
    return read_chain(read_root(follow_root(first, fetch)[-1]), fetch)
