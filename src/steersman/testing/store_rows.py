"""Fixtures of the store checks: two tenants on a server, and their rows as JSON.

Rows go in through the SQL functions alone, so that whatever speaks PostgreSQL can be checked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID, uuid4

from steersman.wire import id_time, new_id

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLES = ("app", "worker", "owner")


class Server(Protocol):
    """Protocol of a checked database; ``steersman.platform.postgres.database.Database`` implements it."""

    async def connect(self, role: Any = "app") -> Any:
        """Return an asyncpg connection that acts as a role: app, worker or owner.

        Args:
            role: whose rights it has.
        """


@dataclass
class Place:
    """Two tenants on a server, and a connection of each role.

    Attributes:
        database: the server.
        mine: a tenant.
        theirs: another.
        roles: connections, by role.
    """

    database: Server
    mine: UUID
    theirs: UUID
    roles: dict[str, Any]

    async def close(self) -> None:
        """Close the connections."""
        for connection in self.roles.values():
            await connection.close()

    async def fetch(self, role: str, tenant: UUID | None, query: str, *arguments: Any) -> Any:
        """Return the rows that a role reads as a tenant, or without a tenant."""
        connection = self.roles[role]
        async with connection.transaction():
            if tenant is not None:
                await _set_tenant(connection, tenant)
            return await connection.fetch(query, *arguments)


async def prepare(database: Server) -> Place:
    """Create two tenants, and connect as every role."""
    place = Place(database, uuid4(), uuid4(), {})
    for role in ROLES:
        place.roles[role] = await database.connect(role)
    for tenant in (place.mine, place.theirs):
        await place.fetch(
            *("owner", tenant, "INSERT INTO tenant (id, name) VALUES ($1, $2)", tenant),
            f"check-{tenant.hex}",
        )
    return place


async def _set_tenant(connection: Any, tenant: UUID) -> None:
    await connection.execute("SELECT set_config('app.tenant', $1, true)", str(tenant))


async def write_decisions(
    connection: Any, rows: Sequence[dict[str, Any]]
) -> dict[UUID, tuple[UUID, bytes]]:
    """Write decisions; return the earlier decision and body hash of those whose key was taken."""
    ordered = sorted(rows, key=lambda row: (row["tenant"], row["idempotency_key"] or "", row["id"]))
    taken = await connection.fetch(
        "SELECT asked, earlier, earlier_hash FROM log_decisions("
        "ARRAY(SELECT jsonb_populate_record(NULL::decision, r) "
        "FROM jsonb_array_elements($1::text::jsonb) AS r), $2, $3, $4, '{}')",
        *(json.dumps(ordered), *_slices(ordered)),
    )
    return {row["asked"]: (row["earlier"], row["earlier_hash"]) for row in taken}


async def write_events(connection: Any, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Write events; return r (replayed), c (conflict) or u (unknown) for those not written."""
    ordered = sorted(rows, key=lambda row: (row["tenant"], row["id"]))
    told = await connection.fetch(
        "SELECT event, verdict::text FROM log_events("
        "ARRAY(SELECT jsonb_populate_record(NULL::event, r) "
        "FROM jsonb_array_elements($1::text::jsonb) AS r), $2, $3, $4)",
        *(json.dumps(ordered), *_slices(ordered)),
    )
    return {row["event"]: row["verdict"] for row in told}


def _slices(rows: Sequence[dict[str, Any]]) -> tuple[list[UUID], list[int], list[int]]:
    """Return the tenants of sorted rows, and the first and last place of each from 1."""
    tenants = [row["tenant"] for row in rows]
    names = sorted(set(tenants))
    firsts = [tenants.index(name) + 1 for name in names]
    lasts = [first + tenants.count(name) - 1 for first, name in zip(firsts, names, strict=True)]
    return [UUID(name) for name in names], firsts, lasts


def decision(tenant: UUID, **changes: Any) -> dict[str, Any]:
    """Return a decision as JSON, made now or at the time of ``id``."""
    identifier = changes.pop("id", None) or str(new_id())
    at = datetime.fromtimestamp(id_time(UUID(identifier)), UTC).isoformat()
    row = {
        **dict.fromkeys(("episode", "idempotency_key", "body_hash")),
        "tenant": str(tenant),
        "id": identifier,
        "skill": "check",
        "point": "store",
        "stage": "live",
        "arm": "control",
        "snapshot": "0.1.0",
        "update_seq": 0,
        "spec_hash": "\\x00",
        "feature_hash": "\\x00",
        "context": {"é": [1.5, None]},
        "distribution": [0.25, 0.75],
        "action": "b",
        "p": 0.75,
        "p_kind": "exact",
        "degraded": False,
        "weight": 1,
        "at": at,
        "window_ends": at,
    }
    return {**row, **changes}


def event(tenant: UUID, decision: str | None, **changes: Any) -> dict[str, Any]:
    """Return an event as JSON, received now."""
    now = datetime.now(UTC).isoformat()
    row = {
        "tenant": str(tenant),
        "id": uuid4().hex,
        "decision": decision,
        "type": "feedback.submit",
        "schema_version": 1,
        "at": now,
        "received_at": now,
        "outcomes": {"ok": 1},
        "body_hash": "\\x01",
    }
    return {**row, **changes}
