"""What a draw gives to a decision's row, whatever kind of actions it was among."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Drawn(NamedTuple):
    """What a request got: the columns of its row that a draw fills, in their order.

    Attributes:
        eligible: the names allowed for the request; None: every declared one.
        distribution: probabilities as they are stored, over the declared actions; over
            ``eligible`` where candidates are open or the fallback answered; of every value of
            every part where actions are mixed; of each step's eligible actions, one step after the
            other, where they are a sequence.
        action: what to do.
        p: the exact probability of the draw.
        p_kind: exact or fallback.
        x: what the policy saw for the action drawn, as it is stored.
        key: likewise, for policies that learn apart by key.
        features: of the eligible actions, row after row.
        u: the uniform of the draw; None where nothing was drawn, or one step after the other.
        degraded: whether the fallback answered.
        weight: 0 where nothing may be learned from it.
        links: of a selection: what picking a candidate brings in.
        steps: of a selection: what was drawn at each step, among what, with which probability.
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
