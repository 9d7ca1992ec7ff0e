"""Snapshot rows: declared, rebuilt and published policy states.

A lineage is a snapshot with its numbered updates. A published snapshot is the state of a lineage
after one of its updates, under its own version; it can start another lineage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.derived_snapshots import exclude_decisions
from steersman.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.work_queue import Point


class Stretch(NamedTuple):
    """Updates of one snapshot that a state includes.

    Attributes:
        snapshot: snapshot version.
        last: number of the last update; None: all.
    """

    snapshot: str
    last: int | None


async def line_of(
    connection: Any, point: Point, snapshot: str, *, until: int | None = None
) -> list[Stretch]:
    """Return the logs that a state builds on, oldest first.

    Args:
        until: last update in the state; None: all.

    Returns:
        The first started empty; the last is the snapshot's own.

    Raises:
        StateError: the snapshot or one that it builds on does not exist.
    """
    rows = await connection.fetch(
        "WITH RECURSIVE line AS ("
        "  SELECT s.id, s.line, s.line_seq, $5::bigint AS last, 0 AS depth FROM snapshot AS s "
        "  WHERE s.tenant = $1 AND s.skill = $2 AND s.point = $3 AND s.id = $4"
        "  UNION ALL "
        "  SELECT s.id, s.line, s.line_seq, b.line_seq, b.depth + 1 FROM line AS b "
        "  JOIN snapshot AS s ON s.tenant = $1 AND s.skill = $2 AND s.point = $3 AND s.id = b.line"
        ") SELECT id, line, last FROM line ORDER BY depth DESC",
        *(*point, snapshot, until),
    )
    if not rows or rows[0]["line"] is not None:
        missing = rows[0]["line"] if rows else snapshot
        raise StateError(
            f"{point[1]}/{point[2]} has no snapshot {missing!r}; "
            "`steersman snapshot list` lists all"
        )
    return [Stretch(row["id"], row["last"]) for row in rows]


async def decisions_learned(
    connection: Any, point: Point, stretch: Stretch, *, after: int = 0
) -> list[UUID]:
    """Return the decisions of some updates."""
    rows = await connection.fetch(
        "SELECT DISTINCT decision FROM update WHERE tenant = $1 AND skill = $2 AND point = $3 "
        "AND snapshot = $4 AND seq > $5 AND ($6::bigint IS NULL OR seq <= $6)",
        *(*point, stretch.snapshot, after, stretch.last),
    )
    return [row["decision"] for row in rows]


async def same_update(
    connection: Any, point: Point, one: tuple[str, int], other: tuple[str, int]
) -> bool:
    """Return whether two updates are copies of one."""
    same: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM update AS a JOIN update AS b "
        "USING (tenant, skill, point, decision, revision, at) "
        "WHERE a.tenant = $1 AND a.skill = $2 AND a.point = $3 "
        "AND a.snapshot = $4 AND a.seq = $5 AND b.snapshot = $6 AND b.seq = $7)",
        *(*point, *one, *other),
    )
    return same


_THIS = "tenant = $1 AND skill = $2 AND point = $3"
_COLUMNS = (
    "tenant, skill, point, id, parent, spec_hash, feature_hash, reason, sha256, algorithm, "
    "samples, line, line_seq, description, created_at, published_at, retracted_at, "
    "state IS NOT NULL AS is_stored"
)


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """Snapshot without its state.

    Attributes:
        tenant: tenant id.
        skill: skill name.
        point: decision point name.
        version: version, such as 0.1.0.
        parent: version that was live before it; of a published one, its lineage.
        spec_hash: hash of its declaration, 32 bytes.
        feature_hash: hash of the feature map of its updates, 32 bytes.
        reason: declared (started empty), rebuilt (its log has all before it) or published
            (starts from the state of another lineage).
        sha256: hash of its stored state, 32 bytes; of a published one, of the signed bytes.
        algorithm: policy algorithm; None in old rows.
        samples: number of learned decisions; None if not counted.
        line: of a published one: its lineage,
        line_seq: and the update number.
        description: signed description; None before signing.
        created_at: creation time of the version.
        published_at: signing time; None if unsigned.
        retracted_at: retraction time; None if not retracted.
        is_stored: whether the row still has its state. Retention removes old states that
            were never live; erasure removes those that learned from erased decisions.
    """

    tenant: UUID
    skill: str
    point: str
    version: str
    parent: str | None
    spec_hash: bytes
    feature_hash: bytes
    reason: str
    sha256: bytes
    algorithm: str | None
    samples: int | None
    line: str | None
    line_seq: int | None
    description: dict[str, Any] | None
    created_at: datetime
    published_at: datetime | None
    retracted_at: datetime | None
    is_stored: bool

    @property
    def is_available(self) -> bool:
        """Whether it may go live: published, not retracted, with a stored state."""
        return self.published_at is not None and self.retracted_at is None and self.is_stored


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenState:
    """State that will become a published snapshot.

    Attributes:
        line: its lineage,
        line_seq: and the update number, 0 or more.
        spec_hash: hash of its declaration, stored by `store_spec`.
        feature_hash: hash of its feature map.
        state: bytes to sign: from `pack_state`, compressed.
        algorithm: policy algorithm.
        samples: number of learned decisions.
        left_out: decisions of the lineage that it did not learn: erased, excluded or not
            learnable. Those of the lineage itself are added.
    """

    line: str
    line_seq: int
    spec_hash: bytes
    feature_hash: bytes
    state: bytes
    algorithm: str
    samples: int
    left_out: Sequence[UUID] = ()


async def snapshots_of(connection: Any, point: Point) -> list[SnapshotRow]:
    """Return all snapshots of a point, oldest first."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM snapshot WHERE {_THIS} ORDER BY created_at, id",  # noqa: S608 (constants)
        *point,
    )
    return [SnapshotRow(*row) for row in rows]


async def retracted_of(connection: Any, tenant: UUID) -> list[SnapshotRow]:
    """Return the retracted versions of a tenant, oldest retraction first."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM snapshot WHERE tenant = $1 AND retracted_at IS NOT NULL "  # noqa: S608 (constants)
        "ORDER BY retracted_at, id",
        tenant,
    )
    return [SnapshotRow(*row) for row in rows]


async def find_snapshot(connection: Any, point: Point, version: str) -> SnapshotRow:
    """Return one snapshot of a point.

    Raises:
        StateError: the version does not exist.
    """
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM snapshot WHERE {_THIS} AND id = $4",  # noqa: S608 (constants)
        *(*point, version),
    )
    if row is None:
        raise _unknown(point, version)
    return SnapshotRow(*row)


async def reserve_snapshot(
    connection: Any,
    point: Point,
    frozen: FrozenState,
    choose: Callable[[Collection[str]], str],
) -> SnapshotRow:
    """Assign a version to a state before publishing.

    The same state of the same lineage and declaration keeps its version unless that was retracted,
    so an interrupted publisher resumes.

    Raises:
        StateError: the lineage does not exist, or the chosen version is taken.
    """
    found = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM snapshot WHERE {_THIS} AND line = $4 AND line_seq = $5 "  # noqa: S608 (constants)
        "AND spec_hash = $6 AND sha256 = sha256($7) AND reason = 'published' "
        "AND retracted_at IS NULL",
        *(*point, frozen.line, frozen.line_seq, frozen.spec_hash, frozen.state),
    )
    if found is not None:
        return SnapshotRow(*found)
    taken = [row.version for row in await snapshots_of(connection, point)]
    if frozen.line not in taken:
        raise _unknown(point, frozen.line)
    version = choose(taken)
    if version in taken:
        raise StateError(
            f"{point[1]}/{point[2]} already has a snapshot {version}; choose another version"
        )
    row = await connection.fetchrow(
        "INSERT INTO snapshot (tenant, skill, point, id, parent, spec_hash, feature_hash, reason, "  # noqa: S608 (constants)
        "state, sha256, algorithm, samples, line, line_seq) VALUES "
        "($1, $2, $3, $4, $5, $6, $7, 'published', $8, sha256($8), $9, $10, $5, $11) "
        f"RETURNING {_COLUMNS}",
        *(*point, version, frozen.line, frozen.spec_hash, frozen.feature_hash, frozen.state),
        *(frozen.algorithm, frozen.samples, frozen.line_seq),
    )
    await exclude_decisions(connection, point, [frozen.line], version, frozen.left_out)
    return SnapshotRow(*row)


async def describe_reserved(
    connection: Any, point: Point, version: str, description: Mapping[str, Any]
) -> SnapshotRow:
    """Store the description to sign, so that a resumed publisher signs the same.

    Raises:
        StateError: the version does not exist or is published.
    """
    row = await connection.fetchrow(
        f"UPDATE snapshot SET description = $5 WHERE {_THIS} AND id = $4 "  # noqa: S608 (constants)
        f"AND reason = 'published' AND published_at IS NULL RETURNING {_COLUMNS}",
        *(*point, version, dict(description)),
    )
    if row is None:
        raise _unknown(point, version)
    return SnapshotRow(*row)


async def mark_published(
    connection: Any, point: Point, version: str, description: Mapping[str, Any]
) -> SnapshotRow:
    """Record that a snapshot was signed; a repeated call changes nothing.

    Raises:
        StateError: the version does not exist or was not reserved for publishing.
    """
    row = await connection.fetchrow(
        "UPDATE snapshot SET published_at = coalesce(published_at, now()), "  # noqa: S608 (constants)
        "description = CASE WHEN published_at IS NULL THEN $5 ELSE description END "
        f"WHERE {_THIS} AND id = $4 AND reason = 'published' RETURNING {_COLUMNS}",
        *(*point, version, dict(description)),
    )
    if row is None:
        raise StateError(
            f"{point[1]}/{point[2]} has no unpublished snapshot {version!r}; publish it again"
        )
    return SnapshotRow(*row)


async def retract(connection: Any, point: Point, version: str) -> SnapshotRow:
    """Record the retraction of a snapshot, so that it cannot go live again.

    Raises:
        StateError: the version is not published, is live, or has an active rollout.
    """
    name = f"{point[1]}/{point[2]} {version}"
    rollout = await connection.fetchval(
        f"SELECT id FROM rollout WHERE {_THIS} AND $4 IN (candidate, control) "  # noqa: S608 (a constant)
        "AND status IN ('running', 'paused')",
        *(*point, version),
    )
    if rollout is not None:
        raise StateError(
            f"cannot retract {name}: a rollout of it is active; "
            f"run `steersman rollout rollback {rollout}`, then retract again"
        )
    if await connection.fetchval(
        f"SELECT EXISTS (SELECT FROM decision_point WHERE {_THIS} AND snapshot = $4)",  # noqa: S608 (a constant)
        *(*point, version),
    ):
        raise StateError(
            f"cannot retract {name}: it is live; add --take-back to return the "
            "point to the version before it"
        )
    row = await connection.fetchrow(
        "UPDATE snapshot SET retracted_at = coalesce(retracted_at, now()) "  # noqa: S608 (constants)
        f"WHERE {_THIS} AND id = $4 AND reason = 'published' RETURNING {_COLUMNS}",
        *(*point, version),
    )
    if row is None:
        raise StateError(
            f"{point[1]}/{point[2]} has no published snapshot {version!r}; "
            "`steersman snapshot list` lists all"
        )
    return SnapshotRow(*row)


async def store_spec(connection: Any, point: Point, spec_hash: bytes, document: str) -> None:
    """Store the declaration of a candidate; a repeated call changes nothing.

    Args:
        spec_hash: hash of the declaration, 32 bytes.
    """
    await connection.execute(
        "INSERT INTO spec (tenant, skill, point, hash, document) VALUES ($1, $2, $3, $4, $5) "
        "ON CONFLICT DO NOTHING",
        *(*point, spec_hash, document),
    )


def _unknown(point: Point, version: str) -> StateError:
    message = f"{point[1]}/{point[2]} has no snapshot {version!r}; "
    return StateError(message + "`steersman snapshot list` lists all")
