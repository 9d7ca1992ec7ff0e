"""Event rows: row type and batch insert with the resulting work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from steersman.db.tenant_ranges import slices

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

Verdict = Literal["replayed", "conflict", "unknown"]
VERDICTS: dict[bytes, Verdict] = {b"r": "replayed", b"c": "conflict", b"u": "unknown"}
# To tell its own rows from those of others the function compares their xmin with the id of the
# whole transaction, so it must be called at its top level: within a savepoint of the caller rows
# carry the id of that, new events would be taken for replayed ones, and would not be written.
LOG_EVENTS = "SELECT owner, event, verdict FROM log_events($1, $2, $3, $4)"


class EventRow(NamedTuple):
    """Row of table ``event``, in column order.

    Attributes:
        tenant: tenant id.
        id: id chosen by the application.
        decision: decision of the event,
        episode: or its episode.
        type: interaction.create, interaction.output, feedback.submit or task_result.
        schema_version: version of its format.
        at: time of the event.
        received_at: arrival time.
        outcomes: finite numbers by name; None for none.
        action_taken: action of the application instead of the decided one.
        body: other data; None for none.
        body_hash: hash of the sent event.
        traceparent: W3C trace context of the request.
    """

    tenant: UUID
    id: str
    decision: UUID | None
    episode: str | None
    type: str
    schema_version: int
    at: datetime
    received_at: datetime
    outcomes: Any
    action_taken: str | None
    body: Any
    body_hash: bytes
    traceparent: str | None


async def log_events(connection: Any, rows: Sequence[EventRow]) -> dict[tuple[UUID, str], Verdict]:
    """Write events of any tenants and queue their work in one transaction, all or none."""
    batch = sorted(rows, key=_order)
    answers = await connection.fetch(LOG_EVENTS, batch, *slices([row.tenant for row in batch]))
    return {(tenant, event): VERDICTS[verdict] for tenant, event, verdict in answers}


def _order(row: EventRow) -> tuple[int, str]:
    return row.tenant.int, row.id
