"""Retraction of a version, including the live one.

A bad version comes from a lineage that learned the same data, so its lineage is not trusted either.
The point returns to the newest state signed before it in the same lineage, or to the lineage's
base, and is pinned there. Learning continues in the background until an operator unpins the point
or publishes a better version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from steersman.db.audit import record
from steersman.db.derived_snapshots import hold_point
from steersman.db.incidents import open_incident
from steersman.db.points import check_settled
from steersman.db.promotion import pin_point, take_back_snapshot
from steersman.db.rollouts import rollouts_of
from steersman.db.snapshots import find_snapshot, retract, snapshots_of
from steersman.errors import MissingSnapshotError, StateError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from steersman.db.snapshots import SnapshotRow
    from steersman.db.work_queue import Point


class RetractionResult(NamedTuple):
    """Result of a retraction.

    Attributes:
        row: the retracted version.
        serves: new live version; None if the retracted one was not live.
    """

    row: SnapshotRow
    serves: str | None = None


class VersionListing(Protocol):
    """Repository that can remove versions: `steersman.registry.repository.Publisher`."""

    def retract(self, skill: str, point: str, version: str, *, reason: str = "") -> None:
        """Remove a version from the listing for consumers."""


def take_out(registry: VersionListing, row: SnapshotRow, reason: str) -> bool:
    """Remove a version from the listing for consumers; a repeated call changes nothing.

    Raises:
        RegistryError: the registry cannot be read or written; try again.
    """
    try:
        registry.retract(row.skill, row.point, row.version, reason=reason)
    except MissingSnapshotError:  # archived, or removed by an interrupted call
        return False
    return True


async def retract_version(
    connection: Any,
    point: Point,
    version: str,
    *,
    actor: str,
    reason: str,
    now: datetime,
    take_back: bool = False,
) -> RetractionResult:
    """Retract a version, so that it cannot go live again.

    The caller removes it from the registry.

    Raises:
        StateError: the version is not published, or it is live without ``take_back`` or without a
            replacement; nothing was changed.
        RolloutError: it is live and a rollout is active; nothing was changed.
    """
    held = await hold_point(connection, point)
    name = f"{point[1]}/{point[2]}"
    detail = {"version": version, "reason": reason}
    serves = None
    if take_back and held.snapshot == version:
        await check_settled(connection, point)
        serves = await _last_good(
            connection, point, await find_snapshot(connection, point, version)
        )
        await take_back_snapshot(connection, point, serves)
        await pin_point(connection, point, 0)
        detail |= {"serves": serves}
        await open_incident(
            connection,
            point[0],
            kind="retracted",
            summary=f"{name} {version} was retracted while live; {serves} is now live as it "
            f"was signed: {reason[:400]}",
            detail={**detail, "skill": point[1], "point": point[2], "actor": actor},
            at=now,
        )
    row = await retract(connection, point, version)
    await record(connection, point[0], actor, "snapshot.retract", name, detail)
    return RetractionResult(row, serves)


async def _last_good(connection: Any, point: Point, bad: SnapshotRow) -> str:
    """Return the version signed before it in its lineage, else the lineage's base."""
    known = {row.version: row for row in await snapshots_of(connection, point)}
    rollouts = await rollouts_of(connection, point[0], skill=point[1], point=point[2], limit=1000)
    harmed = {one.candidate for one in rollouts if one.status == "rolled_back"} | {bad.version}
    line, before = bad.line, bad.line_seq
    while line is not None:
        signed = [
            row
            for row in known.values()
            if (row.line, row.spec_hash) == (line, bad.spec_hash)
            and row.is_available
            and row.version not in harmed
            and (before is None or (row.line_seq or 0) < before)
        ]
        if signed:
            return max(signed, key=lambda row: (row.line_seq or 0, row.created_at)).version
        begun = known.get(line)
        if begun is None:
            break
        if _can_serve(begun) and begun.version not in harmed:
            return begun.version
        line, before = _line_before(begun, known)
    message = f"{point[1]}/{point[2]} has no earlier version to replace {bad.version}; "
    raise StateError(message + "declare the point again, or publish another version and promote it")


def _can_serve(row: SnapshotRow) -> bool:
    return row.is_available or (row.reason != "published" and row.is_stored)


def _line_before(
    row: SnapshotRow, known: Mapping[str, SnapshotRow]
) -> tuple[str | None, int | None]:
    """Return the lineage and update number that a snapshot came from, or its predecessor."""
    if row.line is not None:
        return row.line, row.line_seq
    return (row.parent if row.parent in known else None), None
