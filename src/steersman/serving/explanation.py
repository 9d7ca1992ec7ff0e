"""Answer messages of ``GET /v1/decisions/{id}/explain``."""

from __future__ import annotations

from typing import Any
from uuid import UUID  # noqa: TC003 (msgspec reads it)

import msgspec


class ExplainedReward(msgspec.Struct, omit_defaults=True):
    """One revision of a decision's reward.

    Attributes:
        revision: revision number, from 1.
        value: reward, 0 to 1; absent if there is no reward.
        status: how the reward was computed.
        terms: contribution of each declared term.
        final: whether the reward window is closed.
        at: time in seconds since 1970.
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
        event_id: event id chosen by the application.
        type: one of the four event types.
        about: ``decision`` or ``episode``.
        at: time of the event in seconds since 1970.
        received_at: time of storage in seconds since 1970.
        outcomes: named numbers.
        action_taken: action that the application took instead of the decided one.
        body: other content of the event.
        unread: names of outcomes that no reward term reads. A guardrail may read them, or they are
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
        eligible: eligible candidates.
        action: candidate that was drawn.
        p: exact probability of the draw.
        distribution: probability by candidate; stored as float32, except that of the drawn one.
    """

    eligible: list[str]
    action: str
    p: float
    distribution: dict[str, float]


class Recomputed(msgspec.Struct, omit_defaults=True):
    """Distribution recomputed from the policy state of the decision.

    Attributes:
        same: whether distribution and propensity equal the stored ones.
        distribution: probability by action.
        largest_difference: largest difference of a probability; stored ones are float32, except
            that of the drawn action.
        reason: why the distribution could not be recomputed.
        steps: steps of a selection.
    """

    same: bool
    distribution: dict[str, float] = {}
    largest_difference: float | None = None
    reason: str = ""
    steps: list[ExplainedStep] | None = None


class Explanation(msgspec.Struct, omit_defaults=True):
    """Full record of one decision.

    Attributes:
        decision_id: decision id.
        erased: whether the content was erased on request; then all other fields are empty.
        skill: skill of the decision point.
        decision: name of the decision point.
        at: time in seconds since 1970.
        action: action that was drawn.
        propensity: probability of the draw; absent if it is unknown.
        propensity_kind: one of exact, fallback, client, imported, none.
        distribution: probability by action; for mixed actions, by value of every part.
        parts: parts of a mixed action, by name.
        picked: picked candidates of a selection, in order.
        steps: steps of a selection, each with its distribution.
        links: candidates that a pick adds to a selection, by candidate.
        uniform: random number of the draw.
        eligible: eligible actions; absent: all declared actions.
        context: context of the decision.
        episode_id: episode of the decision.
        parent_id: decision that this one follows.
        unit: unit that stays on one arm.
        snapshot: snapshot of the policy state.
        update_seq: number of updates applied after the snapshot.
        spec_hash: hash of the declaration, hexadecimal.
        feature_hash: hash of the feature map, hexadecimal.
        rollout: rollout that the decision counts for; absent: none.
        stage: stage of that rollout; ``live`` without one.
        arm: arm that drew: control or candidate.
        degraded: whether the fallback answered.
        weight: number of observations that the decision counts as; 0: never learned from.
        window_ends: time in seconds since 1970 at which the reward becomes final.
        rewards: revisions of the reward.
        events: events about the decision and its episode, the first 1,000.
        recomputed: recomputed distribution; present if requested.
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
