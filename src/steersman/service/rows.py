"""From a draw to the row that is stored, and from a row to the answer it stands for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.service.selecting import picked_in, steps_in
from steersman.spec import Mixed, loads
from steersman.spec import Sequence as SequenceActions
from steersman.store import DecisionRow
from steersman.wire import Decision, Refused, read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.service.drawing import Served
    from steersman.service.turns import Drew
    from steersman.spec import DecisionPoint
    from steersman.wire import DecideRequest

declared = lru_cache(maxsize=256)(loads)
"""The declaration of a row that was read: many rows stand under few, and some are long."""


class Wanted(NamedTuple):
    """A request that was read, and what it is about.

    Attributes:
        tenant: who asks.
        served: the decision point.
        request: what is asked.
        body_hash: of the request, where it has a key.
        traceparent: W3C trace context.
        read_at: when it was read, on the clock that deadlines are kept by.
    """

    tenant: UUID
    served: Served
    request: DecideRequest
    body_hash: bytes | None
    traceparent: str | None
    read_at: float


def to_row(
    wanted: Wanted, context: dict[str, Any], drew: Drew, *, identifier: UUID, at: datetime
) -> DecisionRow:
    """Return the row of a draw.

    Args:
        wanted: what was asked.
        context: of the request, completed.
        drew: what came of it.
        identifier: of the decision.
        at: when it was drawn.

    Returns:
        The row: what was asked, by whom it was drawn, and the draw.
    """
    request, served = wanted.request, drew.served
    replica = served.replica
    columns = (
        *(wanted.tenant, identifier),
        *(request.skill, request.decision),
        *(request.episode_id, request.parent_id, request.unit),
        *drew.label,
        *(replica.snapshot, replica.seq),
        *(replica.row.spec_hash, replica.row.feature_hash),
        context,
        *drew.drawn[:-2],
        *(request.idempotency_key, wanted.body_hash, wanted.traceparent),
        *(at, at + served.window),
        *drew.drawn[-2:],  # the columns that selections were given later
    )
    return DecisionRow._make(columns)


def to_answer(
    row: DecisionRow, spec: DecisionPoint, *, logged: bool | str, record: str | None = None
) -> Decision:
    """Return the answer that a row stands for; the same row gives the same answer for ever.

    Args:
        row: the decision.
        spec: the declaration it was made under.
        logged: true, "unknown" or false.
        record: the signed row, unless it is stored.

    Returns:
        The answer, with the probabilities of the eligible actions.
    """
    selects = isinstance(spec.actions, SequenceActions)
    distribution = probabilities(row, spec)
    narrower = row.eligible is not None and len(row.eligible) < len(distribution)
    if narrower and not isinstance(spec.actions, Mixed):
        distribution = {name: distribution[name] for name in row.eligible or ()}
    return Decision(
        row.id,
        row.action,
        row.p or 0.0,
        distribution,
        row.snapshot,
        row.update_seq,
        row.stage,
        row.arm,
        logged,  # type: ignore[arg-type]
        row.degraded,
        record,
        parts_of(row, spec),
        picked_in(row) if selects else None,
        steps_in(row) if selects else None,
    )


def parts_of(row: DecisionRow, spec: DecisionPoint) -> dict[str, Any] | None:
    """Return the parts of a row's action by name; None: it has none.

    Args:
        row: the decision.
        spec: the declaration it was made under.
    """
    if not isinstance(spec.actions, Mixed):
        return None
    try:
        parts = read(row.action.encode())
    except Refused:
        return None  # what a client answered with its own default may be anything
    return parts if isinstance(parts, dict) else None


def probabilities(row: DecisionRow, spec: DecisionPoint) -> dict[str, float]:
    """Return a row's distribution by name, with the exact probability of what was drawn.

    Args:
        row: the decision.
        spec: the declaration it was made under.

    Returns:
        Of a selection, nothing: each of its steps has a distribution of its own. Where the whole
        distribution was never known (imported logs), what was drawn alone, if its own was.
    """
    if isinstance(spec.actions, SequenceActions):
        return {}
    names = over(row, spec) if row.distribution else ()
    distribution = dict(zip(names, row.distribution, strict=True))
    if row.p is not None and (row.action in distribution or not isinstance(spec.actions, Mixed)):
        distribution[row.action] = row.p
    return distribution


def over(row: DecisionRow, spec: DecisionPoint) -> Sequence[str]:
    """Return the actions that a row's distribution is over.

    Args:
        row: the decision.
        spec: the declaration it was made under.

    Returns:
        The declared names; the eligible ones where candidates are open or the fallback answered;
        every value of every part, as ``part=value``, where actions are mixed.
    """
    if row.eligible is not None and (row.degraded or getattr(spec.actions, "open", False)):
        return row.eligible
    if isinstance(spec.actions, Mixed):
        return spec.actions.marginals
    return tuple(getattr(spec.actions, "names", ()))
