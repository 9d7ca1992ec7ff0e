"""What each published version is, as the store knows it, signed into the registry.

Released is what serves or has served: a version that was promoted, and the state of a line that
serves as it was frozen. A version relearned under another declaration, or frozen from a line while
its point was pinned to something earlier, or trained elsewhere, such as trees that were grown from
its log, is a candidate until it is promoted; one whose last
rollout was taken back is rolled back. The store alone decides: whoever signs does what it says, at
once or at the next turn of whoever ships, so it does not matter where a process was killed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from steersman.errors import StateError
from steersman.learn.candidates import Origin, holds_line
from steersman.learn.taking_turns import alone
from steersman.store import (
    as_tenant,
    find_snapshot,
    history,
    hold_view,
    record,
    rollouts_of,
    snapshots_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.registry import Standing
    from steersman.store import Database, Point, PointRow, RolloutRow, SnapshotRow

_MANY = 1000  # rollouts of one point, or entries of the audit
_MARKED = "snapshot.mark"


class Marks(Protocol):
    """A tenant's repository, as its versions are marked: `steersman.registry.Publisher`."""

    def standings(self, skill: str, point: str) -> dict[str, Standing | None]:
        """Return how the versions of a decision point are marked.

        Args:
            skill: of the decision point.
            point: its name.
        """

    def mark(self, skill: str, point: str, standings: Mapping[str, Standing]) -> bool:
        """Sign what versions are from now on.

        Args:
            skill: of the decision point.
            point: its name.
            standings: of each version that is to be marked.

        Returns:
            Whether anything changed.
        """


class Known(NamedTuple):
    """What the store knows of a decision point's versions.

    Attributes:
        row: the point.
        snapshots: every snapshot by its version.
        lines: the snapshots that serve or served before, in one chain from what serves now.
        rollouts: the latest of each candidate.
        taken_back: the candidates that a rollout rolled back, be it not the latest.
    """

    row: PointRow
    snapshots: Mapping[str, SnapshotRow]
    lines: frozenset[str]
    rollouts: Mapping[str, RolloutRow]
    taken_back: frozenset[str]

    def standing(self, version: str, signed: Standing | None = None) -> Standing:
        """Return what a version is.

        Args:
            version: of a published snapshot, or one that is about to be published.
            signed: its mark until now; None: it has none.
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
            return "candidate"  # on trial again
        if one.line == self.row.snapshot:
            pinned = self.row.pinned_seq
            return "released" if pinned is None or (one.line_seq or 0) <= pinned else "candidate"
        if self._is_tainted(one):
            return "candidate"
        # Its line served before. Whether that was pinned when it was frozen only the mark tells.
        return signed or "released"

    def wanted(self, signed: Mapping[str, Standing | None]) -> dict[str, Standing]:
        """Return the marks that are to be changed.

        Args:
            signed: the marks of what consumers find.
        """
        due: dict[str, Standing] = {}
        for version, mark in signed.items():
            one = self.snapshots.get(version)
            # What is not from here, or retracted and about to be taken out, is not ours to release.
            is_ours = one is not None and one.retracted_at is None
            new = self.standing(version, mark) if is_ours else "candidate"
            if new != mark:
                due[version] = new
        return due

    def _is_relearned(self, one: SnapshotRow) -> bool:
        return Origin.of((one.description or {}).get("evidence")) is not None

    def _is_tainted(self, one: SnapshotRow) -> bool:
        """Return whether it was frozen from the same line after a version that was retracted."""
        return any(
            bad.retracted_at is not None
            and bad.line == one.line
            and (bad.line_seq or 0) <= (one.line_seq or 0)
            for bad in self.snapshots.values()
        )


async def read_known(connection: Any, point: Point) -> Known:
    """Return what the store knows of a point's versions.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.

    Returns:
        The rows, and what each version is by them.

    Raises:
        StateError: there is no such point.
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
    return Known(row, snapshots, frozenset(lines), latest, taken_back)


async def mark_point(
    database: Database, point: Point, registry: Marks, *, actor: str, wait: bool = True
) -> dict[str, Standing]:
    """Sign what each version of a point is, where that differs from what was signed.

    It is audited first: a mark that nobody finds in the audit is none of ours.

    Args:
        database: migrated.
        point: tenant, skill and decision point.
        registry: the tenant's repository.
        actor: who, for the audit.
        wait: while another process publishes this point; False: not at all.

    Returns:
        The marks that changed.

    Raises:
        StateError: there is no such point.
        RaceError: another process publishes this point, or this registry, all the time; repeat.
        RegistryError: it could not be signed; the next turn does it.
        StoreError: the server does not answer.
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
    """Audit a change of marks, unless it is the one that could not be signed the last time."""
    name = f"{point[1]}/{point[2]}"
    newest = await history(connection, limit=_MANY)
    ours = (one.detail for one in newest if (one.action, one.subject) == (_MARKED, name))
    if next(ours, None) != detail:
        await record(connection, point[0], actor, _MARKED, name, detail)


async def release_version(
    database: Database, point: Point, version: str, registry: Marks, *, actor: str
) -> bool:
    """Sign at once that a version is released, if it serves or has served.

    Args:
        database: migrated.
        point: tenant, skill and decision point.
        version: of a published snapshot.
        registry: the tenant's repository.
        actor: who, for the audit.

    Returns:
        Whether it was marked otherwise before.

    Raises:
        StateError: there is no such published version, or it never served; nothing was changed.
        RaceError: another process publishes this point, or this registry, all the time; repeat.
        RegistryError: it could not be signed; the next turn does it.
        StoreError: the server does not answer.
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
