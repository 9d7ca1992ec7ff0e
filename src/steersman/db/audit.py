"""Audit log: one row per administrative action, in the transaction of the action.

The database numbers the rows of a tenant and chains their hashes; `verify_chain` checks the chain.
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
    """One administrative action.

    Attributes:
        id: UUIDv7.
        at: time of the action.
        actor: actor name given by the caller.
        action: action name, such as ``key.create``.
        subject: object of the action.
        detail: parameters; never a secret.
        seq: row number of the tenant: 1, 2, 3, … without gaps.
        prev_hash: hash of the previous row, 32 bytes; zeros for the first.
        hash: hash of this row, 32 bytes.
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
    """Add an audit row in the current transaction.

    Other writers of the tenant's audit log wait until this transaction ends, so call it last.
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
    """Return the number of audit rows with an action and subject."""
    found: int = await connection.fetchval(
        "SELECT count(*) FROM audit WHERE action = $1 AND subject = $2 AND detail @> $3",
        *(action, subject, dict(detail)),
    )
    return found


async def history(
    connection: Any, *, limit: int = 100, before: int | None = None
) -> list[AuditRow]:
    """Return audit rows, newest first."""
    rows = await connection.fetch(
        "SELECT id, at, actor, action, subject, detail, seq, prev_hash, hash FROM audit "
        "WHERE $1::bigint IS NULL OR seq < $1 "
        "ORDER BY seq DESC LIMIT $2",
        before,
        limit,
    )
    return [AuditRow(**row) for row in rows]
