"""Explanation of one decision, with proof of its distribution.

A decision names its policy state (snapshot and number of updates), so the state and the
distribution can be rebuilt at any time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID  # noqa: TC003 (field type)

import msgspec
import numpy as np

from steersman.db.decision_queries import (
    decision_row,
    is_erased,
    reported_events,
    reward_revisions,
)
from steersman.db.decisions import LoggedDistribution, done_in, offered_of
from steersman.db.points import PointRow
from steersman.db.rewards import spec_document
from steersman.db.snapshots import find_snapshot
from steersman.errors import SnapshotError, SteersmanError
from steersman.features import FeatureMap
from steersman.learning.replica import StoredBases, state_at
from steersman.platform.http.messages import in_time
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import encode
from steersman.serving.decision_answer import (
    declared,
    over,
    parts_of,
    picked_in,
    probabilities,
)
from steersman.spec.actions import Mixed
from steersman.spec.actions import Sequence as SequenceActions
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from asyncpg import Pool
    from numpy.typing import NDArray

    from steersman.db.decisions import DecisionRow
    from steersman.learning.replica import Bases
    from steersman.platform.breaker import Breaker
    from steersman.policies import ChoicePolicy
    from steersman.policies.sequential import SequencePolicy
    from steersman.spec.point import DecisionPoint

    Floats = NDArray[np.float64]


class ExplainedReward(msgspec.Struct, omit_defaults=True):
    """One revision of a decision's reward.

    Attributes:
        revision: revision number, from 1.
        value: reward, 0 to 1; absent without a reward.
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


_MOST_EVENTS = 1_000
_PLAIN = 1e-9
_SINGLE = 1e-6  # tolerance of probabilities stored as float32
_AT_A_TIME = 2  # parallel rebuilds: each holds a large state and one of four connections
_OF_TENANT = 4  # running and waiting rebuilds of a tenant
_MOST = 32
_WAIT_S = 60.0
_BUILD_S = 50.0  # below the breaker's timeout: a long log must not open the breaker
_NOT_BUILT = "leave out recompute: the policy state of this decision was not rebuilt"


class Explainer:
    """Explains decisions.

    Args:
        pool: connections of role app.
        reading: circuit breaker for the store.
        rebuilding: circuit breaker for rebuilding a past state, which may take longer.
        bases: loader of the base states of snapshots.
    """

    def __init__(
        self, pool: Pool[Any], reading: Breaker, rebuilding: Breaker, bases: Bases
    ) -> None:
        self._bases = bases
        self._pool = pool
        self._reading = reading
        self._rebuilding = rebuilding
        self._turns = _Turns()

    async def explain(
        self, tenant: UUID, identifier: UUID, *, recompute: bool = False
    ) -> Explanation | None:
        """Return the explanation of a decision; None for unknown ids and ids of other tenants.

        Args:
            recompute: whether to rebuild the policy state, too, and compare the distribution.

        Raises:
            Refused: too many rebuilds in progress, or a timeout.
        """
        found = await self._reading.call(lambda: self._read(tenant, identifier))
        if found is None:
            return None
        explanation, row, spec = found
        if recompute and row is not None:
            explanation.recomputed = await self._recompute(row, spec)
        return explanation

    async def _read(
        self, tenant: UUID, identifier: UUID
    ) -> tuple[Explanation, DecisionRow | None, str] | None:
        async with self._pool.acquire() as connection, as_tenant(connection, tenant):
            row = await decision_row(connection, identifier)
            if row is None:
                erased = await is_erased(connection, identifier)
                return (Explanation(identifier, erased=True), None, "") if erased else None
            document = await spec_document(connection, row.spec_hash)
            explanation = _explanation(row, document)
            explanation.rewards = await _rewards(connection, row)
            explanation.events = await _events(connection, row, declared(document))
            return explanation, row, document

    async def _recompute(self, row: DecisionRow, document: str) -> Recomputed:
        if row.p_kind != "exact":
            return Recomputed(
                same=False, reason=f"no draw to recompute: the propensity kind is {row.p_kind}"
            )
        async with self._turns.turn(row.tenant):
            try:
                return await self._rebuilding.call(
                    lambda: in_time(lambda: self._rebuild(row, document), _BUILD_S, _NOT_BUILT)
                )
            except SteersmanError as error:
                return Recomputed(same=False, reason=str(error))

    async def _rebuild(self, row: DecisionRow, document: str) -> Recomputed:
        spec = declared(document)
        point = PointRow(
            row.tenant,
            row.skill,
            row.point,
            spec,
            row.spec_hash,
            row.feature_hash,
            row.snapshot,
            spec.reward.scope == "episode",
        )
        async with self._pool.acquire() as connection, as_tenant(connection, row.tenant):
            bases = _BasesWithReplay(self._bases)
            policy = await state_at(connection, point, row.snapshot, row.update_seq, bases=bases)
        if isinstance(spec.actions, SequenceActions):
            return _compared_steps(row, cast("SequencePolicy", policy))
        x, key = encode(spec, FeatureMap(spec.context), row.context)
        names = over(row, spec)
        seen: Any = x if x is not None else key if key is not None else row.context
        distribution = policy.distribution(
            seen, eligible=row.eligible, features=_features(row, names)
        )
        return _compared(row, spec, distribution)


class _Turns:
    """Fair queue of rebuilds: one at a time per tenant, a few in total, in order of arrival.

    ``tests/api/test_explain_turns.py`` shows its fairness.
    """

    def __init__(self) -> None:
        self._building = asyncio.Semaphore(_AT_A_TIME)
        self._own: dict[UUID, asyncio.Lock] = {}
        self._inside: Counter[UUID] = Counter()

    @asynccontextmanager
    async def turn(self, tenant: UUID) -> AsyncIterator[None]:
        """Wait for a slot and hold it; refuse if too many wait or the wait is too long."""
        count, every = self._inside[tenant], self._inside.total()
        if count >= _OF_TENANT or every >= _MOST:
            who = f"{count} rebuilds of this tenant" if count >= _OF_TENANT else f"{every} rebuilds"
            detail = f"{who} are already running or waiting, the maximum"
            raise _later(f"{detail}; try again later")
        self._inside[tenant] += 1
        own = self._own.setdefault(tenant, asyncio.Lock())
        try:
            async with AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(_WAIT_S):
                        await held.enter_async_context(own)
                        await held.enter_async_context(self._building)
                except TimeoutError:
                    detail = f"no free slot to rebuild a policy state within {_WAIT_S:g} s"
                    raise _later(f"{detail}; try again later") from None
                yield
        finally:
            self._inside[tenant] -= 1
            if not self._inside[tenant]:
                del self._inside[tenant], self._own[tenant]


class _BasesWithReplay:
    """Verified bases; a version that was unpublished is relearned from the log.

    Only explanations use relearned states; serving uses verified ones.
    """

    def __init__(self, bases: Bases) -> None:
        self._bases = bases

    async def check(self, connection: Any, row: PointRow) -> None:
        """Accept every snapshot, because this loader serves no requests."""

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        try:
            return await self._bases.base(connection, row)
        except SnapshotError:
            point = row.tenant, row.skill, row.point
            found = await find_snapshot(connection, point, row.snapshot)
            if ((found.description or {}).get("evidence") or {}).get("trained"):
                # Its lineage never had this state, so only the stored bytes can reproduce it.
                if not found.is_stored:
                    raise
                return await StoredBases().base(connection, row)
            if found.line is None or found.line_seq is None:
                raise
            line = await find_snapshot(connection, point, found.line)
            if (line.spec_hash, line.feature_hash) != (found.spec_hash, found.feature_hash):
                raise  # relearned under another declaration: the lineage has another state
            return await state_at(connection, row, found.line, found.line_seq, bases=self)


def _features(row: DecisionRow, names: Sequence[str]) -> NDArray[np.float64] | None:
    if row.features is None:
        return None
    return np.asarray(row.features, dtype=np.float64).reshape(len(row.eligible or names), -1)


def _compared(row: DecisionRow, spec: DecisionPoint, distribution: Floats) -> Recomputed:
    names: Sequence[str] = over(row, spec)
    drawn_among = names
    kept = distribution
    if isinstance(spec.actions, Mixed):
        drawn_among = spec.actions.names
        kept = LoggedDistribution(spec.actions).of(distribution).astype(np.float64)
    drawn = float(distribution[list(drawn_among).index(row.action)])
    values = {**dict(zip(names, kept.tolist(), strict=True)), row.action: drawn}
    exact = abs(drawn - (row.p or 0.0))
    largest = float(np.max(np.abs(kept - np.asarray(row.distribution, dtype=np.float64))))
    return Recomputed(exact <= _PLAIN and largest <= _SINGLE, values, max(exact, largest))


def _compared_steps(row: DecisionRow, policy: SequencePolicy) -> Recomputed:
    """Return the recomputed distribution of each step, compared with the stored one.

    The eligible candidates must be equal as a set. Their order may differ, because the last bit of
    a score orders ties and differs between processors.
    """
    offered = offered_of(row.eligible, row.links, row.features)
    found = policy.along(offered, done_in(row.steps))
    exact, largest = abs(policy.chance(offered, done_in(row.steps)) - (row.p or 0.0)), 0.0
    steps, same = [], True
    for step, stored in zip(found, _steps(row), strict=True):
        values = dict(zip(step.eligible, step.distribution.tolist(), strict=True))
        steps.append(ExplainedStep(list(step.eligible), stored.action, step.chance, values))
        same = same and set(step.eligible) == set(stored.eligible)
        exact = max(exact, abs(step.chance - stored.p))
        gaps = [abs(p - stored.distribution.get(name, 0.0)) for name, p in values.items()]
        largest = max([largest, *gaps])
    same = same and exact <= _PLAIN and largest <= _SINGLE
    return Recomputed(same, {}, max(exact, largest), steps=steps)


def _steps(row: DecisionRow) -> list[ExplainedStep]:
    found, start = [], 0
    for step in row.steps or ():
        names = step["eligible"]
        values = dict(zip(names, row.distribution[start : start + len(names)], strict=True))
        values[step["action"]] = step["p"]
        found.append(ExplainedStep(names, step["action"], step["p"], values))
        start += len(names)
    return found


def _explanation(row: DecisionRow, document: str) -> Explanation:
    spec = declared(document)
    selects = isinstance(spec.actions, SequenceActions)
    return Explanation(
        decision_id=row.id,
        skill=row.skill,
        decision=row.point,
        at=row.at.timestamp(),
        action=row.action,
        propensity=row.p,
        propensity_kind=row.p_kind,
        distribution=probabilities(row, spec),
        parts=parts_of(row, spec),
        picked=picked_in(row) if selects else None,
        steps=_steps(row) if selects else None,
        links=row.links,
        uniform=row.u,
        eligible=row.eligible,
        context=row.context,
        episode_id=row.episode,
        parent_id=row.parent,
        unit=row.unit,
        snapshot=row.snapshot,
        update_seq=row.update_seq,
        spec_hash=row.spec_hash.hex(),
        feature_hash=row.feature_hash.hex(),
        rollout=row.rollout,
        stage=row.stage,
        arm=row.arm,
        degraded=row.degraded,
        weight=row.weight,
        window_ends=row.window_ends.timestamp(),
    )


async def _rewards(connection: Any, row: DecisionRow) -> list[ExplainedReward]:
    found = await reward_revisions(connection, row.id)
    return [ExplainedReward(*one[:-1], at=one.at.timestamp()) for one in found]


async def _events(connection: Any, row: DecisionRow, spec: DecisionPoint) -> list[ExplainedEvent]:
    found = await reported_events(connection, row.id, row.episode, limit=_MOST_EVENTS)
    return [
        ExplainedEvent(
            event.id,
            event.type,
            "episode" if event.decision is None else "decision",
            event.at.timestamp(),
            event.received_at.timestamp(),
            event.outcomes,
            event.action_taken,
            event.body,
            sorted((event.outcomes or {}).keys() - spec.reward.terms.keys()),
        )
        for event in found
    ]


def _later(detail: str) -> Refused:
    return Refused.of("unavailable", detail, retry_after_s=5.0)
