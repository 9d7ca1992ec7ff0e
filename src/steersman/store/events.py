"""Events on their way to disk: the row, and a batch of rows with the work they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from steersman.store.slices import slices

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
    """One row of table ``event``, in the order of its columns.

    Attributes:
        tenant: whose it is.
        id: chosen by the application.
        decision: what it is about: this decision,
        episode: or this episode.
        type: interaction.create, interaction.output, feedback.submit or task_result.
        schema_version: of its format.
        at: when it happened.
        received_at: when it came in.
        outcomes: finite numbers by name; None if it has none.
        action_taken: what the application did instead of the action it was told.
        body: anything else; None if there is nothing.
        body_hash: of the event as it was sent.
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
    """Write events of any tenants and queue their work, all or none, in one transaction.

    Args:
        connection: of role app, not within a transaction, and never within a savepoint.
        rows: in any order; no (tenant, id) twice.

    Returns:
        By (tenant, id), what was not written and why: ``replayed``, the same event is there;
        ``conflict``, the id is there with another body; ``unknown``, no such decision or episode.
    """
    batch = sorted(rows, key=_order)
    answers = await connection.fetch(LOG_EVENTS, batch, *slices([row.tenant for row in batch]))
    return {(tenant, event): VERDICTS[verdict] for tenant, event, verdict in answers}


def _order(row: EventRow) -> tuple[int, str]:
    return row.tenant.int, row.id
