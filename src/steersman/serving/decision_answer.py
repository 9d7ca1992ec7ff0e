"""Answer of a decision, made from its row."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from steersman.spec.actions import Mixed
from steersman.spec.actions import Sequence as SequenceActions
from steersman.spec.loader import loads
from steersman.wire import Decision, Refused, Step, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.db.decisions import DecisionRow
    from steersman.spec.point import DecisionPoint

declared = lru_cache(maxsize=256)(loads)
"""Cached parser of declarations: many rows share a few long declarations."""


def to_answer(
    row: DecisionRow, spec: DecisionPoint, *, logged: bool | str, record: str | None = None
) -> Decision:
    """Return the answer of a row; equal rows give equal answers forever."""
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
    """Return the parts of a mixed action by name; None for other actions."""
    if not isinstance(spec.actions, Mixed):
        return None
    try:
        parts = read(row.action.encode())
    except Refused:
        return None  # a client's default answer may have any form
    return parts if isinstance(parts, dict) else None


def picked_in(row: DecisionRow) -> list[str]:
    """Return the picks of a stored selection in order, or a client's default answer as it is."""
    try:
        found = read(row.action.encode())
    except Refused:
        return [row.action]  # a client's default answer may have any form
    return [str(one) for one in found] if isinstance(found, list) else [row.action]


def steps_in(row: DecisionRow) -> list[Step]:
    """Return the steps of a stored selection; empty if it was not drawn."""
    return [Step(step["eligible"], step["action"], float(step["p"])) for step in row.steps or ()]


def probabilities(row: DecisionRow, spec: DecisionPoint) -> dict[str, float]:
    """Return a row's distribution by name, with the exact probability of the drawn action.

    It is empty for a selection, whose steps have distributions. For imported logs with an unknown
    distribution it holds at most the drawn action.
    """
    if isinstance(spec.actions, SequenceActions):
        return {}
    names = over(row, spec) if row.distribution else ()
    distribution = dict(zip(names, row.distribution, strict=True))
    if row.p is not None and (row.action in distribution or not isinstance(spec.actions, Mixed)):
        distribution[row.action] = row.p
    return distribution


def over(row: DecisionRow, spec: DecisionPoint) -> Sequence[str]:
    """Return the actions that a row's distribution covers.

    These are the declared actions; the eligible ones for open candidates and the fallback; every
    value of every part, as ``part=value``, for mixed actions.
    """
    if row.eligible is not None and (row.degraded or getattr(spec.actions, "open", False)):
        return row.eligible
    if isinstance(spec.actions, Mixed):
        return spec.actions.marginals
    return tuple(getattr(spec.actions, "names", ()))
