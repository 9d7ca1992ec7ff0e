"""Release marks: released, candidate or rolled back, signed for each published version.

Released versions are or were live: promoted versions, and frozen states of a live lineage. A
candidate is not yet promoted: it was relearned under another declaration, frozen while its point
was pinned to an earlier state, or trained from the log. Rolled back means that its last rollout was
rolled back. Marks depend on database rows only, so any process can sign them later.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from steersman.db.audit import history, record
from steersman.db.derived_snapshots import hold_view
from steersman.db.rollouts import rollouts_of
from steersman.db.snapshots import find_snapshot, snapshots_of
from steersman.errors import RaceError, StateError
from steersman.learning.candidates import Origin, holds_line
from steersman.platform.postgres.database import as_tenant
from steersman.platform.postgres.lease import lock_within, try_lock, unlock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database
    from steersman.registry.chain import Standing

_WAIT_S = 60


@asynccontextmanager
async def alone(connection: Any, point: Point, *, wait: bool = True) -> AsyncIterator[None]:
    """Hold the publish lock of a point; it ends with the process.

    Raises:
        RaceError: another process holds the lock longer than the wait time.
    """
    name = "publish/" + "/".join(map(str, point))
    taking = lock_within(connection, name, _WAIT_S) if wait else try_lock(connection, name)
    if not await taking:
        message = f"another process is publishing {point[1]}/{point[2]}"
        message += f", and has been for {_WAIT_S} s" * wait
        raise RaceError(message + "; nothing was published; try again later")
    try:
        yield
    finally:
        await unlock(connection, name)


_MANY = 1000  # rollouts of one point, or audit entries
_MARKED = "snapshot.mark"


class Marks(Protocol):
    """Repository with marked versions: `steersman.registry.repository.Publisher`."""

    def standings(self, skill: str, point: str) -> dict[str, Standing | None]:
        """Return the marks of the versions of a decision point."""

    def mark(self, skill: str, point: str, standings: Mapping[str, Standing]) -> bool:
        """Sign new marks of versions."""


class VersionFacts(NamedTuple):
    """Database facts about the versions of a decision point.

    Attributes:
        row: the decision point.
        snapshots: all snapshots by version.
        lines: snapshots that are or were live, newest first.
        rollouts: latest rollout by candidate.
        taken_back: candidates that any rollout rolled back.
    """

    row: PointRow
    snapshots: Mapping[str, SnapshotRow]
    lines: frozenset[str]
    rollouts: Mapping[str, RolloutRow]
    taken_back: frozenset[str]

    def standing(self, version: str, signed: Standing | None = None) -> Standing:
        """Return the mark of a version.

        Args:
            signed: its current mark; None if unmarked.
        """
        one = self.snapshots[version]
        if version in self.lines:
            return "released"
        latest = self.rollouts.get(version)
        if latest is not None and latest.status == "rolled_back":
            return "rolled_back"
        if one.line not in self.lines or self._is_relearned(one) or not holds_line(one):
            return "candidate"
        if latest is not None and latest.is_under_way and version in self.taken_back:
            return "candidate"  # a new rollout is active
        if one.line == self.row.snapshot:
            pinned = self.row.pinned_seq
            return "released" if pinned is None or (one.line_seq or 0) <= pinned else "candidate"
        if self._is_tainted(one):
            return "candidate"
        # Its lineage was live before. Only the mark records a pin at the freeze.
        return signed or "released"

    def wanted(self, signed: Mapping[str, Standing | None]) -> dict[str, Standing]:
        """Return the marks that need a change."""
        due: dict[str, Standing] = {}
        for version, mark in signed.items():
            one = self.snapshots.get(version)
            # Foreign versions and retracted ones must not be released.
            is_ours = one is not None and one.retracted_at is None
            new = self.standing(version, mark) if is_ours else "candidate"
            if new != mark:
                due[version] = new
        return due

    def _is_relearned(self, one: SnapshotRow) -> bool:
        return Origin.of((one.description or {}).get("evidence")) is not None

    def _is_tainted(self, one: SnapshotRow) -> bool:
        """Return whether it was frozen from the same lineage after a retracted version."""
        return any(
            bad.retracted_at is not None
            and bad.line == one.line
            and (bad.line_seq or 0) <= (one.line_seq or 0)
            for bad in self.snapshots.values()
        )


async def read_known(connection: Any, point: Point) -> VersionFacts:
    """Return the database facts about a point's versions.

    Raises:
        StateError: the decision point does not exist.
    """
    row = await hold_view(connection, point)
    snapshots = {one.version: one for one in await snapshots_of(connection, point)}
    lines: set[str] = set()
    line: str | None = row.snapshot
    while line is not None and line not in lines:
        lines.add(line)
        line = (snapshots[line].line or snapshots[line].parent) if line in snapshots else None
    found = await rollouts_of(connection, point[0], skill=point[1], point=point[2], limit=_MANY)
    latest = {one.candidate: one for one in reversed(found)}
    taken_back = frozenset(one.candidate for one in found if one.status == "rolled_back")
    return VersionFacts(row, snapshots, frozenset(lines), latest, taken_back)


async def mark_point(
    database: Database, point: Point, registry: Marks, *, actor: str, wait: bool = True
) -> dict[str, Standing]:
    """Sign the marks of a point's versions that changed.

    Each change is written to the audit log first.

    Raises:
        StateError: the decision point does not exist.
        RaceError: another process is publishing to this point or registry; try again.
        RegistryError: signing failed; the next check retries.
        StoreError: the database is unreachable.
    """
    connection = await database.connect("worker")
    try:
        async with alone(connection, point, wait=wait):
            signed = await asyncio.to_thread(registry.standings, *point[1:])
            async with as_tenant(connection, point[0]):
                due = (await read_known(connection, point)).wanted(signed)
                if due:
                    detail = {"standings": due, "before": {one: signed[one] for one in due}}
                    await _record_once(connection, point, actor, detail)
            if due:
                await asyncio.to_thread(registry.mark, *point[1:], due)
            return due
    finally:
        await connection.close()


async def _record_once(
    connection: Any, point: Point, actor: str, detail: Mapping[str, Any]
) -> None:
    """Audit a change of marks once, even if signing is retried."""
    name = f"{point[1]}/{point[2]}"
    newest = await history(connection, limit=_MANY)
    ours = (one.detail for one in newest if (one.action, one.subject) == (_MARKED, name))
    if next(ours, None) != detail:
        await record(connection, point[0], actor, _MARKED, name, detail)


async def release_version(
    database: Database, point: Point, version: str, registry: Marks, *, actor: str
) -> bool:
    """Sign a version as released, if it is or was live.

    Raises:
        StateError: the version is not published or was never live; nothing was changed.
        RaceError: another process is publishing to this point or registry; try again.
        RegistryError: signing failed; the next check retries.
        StoreError: the database is unreachable.
    """
    name = f"{point[1]}/{point[2]} {version}"
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, point[0]):
            one = await find_snapshot(connection, point, version)
            known = await read_known(connection, point)
    finally:
        await connection.close()
    signed = await asyncio.to_thread(registry.standings, *point[1:])
    if one.retracted_at is not None or version not in signed:
        why = "was retracted" if one.retracted_at is not None else "is not in the registry"
        raise StateError(f"{name} {why} and cannot be released; publish another version")
    standing = known.standing(version, signed[version])
    if standing != "released":
        raise StateError(
            f"{name} is {_TOLD[standing]}; only versions that are or were live can be released; "
            "promote it with a rollout first"
        )
    return version in await mark_point(database, point, registry, actor=actor)


_TOLD = {"candidate": "a candidate", "rolled_back": "rolled back"}
