"""Who did what: a row for everything administrative, in the transaction that does it.

The database numbers the rows of a tenant and chains them by their hashes; `verify_chain` says
whether they are still what was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.wire import new_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One administrative act.

    Attributes:
        id: UUIDv7.
        at: when.
        actor: who, as the caller named them.
        action: what was done, such as ``key.create``.
        subject: to what.
        detail: with what; never a secret.
        seq: its number among the tenant's rows: 1, 2, 3, … without gaps.
        prev_hash: of the row before, 32 bytes; zeros for the first.
        hash: of this row, 32 bytes.
    """

    id: UUID
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    seq: int
    prev_hash: bytes
    hash: bytes


async def record(
    connection: Any,
    tenant: UUID,
    actor: str,
    action: str,
    subject: str,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write down an act, to be committed or rolled back together with it.

    Who writes for the same tenant waits until this transaction ends, so do it last.

    Args:
        connection: within a transaction of this tenant.
        tenant: whose history it belongs to.
        actor: who did it.
        action: what, such as ``key.create``.
        subject: to what.
        detail: with what; must hold no secret.
    """
    await connection.execute(
        # The table's trigger gives it a number, the time and its hash.
        "INSERT INTO audit (tenant, id, actor, action, subject, detail) "
        "VALUES ($1, $2, $3, $4, $5, $6)",
        tenant,
        new_id(),
        actor,
        action,
        subject,
        dict(detail or {}),
    )


async def count_acts(connection: Any, action: str, subject: str, detail: Mapping[str, Any]) -> int:
    """Return how often something was done to something.

    Args:
        connection: within a transaction of the tenant.
        action: what.
        subject: to what.
        detail: that it must have, among others.

    Returns:
        A number of rows of that tenant.
    """
    found: int = await connection.fetchval(
        "SELECT count(*) FROM audit WHERE action = $1 AND subject = $2 AND detail @> $3",
        *(action, subject, dict(detail)),
    )
    return found


async def history(
    connection: Any, *, limit: int = 100, before: int | None = None
) -> list[AuditRow]:
    """Return what was done, the latest first.

    Args:
        connection: within a transaction of the tenant.
        limit: most rows.
        before: only rows with a lower number, to go on where the last call ended.

    Returns:
        Rows of that tenant.
    """
    rows = await connection.fetch(
        "SELECT id, at, actor, action, subject, detail, seq, prev_hash, hash FROM audit "
        "WHERE $1::bigint IS NULL OR seq < $1 "
        "ORDER BY seq DESC LIMIT $2",
        before,
        limit,
    )
    return [AuditRow(**row) for row in rows]
