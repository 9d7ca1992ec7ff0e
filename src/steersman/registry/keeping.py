"""Which versions of a decision point stay where consumers find them when a new one is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.registry.chain import releases_of
from steersman.registry.standings import put_standing, standings_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tuf.api.metadata import Targets

    from steersman.registry.chain import Release


def mark_as_they_counted(targets: Targets, skill: str, point: str) -> None:
    """Mark what an earlier release published: beside a marked version it would be a candidate.

    Args:
        targets: are changed.
        skill: of the decision point.
        point: its name.
    """
    ours = releases_of(targets, skill, point)
    if all(it.standing is None for it in ours):
        for it in ours:
            put_standing(it.state, "released")


def too_many(ours: list[Release], *, keep: int, new: str, needed: Collection[str]) -> list[Release]:
    """Return the versions that go to the archive, since there are newer ones.

    Args:
        ours: all of one decision point.
        keep: how many stay.
        new: path of the state that is published now.
        needed: versions that stay however old they are. The newest released one of each major
            stays too: candidates must not push it out.
    """
    oldest_first = sorted(ours, key=lambda it: (it.state.path == new, it.number, it.version))
    kept = {*needed, *_loaded_by_default(ours)}
    return [it for it in oldest_first[:-keep] if str(it.version) not in kept]


def _loaded_by_default(ours: list[Release]) -> set[str]:
    marks = standings_of(ours)
    found = sorted(it.version for it in ours if marks[str(it.version)] == "released")
    return {str(version) for version in {it.major: it for it in found}.values()}
