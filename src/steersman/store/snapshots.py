"""Snapshots as rows: those a point began with, those it was rebuilt into, and those published.

A line is a snapshot and the updates numbered after it. A published snapshot is the state of a line
after one of its updates, under a version of its own; it can be the beginning of another line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import StateError
from steersman.store.relearning import exclude_decisions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.store.work import Point

_THIS = "tenant = $1 AND skill = $2 AND point = $3"
_COLUMNS = (
    "tenant, skill, point, id, parent, spec_hash, feature_hash, reason, sha256, algorithm, "
    "samples, line, line_seq, description, created_at, published_at, retracted_at, "
    "state IS NOT NULL AS is_stored"
)


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A snapshot without its state.

    Attributes:
        tenant: whose it is.
        skill: the application capability.
        point: the decision point's name.
        version: such as 0.1.0.
        parent: the version that served before it; of a published one, its line.
        spec_hash: of the declaration that it was made under, 32 bytes.
        feature_hash: of the feature map that its updates are encoded with, 32 bytes.
        reason: declared (it begins with nothing learned), rebuilt (its own log holds all before
            it) or published (it begins with the state of another line).
        sha256: of its state as the row holds it, 32 bytes.
        algorithm: as the policy names it; None in rows of earlier versions.
        samples: decisions that its state learned from; None if that was never counted.
        line: published: the snapshot whose state it is,
        line_seq: and after how many of its updates.
        description: as it was signed; None before.
        created_at: when the version was given out.
        published_at: when it was signed; None if it was not, or not yet.
        retracted_at: when it was taken back; None if it was not.
        is_stored: whether the row has its state still: `keep` removes those of old snapshots that
            never served, erasing those that learned from what was erased.
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
        """Whether it may begin to serve: published, not retracted, and its state still there."""
        return self.published_at is not None and self.retracted_at is None and self.is_stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A state that is to become a published snapshot.

    Attributes:
        line: the snapshot whose state it is,
        line_seq: and after how many of its updates, 0 or more.
        spec_hash: of the declaration that it was learned under; stored by `store_spec`.
        feature_hash: of its feature map.
        state: as `pack_state` returns it.
        algorithm: as the policy names it.
        samples: decisions that it learned from.
        left_out: decisions of the line that it never learned: erased, excluded, or not learnable
            under its declaration. Those of the line itself are added.
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
    """Return every snapshot of a point, those that were never published or retracted too.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.

    Returns:
        Oldest first.
    """
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM snapshot WHERE {_THIS} ORDER BY created_at, id",  # noqa: S608 (constants)
        *point,
    )
    return [SnapshotRow(*row) for row in rows]


async def retracted_of(connection: Any, tenant: UUID) -> list[SnapshotRow]:
    """Return the versions of a tenant that were taken back.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.

    Returns:
        Of all its decision points, the first that was taken back first.
    """
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM snapshot WHERE tenant = $1 AND retracted_at IS NOT NULL "  # noqa: S608 (constants)
        "ORDER BY retracted_at, id",
        tenant,
    )
    return [SnapshotRow(*row) for row in rows]


async def find_snapshot(connection: Any, point: Point, version: str) -> SnapshotRow:
    """Return one snapshot of a point.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        version: of the snapshot.

    Returns:
        Its row.

    Raises:
        StateError: there is none of that version.
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
    frozen: Frozen,
    choose: Callable[[Collection[str]], str],
) -> SnapshotRow:
    """Give a state a version of its own, before anything of it is published.

    The same state of the same line under the same declaration gets the version that it has
    already, unless that one was retracted: a publisher that was stopped goes on where it was.

    Args:
        connection: of role worker, within a transaction of the tenant that holds the point.
        point: tenant, skill and decision point.
        frozen: the state, and where it comes from.
        choose: returns a version that is none of those given: all that the point ever had.

    Returns:
        Its row; ``published_at`` tells whether it was published before.

    Raises:
        StateError: there is no such line, or the version that was chosen is taken.
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
    """Write down what is going to be signed, so that it is the same whoever goes on with it.

    Args:
        connection: of role worker, within the transaction that reserved it.
        point: tenant, skill and decision point.
        version: that `reserve_snapshot` gave out.
        description: without what only publishing tells: size, hash and place.

    Returns:
        Its row.

    Raises:
        StateError: there is no such version that waits to be published.
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
    """Write down that a snapshot was signed and can be fetched; again changes nothing.

    Args:
        connection: of role worker, within a transaction of the tenant.
        point: tenant, skill and decision point.
        version: that `reserve_snapshot` gave out.
        description: as it was signed.

    Returns:
        Its row.

    Raises:
        StateError: there is no such version, or it was never to be published.
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
    """Write down that a snapshot is taken back: it never begins to serve again.

    Args:
        connection: of role worker, within a transaction of the tenant.
        point: tenant, skill and decision point.
        version: of a published snapshot.

    Returns:
        Its row.

    Raises:
        StateError: there is no such published version, it serves, or a rollout of it is under way.
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
    """Store the declaration of a candidate that was never declared; again changes nothing.

    Args:
        connection: of role worker, within a transaction of the tenant.
        point: tenant, skill and decision point.
        spec_hash: 32 bytes, of the declaration.
        document: its YAML.
    """
    await connection.execute(
        "INSERT INTO spec (tenant, skill, point, hash, document) VALUES ($1, $2, $3, $4, $5) "
        "ON CONFLICT DO NOTHING",
        *(*point, spec_hash, document),
    )


def _unknown(point: Point, version: str) -> StateError:
    message = f"{point[1]}/{point[2]} has no snapshot {version!r}; "
    return StateError(message + "`steersman snapshot list` lists all")
