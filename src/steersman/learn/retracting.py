"""Taking a version back for good, also the one that serves: the point goes to the last good one.

What a bad version was frozen from is not to be trusted either: its line has learned the same. So
the point goes back to the newest state that was signed before it in the same line, else to what
that line began with, and is pinned there, as the drift guard does. Learning goes on unserved, until
somebody has looked, and unpins it or publishes something better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from steersman.errors import MissingSnapshotError, StateError
from steersman.store import (
    check_settled,
    find_snapshot,
    hold_point,
    open_incident,
    pin_point,
    record,
    retract,
    rollouts_of,
    snapshots_of,
    take_back_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from steersman.store import Point, SnapshotRow


class Retracted(NamedTuple):
    """A version that was taken back.

    Attributes:
        row: the version.
        serves: what serves since in its place, as it was signed; None: it did not serve.
    """

    row: SnapshotRow
    serves: str | None = None


class Offers(Protocol):
    """A tenant's repository, as versions are taken out of it: `steersman.registry.Publisher`."""

    def retract(self, skill: str, point: str, version: str, *, reason: str = "") -> None:
        """Take a version out of what consumers find.

        Args:
            skill: of the decision point.
            point: its name.
            version: that is published.
            reason: kept beside its files.
        """


def take_out(registry: Offers, row: SnapshotRow, reason: str) -> bool:
    """Take a version out of what consumers find; again changes nothing.

    Args:
        registry: the tenant's repository.
        row: of the version.
        reason: kept beside its files.

    Returns:
        Whether it was there.

    Raises:
        RegistryError: the registry cannot be read or written; try again.
    """
    try:
        registry.retract(row.skill, row.point, row.version, reason=reason)
    except MissingSnapshotError:  # archived, or taken out by a call that was killed since
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
) -> Retracted:
    """Take a version back: it never begins to serve again; the caller takes it out of the registry.

    Args:
        connection: of role worker, within a transaction; it holds the point from here on.
        point: tenant, skill and decision point.
        version: of a published snapshot.
        actor: who, for the audit.
        reason: why.
        now: when, for the incident.
        take_back: if it serves, let the last good one serve instead, pinned, and open an incident.

    Returns:
        The version, and what serves in its place.

    Raises:
        StateError: there is no such published version; or it serves, and is not to be taken back
            or nothing can serve instead; nothing was changed.
        RolloutError: it serves, and a rollout is under way beside it; nothing was changed.
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
    return Retracted(row, serves)


async def _last_good(connection: Any, point: Point, bad: SnapshotRow) -> str:
    """Return what was signed before a version in its line; else what that line began with."""
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
    """Return the line that a snapshot came from and how far it had learned; or what it followed."""
    if row.line is not None:
        return row.line, row.line_seq
    return (row.parent if row.parent in known else None), None
