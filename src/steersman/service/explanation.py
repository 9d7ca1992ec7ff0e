"""What `GET /v1/decisions/{id}/explain` answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID  # noqa: TC003 (msgspec reads it)

import msgspec


class ExplainedReward(msgspec.Struct, omit_defaults=True):
    """One revision of a decision's reward.

    Attributes:
        revision: 1, 2, 3, …
        value: 0 to 1; absent where there is none.
        status: how it came about.
        terms: what each declared term gave.
        final: whether the window is closed.
        at: seconds since 1970.
    """

    revision: int
    value: float | None
    status: str
    terms: Any
    final: bool
    at: float


class ExplainedEvent(msgspec.Struct, omit_defaults=True):
    """One event about a decision or its episode.

    Attributes:
        event_id: as the application named it.
        type: one of the four.
        about: ``decision`` or ``episode``.
        at: when it happened, seconds since 1970.
        received_at: when it was stored.
        outcomes: named numbers.
        action_taken: what the application did instead.
        body: the rest.
        unread: names of outcomes that no term of the reward reads. A guardrail may, or they are
            misspelt.
    """

    event_id: str
    type: str
    about: str
    at: float
    received_at: float
    outcomes: Any = None
    action_taken: str | None = None
    body: Any = None
    unread: list[str] = []


class ExplainedStep(msgspec.Struct, omit_defaults=True):
    """One step of a selection.

    Attributes:
        eligible: what could be drawn.
        action: what was.
        p: with which exact probability.
        distribution: by action; stored as float32 but for that of the action drawn.
    """

    eligible: list[str]
    action: str
    p: float
    distribution: dict[str, float]


class Recomputed(msgspec.Struct, omit_defaults=True):
    """What the state of that time gives today.

    Attributes:
        same: whether distribution and propensity are those that were stored.
        distribution: by action.
        largest_difference: of any probability; stored ones are float32 but for the action's own.
        reason: why it could not be recomputed.
        steps: of a selection.
    """

    same: bool
    distribution: dict[str, float] = {}
    largest_difference: float | None = None
    reason: str = ""
    steps: list[ExplainedStep] | None = None


class Explanation(msgspec.Struct, omit_defaults=True):
    """Everything about one decision.

    Attributes:
        decision_id: its id.
        erased: whether its content was erased on request; then nothing else is left.
        skill: the application capability.
        decision: the decision point.
        at: seconds since 1970.
        action: what was drawn.
        propensity: the probability of the draw; absent if it was never known.
        propensity_kind: exact, fallback, client, imported or none.
        distribution: by action; of every value of every part where actions are mixed.
        parts: of a mixed action, by name.
        picked: of a selection: candidates in the order of picking.
        steps: of a selection: each with its distribution.
        links: of a selection: what picking a candidate brings in.
        uniform: the random number of the draw.
        eligible: the actions allowed; absent: all that were declared.
        context: what was known.
        episode_id: what it belongs to.
        parent_id: what it follows from.
        unit: what stays on one arm.
        snapshot: the state it was drawn from: this snapshot,
        update_seq: and this many updates after it.
        spec_hash: of the declaration, hexadecimal.
        feature_hash: of the feature map, hexadecimal.
        rollout: the rollout that it counts for; absent: none.
        stage: of that rollout; ``live`` without one.
        arm: that drew: control or candidate.
        degraded: whether a fallback answered.
        weight: how many observations it counts for; 0: never learned.
        window_ends: when its reward is final, seconds since 1970.
        rewards: by revision.
        events: about it and its episode, the first 1,000.
        recomputed: if asked for.
    """

    decision_id: UUID
    erased: bool = False
    skill: str = ""
    decision: str = ""
    at: float = 0.0
    action: str = ""
    propensity: float | None = None
    propensity_kind: str = ""
    distribution: dict[str, float] = {}
    parts: dict[str, Any] | None = None
    picked: list[str] | None = None
    steps: list[ExplainedStep] | None = None
    links: Any = None
    uniform: float | None = None
    eligible: list[str] | None = None
    context: Any = None
    episode_id: str | None = None
    parent_id: UUID | None = None
    unit: str | None = None
    snapshot: str = ""
    update_seq: int | None = None
    spec_hash: str = ""
    feature_hash: str = ""
    rollout: str | None = None
    stage: str = ""
    arm: str = ""
    degraded: bool | None = None
    weight: float | None = None
    window_ends: float | None = None
    rewards: list[ExplainedReward] = []
    events: list[ExplainedEvent] = []
    recomputed: Recomputed | None = None
