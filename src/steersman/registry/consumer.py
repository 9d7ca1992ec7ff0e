"""Loading snapshots: what verified, or nothing; and what verified before, for some days."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from steersman.errors import (
    InputError,
    RegistryError,
    SnapshotError,
    StaleError,
    StateError,
    VerificationError,
)
from steersman.registry.cache import Cache, Good
from steersman.registry.chain import releases, releases_of
from steersman.registry.choosing import Choosing
from steersman.registry.circuit import Circuit
from steersman.registry.fetching import open_source
from steersman.registry.files import SignedFiles
from steersman.registry.loaded import Anchor, Loaded
from steersman.registry.place import MAX_FILE, read_file
from steersman.registry.signing import at
from steersman.registry.snapshot import check_state, unpack_snapshot
from steersman.registry.standings import standings_of
from steersman.registry.states import unpack_state
from steersman.registry.updating import Following

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray
    from tuf.api.metadata import Targets

    from steersman.registry.chain import Release
    from steersman.registry.circuit import Breaker
    from steersman.registry.description import Description
    from steersman.registry.standings import Standing
    from steersman.registry.updating import Known, Refreshed

    State = Mapping[str, NDArray[Any]]

_log = logging.getLogger(__name__)
_DAY_S = 86_400.0
_ZSTD = b"\x28\xb5\x2f\xfd"


class Consumer:
    """Reads one tenant's part of a registry and believes only what verifies.

    Any number of processes may name the same cache. Within one process, let one thread at a time
    use a consumer, or give each its own.

    Args:
        source: a directory, ``file:///…``, ``s3://…``, ``http://…`` or ``https://…``; with the
            tenant's name as its last part.
        trusted_root: root metadata that came over a way that is trusted.
        cache: a folder; made if it is not there.
        keep: how many versions of each decision point stay in the cache, >= 1.
        max_age_days: for how long what verified is served while nothing newer does, > 0.
        major: the major version that this consumer understands; None: that of the newest version
            it found first, for as long as that is in the cache and something of that major will do.
        clock: returns seconds since 1970.
        timeout_s: the longest that a refresh, or a download, may take, > 0.
        refresh_s: what is loaded later than this after a refresh asks the registry again, >= 0.
        breaker: keeps from asking a registry that failed several times in a row; consumers of what
            one server, share or bucket holds may have one together. None: it is always asked.

    Raises:
        VerificationError: the trusted root is none.
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
        self._following = Following(
            trusted_root, fetcher, self._cache, clock=clock, timeout_s=timeout_s
        )
        self._files = SignedFiles(fetcher, self._cache, timeout_s)
        self._max_age_s = max_age_days * _DAY_S
        self._choosing = Choosing(self._cache, major)
        self._refresh_s = refresh_s

    def refresh(self) -> Refreshed:
        """Ask the registry for its newest metadata; never raises for what it answers.

        Returns:
            Whether it verified, and if not, why.
        """
        return self._following.refresh()

    def points(self) -> list[tuple[str, str]]:
        """Return skill and name of every decision point that has versions.

        Raises:
            SnapshotError: no verified metadata, or it is too old.
        """
        return sorted({(it.skill, it.point) for it in releases(self._targets())})

    def versions(self, skill: str, point: str) -> list[str]:
        """Return the versions that are published, the newest first; candidates are among them.

        Args:
            skill: skill name.
            point: decision point name.

        Raises:
            SnapshotError: no verified metadata, or it is too old.
        """
        return [str(it.version) for it in self._choosing.releases(self._targets(), skill, point)]

    def standings(self, skill: str, point: str) -> dict[str, Standing]:
        """Return what each published version is, the newest first.

        Args:
            skill: skill name.
            point: decision point name.

        Returns:
            ``"candidate"``: untried or on trial; ``"released"``: it serves, or did, and is what
            `load` takes; ``"rolled_back"``: it was tried and taken back. Where nothing of the
            point is marked, as earlier releases published it, all count as released.

        Raises:
            SnapshotError: no verified metadata, or it is too old.
        """
        targets = self._targets()
        marks = standings_of(releases_of(targets, skill, point))
        ours = self._choosing.releases(targets, skill, point)
        return {str(it.version): marks[str(it.version)] for it in ours}

    def describe(self, skill: str, point: str, version: str) -> Description:
        """Return what was signed about a version.

        Args:
            skill: skill name.
            point: decision point name.
            version: is published.

        Raises:
            SnapshotError: no verified metadata, version not found, or verification failed.
        """
        known = self._known()
        release = self._choosing.named(known.chain.targets, skill, point, version)
        return self._files.description(known.chain, release, online=self._online(known))

    def anchor(self) -> Anchor | None:
        """Return the head of the audit log as it was signed; None if none was.

        Raises:
            SnapshotError: nothing verified, or too long ago, or what was signed is no head.
        """
        return Anchor.of(self._known().chain)

    def data(self, skill: str, point: str, version: str) -> bytes:
        """Return the file of a state, to the byte as it was signed.

        Args:
            skill: skill name.
            point: decision point name.
            version: is published.

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
    ) -> Loaded:
        """Return a state that verified.

        Args:
            skill: skill name.
            point: decision point name.
            version: a published one, whatever it is marked as; None: the newest released one that
                can be had, of the right major version.
            candidates: without ``version``: whether those will do that are untried or on trial;
                what was rolled back does not.
            among: without ``version``: the only ones that will do, whatever they are marked as;
                None: as they are marked.

        Returns:
            The state; with ``reasons`` if newer ones could not be had.

        Raises:
            MissingSnapshotError: there is no such version, none is released, or its files are gone.
            VerificationError: it does not verify, or nothing of the registry ever did.
            StaleError: nothing of the registry verified for longer than ``max_age_days``.
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
    ) -> Loaded:
        """Return a state in any case: verified, else the warm start, else the prior.

        Args:
            skill: skill name.
            point: decision point name.
            version: as for `load`.
            prior: makes the state that has learned nothing.
            warm_start: a file of ``pack_snapshot`` or ``pack_state`` that is trusted as it lies
                there; checked, but not signed.
            candidates: as for `load`.
        """
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
                return Loaded(state, None, "warm_start", None, tuple(reasons))
        return Loaded(prior(), None, "prior", None, tuple(reasons))

    def watch(
        self,
        on_new: Callable[[Loaded], None],
        *,
        interval_s: float = 30.0,
        stop: threading.Event,
        points: Sequence[tuple[str, str]] | None = None,
        on_gone: Callable[[str, str, str], None] = lambda _skill, _point, _version: None,
        candidates: bool = False,
    ) -> None:
        """Call back with every new released version, until stopped; at first with what there is.

        A version that was retracted or rolled back is followed by the one before it. What cannot
        be loaded is logged and tried again; what a callback raises ends the watch.

        Args:
            on_new: is given the loaded version.
            interval_s: seconds between two looks.
            stop: ends it when it is set.
            points: skill and name of each decision point that matters; None: all.
            on_gone: is given skill, point and version where what was loaded was retracted or
                rolled back and nothing is left of the point: begin again from a prior.
            candidates: as for `load`.
        """
        told: dict[tuple[str, str], str] = {}
        while not stop.is_set():
            self.refresh()
            for skill, point in self._watched(points):
                loaded = self._news(skill, point, told.get((skill, point)), candidates=candidates)
                if loaded is not None and loaded.description is not None:
                    told[skill, point] = loaded.description.version
                    on_new(loaded)
            for skill, point in [
                place for place in told if self._is_gone(*place, candidates=candidates)
            ]:
                version = told.pop((skill, point))
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
        """Return whether a registry that is believed offers nothing of a point."""
        try:
            return not self._choosing.wanted(self._targets(), skill, point, candidates=candidates)
        except SnapshotError:  # what verified last is all that is known
            return False

    def _news(self, skill: str, point: str, told: str | None, *, candidates: bool) -> Loaded | None:
        try:
            found = self._choosing.wanted(self._targets(), skill, point, candidates=candidates)
            if not found or str(found[0].version) == told:
                return None
            loaded = self.load(skill, point, candidates=candidates)
        except SnapshotError as error:
            _log.warning("%s/%s cannot be loaded: %s", skill, point, error)
            return None
        same = loaded.description is not None and loaded.description.version == told
        return None if same else loaded

    def _targets(self) -> Targets:
        return self._known().chain.targets

    def _known(self) -> Known:
        """Return what is believed now; ask the registry first if that was long ago."""
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

    def _online(self, known: Known) -> bool:
        """Return whether something new may be loaded."""
        last = self._following.last
        return last is not None and last.online and known.fresh(self._following.now())

    def _load(
        self, known: Known, release: Release, reasons: tuple[str, ...], *, chosen: bool
    ) -> Loaded:
        online = self._online(known)
        description = self._files.description(known.chain, release, online=online)
        state = unpack_snapshot(self._files.read(release.state, MAX_FILE, online=online))
        check_state(state)
        good = Good(
            str(release.version),
            release.state.hashes["sha256"],
            release.description.hashes["sha256"],
            chosen,
        )
        try:
            self._cache.note(release.skill, release.point, good)
        except OSError as error:  # it verified: serve it, though it may not be there next time
            _log.warning("%s cannot be recorded in the cache: %s", release.state.path, error)
        source: Literal["registry", "cache"] = "registry" if online else "cache"
        return Loaded(state, description, source, at(known.verified_at), reasons)


def _read_state(path: Path) -> State:
    data = read_file(path, MAX_FILE)
    state = unpack_snapshot(data) if data[:4] == _ZSTD else unpack_state(data)
    check_state(state)
    return state
