"""Result of a draw for a decision's row, for all kinds of actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Drawn(NamedTuple):
    """Columns of a row that a draw fills, in their order.

    Attributes:
        eligible: eligible actions of the request; None: every declared action.
        distribution: stored probabilities. They cover the declared actions; ``eligible`` for open
            candidates and the fallback; every value of every part for mixed actions; the eligible
            candidates of each step in turn for a sequence.
        action: drawn action.
        p: exact probability of the draw.
        p_kind: exact or fallback.
        x: stored feature vector of the drawn action.
        key: stored key of the drawn action, for policies that learn per key.
        features: features of the eligible actions, row by row.
        u: random number of the draw; None without a draw or for a sequence.
        degraded: whether the fallback answered.
        weight: weight for learning; 0: never learned from.
        links: candidates that a pick adds to a selection.
        steps: steps of a selection with eligible candidates, pick and probability.
    """

    eligible: list[str] | None
    distribution: list[float]
    action: str
    p: float
    p_kind: str
    x: Sequence[float] | None
    key: str | None
    features: Sequence[float] | None
    u: float | None
    degraded: bool = False
    weight: float = 1.0
    links: Mapping[str, Sequence[str]] | None = None
    steps: list[dict[str, Any]] | None = None
