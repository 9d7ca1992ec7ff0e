"""Which of the published versions will do: of the right major, and marked as is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import MissingSnapshotError
from steersman.registry.chain import releases_of
from steersman.registry.standings import offered, standings_of
from steersman.registry.versions import Version

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tuf.api.metadata import Targets

    from steersman.registry.cache import Cache
    from steersman.registry.chain import Release
    from steersman.registry.standings import Standing


class Choosing:
    """Chooses among what a registry offers of a decision point.

    Args:
        cache: knows what was chosen before.
        major: the major version that its consumer understands; None: that of the newest version
            that was chosen first, for as long as that is in the cache and something of that major
            will do.
    """

    def __init__(self, cache: Cache, major: int | None) -> None:
        self._cache = cache
        self._major = major

    def releases(self, targets: Targets, skill: str, point: str) -> list[Release]:
        """Return what is published of the major that is understood, the newest first.

        Args:
            targets: as they were signed.
            skill: of the decision point.
            point: its name.
        """
        return [
            it
            for it in _newest_first(targets, skill, point)
            if self._major is None or it.version.major == self._major
        ]

    def named(self, targets: Targets, skill: str, point: str, version: str) -> Release:
        """Return a version.

        Args:
            targets: as they were signed.
            skill: of the decision point.
            point: its name.
            version: that is wanted.

        Raises:
            MissingSnapshotError: it is not published, or of another major.
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
        """Return the versions that will do where none is named, the newest first.

        Args:
            targets: as they were signed.
            skill: of the decision point.
            point: its name.
            candidates: whether those will do that are untried or on trial.
            among: the only ones that will do, whatever they are marked as; None: as marked.
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
        """Return the error that nothing will do.

        Args:
            targets: as they were signed.
            skill: of the decision point.
            point: its name.
            chosen: whether others than released ones would have done.
        """
        name, found = f"{skill}/{point}", self.releases(targets, skill, point)
        message = f"no version of {name}{' that will do' * bool(found)} is published; publish one"
        if found and not chosen:
            message = (
                f"no version of {name} is released, of {len(found)} that are published, the newest "
                f"{found[0].version}; promote one, name the one you want, or take `candidates`"
            )
        return MissingSnapshotError(message)

    def _major_for(
        self, skill: str, point: str, marks: Mapping[str, Standing], there: Collection[int]
    ) -> int | None:
        """Return the major of what was chosen first; a candidate that was does not count.

        Nor does one of which nothing is there any more, since all of it was taken back.
        """
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
