"""Retention of published versions when a new one is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.registry.chain import releases_of
from steersman.registry.release_status import put_standing, standings_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tuf.api.metadata import Targets

    from steersman.registry.chain import Release


def mark_as_they_counted(targets: Targets, skill: str, point: str) -> None:
    """Set the release status of versions published by earlier releases without one.

    Without it they would count as candidates beside a marked version.
    """
    ours = releases_of(targets, skill, point)
    if all(it.standing is None for it in ours):
        for it in ours:
            put_standing(it.state, "released")


def too_many(ours: list[Release], *, keep: int, new: str, needed: Collection[str]) -> list[Release]:
    """Return the versions to archive."""
    oldest_first = sorted(ours, key=lambda it: (it.state.path == new, it.number, it.version))
    kept = {*needed, *_loaded_by_default(ours)}
    return [it for it in oldest_first[:-keep] if str(it.version) not in kept]


def _loaded_by_default(ours: list[Release]) -> set[str]:
    marks = standings_of(ours)
    found = sorted(it.version for it in ours if marks[str(it.version)] == "released")
    return {str(version) for version in {it.major: it for it in found}.values()}
