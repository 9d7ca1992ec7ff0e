"""The three forms of a decide request: request with its point, pending decision, row.

A request is drawn once and becomes a pending decision with all data of its row. The row goes to the
store, and the answer is made from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from steersman.db.decisions import DecisionRow
from steersman.serving.arms import PLAIN, Label

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.decisions import IdempotencyConflict
    from steersman.db.write_batches import WriteTimeout
    from steersman.serving.draw import ServedPoint
    from steersman.wire import DecideRequest

    Commit: TypeAlias = asyncio.Future[
        dict[Hashable, IdempotencyConflict | Exception] | WriteTimeout
    ]


class PointRequest(msgspec.Struct, frozen=True):
    """First form: a valid request with its decision point.

    Attributes:
        tenant: tenant id.
        served: decision point.
        request: the request as sent.
        context: context without personal data, as the policy reads it and the row keeps it.
        body_hash: hash of the request, if it has an idempotency key.
        traceparent: W3C trace context.
        read_at: time of parsing, on the deadline clock.
    """

    tenant: UUID
    served: ServedPoint
    request: DecideRequest
    context: Mapping[str, Any]
    body_hash: bytes | None = None
    traceparent: str | None = None
    read_at: float = 0.0

    @property
    def within_s(self) -> float:
        """Maximum wait for the store in seconds, counted from `read_at`."""
        deadline_ms = self.request.deadline_ms
        return self.served.deadline_s if deadline_ms is None else deadline_ms / 1000


class PendingDecision(msgspec.Struct, eq=False):
    """Second form: a drawn decision, until its row is committed.

    Attributes:
        asked: the request.
        served: policy that drew: control or candidate.
        action: drawn action.
        p: exact probability of the draw.
        distribution: stored probabilities. They cover the declared actions; `eligible` for open
            candidates and the fallback; every value of every part for mixed actions; the eligible
            candidates of each step in turn for a sequence.
        p_kind: exact or fallback.
        eligible: eligible actions of the request; None: every declared action.
        x: stored feature vector of the drawn action.
        key: stored key of the drawn action, for policies that learn per key.
        features: features of the eligible actions, row by row.
        u: random number of the draw; None without a draw or for a sequence.
        degraded: whether the fallback answered.
        weight: weight for learning; 0: never learned from.
        links: candidates that a pick adds to a selection.
        steps: steps of a selection with eligible candidates, pick and probability.
        label: rollout labels of the row.
        arm: assigned arm during a rollout: control or candidate; otherwise empty.
        stored: whether the row goes to the store; otherwise the client keeps its record.
        commit: future of the store's answer, once the row is submitted.
    """

    asked: PointRequest
    served: ServedPoint
    action: str
    p: float
    distribution: list[float]
    p_kind: str = "exact"
    eligible: list[str] | None = None
    x: Sequence[float] | None = None
    key: str | None = None
    features: Sequence[float] | None = None
    u: float | None = None
    degraded: bool = False
    weight: float = 1.0
    links: Mapping[str, Sequence[str]] | None = None
    steps: list[dict[str, Any]] | None = None
    label: Label = PLAIN
    arm: str = ""
    stored: bool = True
    commit: Commit | None = None
    _row: DecisionRow | None = None

    @property
    def row(self) -> DecisionRow:
        """Third form: the row of table ``decision``; `identify` makes it."""
        assert self._row is not None  # noqa: S101 (drawn decisions are identified at once)
        return self._row

    def identify(self, identifier: UUID, at: datetime) -> None:
        """Make the row with the decision's id and time."""
        asked, served, label = self.asked, self.served, self.label
        request, replica = asked.request, served.replica
        self._row = DecisionRow(
            tenant=asked.tenant,
            id=identifier,
            skill=request.skill,
            point=request.decision,
            episode=request.episode_id,
            parent=request.parent_id,
            unit=request.unit,
            rollout=label.rollout,
            stage=label.stage,
            arm=label.arm,
            snapshot=replica.snapshot,
            update_seq=replica.seq,
            spec_hash=replica.row.spec_hash,
            feature_hash=replica.row.feature_hash,
            context=asked.context,
            eligible=self.eligible,
            distribution=self.distribution,
            action=self.action,
            p=self.p,
            p_kind=self.p_kind,
            x=self.x,
            key=self.key,
            features=self.features,
            u=self.u,
            degraded=self.degraded,
            weight=self.weight,
            idempotency_key=request.idempotency_key,
            body_hash=asked.body_hash,
            traceparent=asked.traceparent,
            at=at,
            window_ends=at + served.window,
            links=self.links,
            steps=self.steps,
        )


Drawn: TypeAlias = PendingDecision | Exception
"""Result of a draw, or why there is none."""
