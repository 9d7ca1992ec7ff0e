"""Version selection: published versions with the right major version and release status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import MissingSnapshotError
from steersman.registry.chain import offered, releases_of, standings_of
from steersman.registry.versions import Version

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tuf.api.metadata import Targets

    from steersman.registry.cache import Cache
    from steersman.registry.chain import Release, Standing


class VersionChoice:
    """Version selection for a consumer.

    Args:
        cache: cache that records earlier choices.
        major: major version that the consumer supports; None: the major version chosen first,
            while the cache holds it and a suitable version of it is published.
    """

    def __init__(self, cache: Cache, major: int | None) -> None:
        self._cache = cache
        self._major = major

    def releases(self, targets: Targets, skill: str, point: str) -> list[Release]:
        """Return the published releases of the supported major version, the newest first."""
        return [
            it
            for it in _newest_first(targets, skill, point)
            if self._major is None or it.version.major == self._major
        ]

    def named(self, targets: Targets, skill: str, point: str, version: str) -> Release:
        """Return the release of a version.

        Raises:
            MissingSnapshotError: it is not published, or has another major version.
        """
        for release in self.releases(targets, skill, point):
            if str(release.version) == version:
                return release
        message = (
            f"{skill!s:.80}/{point!s:.80} {version!s:.40} is not among the published versions; "
            "list them with `versions`"
        )
        raise MissingSnapshotError(message)

    def wanted(
        self,
        targets: Targets,
        skill: str,
        point: str,
        *,
        candidates: bool,
        among: Collection[str] | None = None,
    ) -> list[Release]:
        """Return the suitable releases when no version is requested, the newest first.

        Args:
            among: accept only these versions, with any status; None: select by status.
        """
        found = _newest_first(targets, skill, point)
        marks = standings_of(found)
        will_do = offered(marks, candidates=candidates) if among is None else among
        ours = [it for it in found if str(it.version) in will_do]
        major = self._major_for(skill, point, marks, {it.version.major for it in ours})
        return [it for it in ours if major in {None, it.version.major}]

    def none(
        self, targets: Targets, skill: str, point: str, *, chosen: bool
    ) -> MissingSnapshotError:
        """Return the error for the case that no version is suitable."""
        name, found = f"{skill}/{point}", self.releases(targets, skill, point)
        message = f"no {'suitable ' * bool(found)}version of {name} is published; publish one"
        if found and not chosen:
            message = (
                f"none of the {len(found)} published versions of {name} is released; the newest is "
                f"{found[0].version}; promote one, pass a version, or set `candidates`"
            )
        return MissingSnapshotError(message)

    def _major_for(
        self, skill: str, point: str, marks: Mapping[str, Standing], there: Collection[int]
    ) -> int | None:
        """Return the major version chosen first; ignore candidates and retracted versions."""
        if self._major is not None:
            return self._major
        chosen = [
            Version.of(it.version).major
            for it in self._cache.good(skill, point)
            if it.chosen and marks.get(it.version, "released") == "released"
        ]
        return next((major for major in chosen if major in there), None)


def _newest_first(targets: Targets, skill: str, point: str) -> list[Release]:
    return sorted(releases_of(targets, skill, point), key=lambda it: it.version, reverse=True)
