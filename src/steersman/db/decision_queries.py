"""Reads of decisions with their rewards and events, besides `decisions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.decisions import DecisionRow

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID


class RewardRevision(NamedTuple):
    """Revision of a decision's reward.

    Attributes:
        revision: revision number, from 1.
        value: reward, 0 to 1; None if there is none.
        status: how it was computed.
        terms: value of each declared term.
        final: whether the window is closed.
        at: time of the revision.
    """

    revision: int
    value: float | None
    status: str
    terms: Any
    final: bool
    at: datetime


class ReportedEvent(NamedTuple):
    """Event of a decision or of its episode.

    Attributes:
        id: event id.
        type: interaction, output, feedback or task_result.
        decision: decision id; None for an event of the episode.
        at: time of the event.
        received_at: time of its arrival.
        outcomes: numbers by name, or None.
        action_taken: action of the application instead of the decided one, or None.
        body: free content.
    """

    id: str
    type: str
    decision: UUID | None
    at: datetime
    received_at: datetime
    outcomes: dict[str, float] | None
    action_taken: str | None
    body: Any


async def decision_row(connection: Any, identifier: UUID) -> DecisionRow | None:
    """Return a decision of the transaction's tenant."""
    found = await connection.fetchrow("SELECT * FROM decision WHERE id = $1", identifier)
    return None if found is None else DecisionRow(**found)


async def is_erased(connection: Any, identifier: UUID) -> bool:
    """Return whether a decision of the transaction's tenant was erased."""
    found = await connection.fetchval("SELECT true FROM erasure WHERE decision = $1", identifier)
    return bool(found)


async def reward_revisions(connection: Any, identifier: UUID) -> list[RewardRevision]:
    """Return all revisions of a decision's reward, in order."""
    rows = await connection.fetch(
        "SELECT revision, value, status, terms, final, at FROM reward WHERE decision = $1 "
        "ORDER BY revision",
        identifier,
    )
    return [RewardRevision(*row) for row in rows]


async def reported_events(
    connection: Any, identifier: UUID, episode: str | None, *, limit: int
) -> list[ReportedEvent]:
    """Return the first events of a decision and of its episode, in order of arrival."""
    rows = await connection.fetch(
        "SELECT id, type, decision, at, received_at, outcomes, action_taken, body FROM event "
        "WHERE decision = $1 OR ($2::text IS NOT NULL AND episode = $2) "
        "ORDER BY received_at, id LIMIT $3",
        *(identifier, episode, limit),
    )
    return [ReportedEvent(*row) for row in rows]
