"""Incidents: problems of live policies, open until an operator closes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import StateError
from steersman.wire import new_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

_COLUMNS = "tenant, id, rollout, at, kind, summary, detail, closed_at"


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """Incident.

    Attributes:
        tenant: tenant id.
        id: UUIDv7.
        rollout: its rollout; None if there was none.
        at: opening time.
        kind: machine-readable kind, such as ``rolled_back``.
        summary: one sentence for operators.
        detail: data; never personal, because it is kept.
        closed_at: closing time; None while open.
    """

    tenant: UUID
    id: UUID
    rollout: UUID | None
    at: datetime
    kind: str
    summary: str
    detail: dict[str, Any]
    closed_at: datetime | None


async def open_incident(
    connection: Any,
    tenant: UUID,
    *,
    kind: str,
    summary: str,
    detail: Mapping[str, Any],
    at: datetime,
    rollout: UUID | None = None,
) -> IncidentRow:
    """Open an incident in the current transaction."""
    row = await connection.fetchrow(
        "INSERT INTO incident (tenant, id, rollout, at, kind, summary, detail) "  # noqa: S608 (constants)
        f"VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING {_COLUMNS}",
        *(tenant, new_id(), rollout, at, kind, summary, dict(detail)),
    )
    return IncidentRow(*row)


async def close_incident(
    connection: Any, tenant: UUID, identifier: UUID, *, at: datetime
) -> IncidentRow:
    """Close an incident; a repeated call changes nothing. The caller writes the audit row.

    Raises:
        StateError: the tenant has no such incident.
    """
    row = await connection.fetchrow(
        "UPDATE incident SET closed_at = coalesce(closed_at, $3) "  # noqa: S608 (constants)
        f"WHERE tenant = $1 AND id = $2 RETURNING {_COLUMNS}",
        *(tenant, identifier, at),
    )
    if row is None:
        message = f"incident not found: {identifier}; "
        raise StateError(message + "`steersman rollout incidents` lists all")
    return IncidentRow(*row)


async def incidents_of(
    connection: Any,
    tenant: UUID,
    *,
    rollout: UUID | None = None,
    open_only: bool = False,
    limit: int = 100,
) -> list[IncidentRow]:
    """Return incidents of a tenant, newest first."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM incident WHERE tenant = $1 "  # noqa: S608 (constants)
        "AND ($2::uuid IS NULL OR rollout = $2) AND NOT ($3 AND closed_at IS NOT NULL) "
        "ORDER BY at DESC, id DESC LIMIT $4",
        *(tenant, rollout, open_only, limit),
    )
    return [IncidentRow(*row) for row in rows]
