"""Who did what: a row for everything administrative, in the transaction that does it."""

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
    """

    id: UUID
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


async def record(
    connection: Any,
    tenant: UUID,
    actor: str,
    action: str,
    subject: str,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write down an act, to be committed or rolled back together with it.

    Args:
        connection: within a transaction of this tenant.
        tenant: whose history it belongs to.
        actor: who did it.
        action: what, such as ``key.create``.
        subject: to what.
        detail: with what; must hold no secret.

    No doctest: it needs a server; ``tests/store/test_audit.py`` shows it.
    """
    await connection.execute(
        # Not now(), which is the same for a whole transaction: rows are read in the order of `at`.
        "INSERT INTO audit (tenant, id, at, actor, action, subject, detail) "
        "VALUES ($1, $2, clock_timestamp(), $3, $4, $5, $6)",
        tenant,
        new_id(),
        actor,
        action,
        subject,
        dict(detail or {}),
    )


async def history(
    connection: Any, *, limit: int = 100, before: UUID | None = None
) -> list[AuditRow]:
    """Return what was done, the latest first.

    Args:
        connection: within a transaction of the tenant.
        limit: most rows.
        before: only what is older than this row, to go on where the last call ended.

    Returns:
        Rows of that tenant.

    No doctest: it needs a server; ``tests/store/test_audit.py`` shows it.
    """
    rows = await connection.fetch(
        "SELECT id, at, actor, action, subject, detail FROM audit "
        "WHERE $1::uuid IS NULL OR (at, id) < (SELECT at, id FROM audit WHERE id = $1) "
        "ORDER BY at DESC, id DESC LIMIT $2",
        before,
        limit,
    )
    return [AuditRow(**row) for row in rows]
