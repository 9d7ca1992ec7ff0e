"""Handler of `GET /rl-status`: the learning status of each decision point of a tenant.

Counts cover at most the newest 100,000 rows of the last hour, so that the cost does not grow with
the traffic.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import msgspec

from steersman.api.route import Route, handles
from steersman.db.decision_queries import PointCounts, counts_since
from steersman.db.learners import learner_positions, oldest_due
from steersman.db.points import PointRow, UnreadablePoint, points_as_they_are
from steersman.db.rollouts import active_rollouts
from steersman.platform.http.messages import READ_S, in_time
from steersman.platform.postgres.database import as_tenant
from steersman.points.state_bytes import state_sha256

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncpg import Pool

    from steersman.api.service import Service
    from steersman.db.learners import LearnerRow
    from steersman.db.rollouts import RolloutRow
    from steersman.platform.breaker import Breaker
    from steersman.platform.http.messages import Request
    from steersman.serving.draw import ServedPoint
    from steersman.serving.load_guard import Guard
    from steersman.serving.replicas import Replicas

_HOUR_S = 3_600.0
_MOST = 100_000
_KEPT_S = 1.0
_StatusKey = tuple["UUID", bool]
_NOT_READ = "the last hour was not counted"


class RolloutStatus(msgspec.Struct, omit_defaults=True):
    """Active rollout of a decision point.

    Attributes:
        id: rollout id.
        status: running or paused.
        stage: one of shadow, canary, ab, live.
        step: current step of the plan, from 0.
        share: share of units that the candidate serves.
        candidate: candidate snapshot.
        control: control snapshot.
        control_seq: number of updates applied to the control snapshot.
        candidate_loaded: whether the answering process serves the candidate.
    """

    id: str
    status: str
    stage: str
    step: int
    share: float
    candidate: str
    control: str
    control_seq: int
    candidate_loaded: bool = False


class PointStatus(msgspec.Struct, omit_defaults=True):
    """Learning status of one decision point.

    Attributes:
        skill: skill of the decision point.
        decision: name of the decision point.
        algorithm: algorithm of the policy; null: the declaration cannot be read.
        learning: online or frozen; null: the declaration cannot be read.
        snapshot: snapshot of the live policy.
        update_seq: number of updates that the learner has written after this snapshot.
        replica_snapshot: snapshot that the answering process holds; absent: not loaded yet.
        replica_seq: number of updates that the answering process has applied; absent: not loaded
            yet.
        learn_lag_s: age in seconds of the oldest pending work of the learner; 0: none.
        decisions: decisions of the last hour.
        degraded: number of these answered by the fallback.
        rewarded: number of these with a reward.
        mean_reward: mean reward of these.
        capped: whether only the newest decisions were counted, because there are too many.
        pinned_seq: update number that the point is pinned to; absent: it follows the learner.
        replica_sha256: SHA-256 of the state that the answering process holds; present with
            ``?states=true``. Processes at the same update number hold identical states; ``steersman
            learn verify`` computes the hash from the log.
        rollout: active rollout; absent: none.
        problem: why the answering process does not serve the wanted state or cannot read the
            declaration, and what to do.
    """

    skill: str
    decision: str
    algorithm: str | None
    learning: str | None
    snapshot: str
    update_seq: int
    replica_snapshot: str | None
    replica_seq: int | None
    learn_lag_s: float
    decisions: int
    degraded: int
    rewarded: int
    mean_reward: float | None
    capped: bool = False
    pinned_seq: int | None = None
    replica_sha256: str | None = None
    rollout: RolloutStatus | None = None
    problem: str = ""


class Status(msgspec.Struct):
    """Answer of ``GET /rl-status``.

    Attributes:
        guardian_state: NORMAL, BROWNOUT or LOCKDOWN.
        at: time in seconds since 1970.
        points: decision points by skill and name.
    """

    guardian_state: str
    at: float
    points: list[PointStatus]


class StatusQuery(msgspec.Struct):
    """Query parameters of ``GET /rl-status``.

    Attributes:
        states: Include the SHA-256 of each state that the answering process holds.
    """

    states: bool = False


class StatusPage:
    """Handler of ``GET /rl-status``.

    Args:
        pool: connections of role app.
        breaker: circuit breaker for the store.
        guard: load guard.
        replicas: iterator over (tenant, served decision point).
        clock: seconds since 1970.
    """

    def __init__(
        self,
        pool: Pool[Any],
        breaker: Breaker,
        guard: Guard,
        replicas: Replicas,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pool = pool
        self._breaker = breaker
        self._guard = guard
        self._replicas = replicas
        self._clock = clock
        self._kept: dict[_StatusKey, Status] = {}
        self._looking: dict[_StatusKey, asyncio.Task[Status]] = {}

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        breaker = service.breakers["reading"]
        return cls(service.pools.reading, breaker, service.guard, service.replicas)

    @handles(
        Route(
            "GET",
            "/rl-status",
            "Get the learning status of every decision point",
            Status,
            scope="read",
            sheds="read",
            query=StatusQuery,
        )
    )
    async def status(self, request: Request, query: StatusQuery) -> Status:
        """Return a status that is at most a second old.

        Raises:
            Refused: the store does not respond, or counting takes too long.
        """
        asked, now = (request.key.tenant, query.states), self._clock()
        status = self._kept.get(asked)
        if status is None or not 0 <= now - status.at < _KEPT_S:
            looking = self._looking.get(asked)
            if looking is None:
                looking = asyncio.get_running_loop().create_task(self._look(asked, now))
                self._looking[asked] = looking
                looking.add_done_callback(lambda done: self._looked(asked, done))
            # The first client may disconnect; other requests of the tenant await the same task.
            status = await asyncio.shield(looking)
        return status

    async def _look(self, asked: _StatusKey, now: float) -> Status:
        tenant, states = asked
        points = await self._breaker.call(
            lambda: in_time(lambda: self._points(tenant, now), READ_S, _NOT_READ)
        )
        if states:
            for point in points:
                await self._tell_state(tenant, point)
        status = self._kept[asked] = Status(self._guard.state.name, now, points)
        return status

    async def _tell_state(self, tenant: UUID, point: PointStatus) -> None:
        served = self._replicas.find(tenant, point.skill, point.decision)
        if served is not None:
            replica = served.replica
            # Read without an await in between, so that state and update number match.
            point.replica_snapshot, point.replica_seq = replica.snapshot, replica.seq
            state = replica.policy.state()
            point.replica_sha256 = await asyncio.to_thread(state_sha256, state)

    def _looked(self, asked: _StatusKey, done: asyncio.Task[Status]) -> None:
        del self._looking[asked]
        if not done.cancelled():
            done.exception()  # marks the exception as retrieved; all clients may have left

    async def _points(self, tenant: UUID, now: float) -> list[PointStatus]:
        async with self._pool.acquire() as connection, as_tenant(connection, tenant):
            rows, unreadable = await points_as_they_are(connection, tenant)
            learners = await learner_positions(connection)
            due = await oldest_due(connection)
            recent = await counts_since(connection, _first_id(now - _HOUR_S), limit=_MOST)
            under_way = {
                (one.skill, one.point): one for one in await active_rollouts(connection, tenant)
            }
        points = []
        capped = sum(counts.decisions for counts in recent.values()) >= _MOST
        known: list[PointRow | UnreadablePoint] = [*rows, *unreadable]
        for row in sorted(known, key=lambda it: (it.skill, it.point)):
            served = self._replicas.find(tenant, row.skill, row.point)
            place = row.skill, row.point
            late_s = max(0.0, now - due[place].timestamp()) if place in due else 0.0
            counts = recent.get(place, PointCounts())
            status = _point(row, learners.get(place), late_s, served, counts)
            status.capped = capped
            rollout = under_way.get(place)
            if rollout is not None:
                status.rollout = _rollout(rollout, served)
            if isinstance(row, UnreadablePoint):
                status.problem = row.why
            else:
                status.problem = self._replicas.problem(tenant, row.skill, row.point)
            points.append(status)
        return points


def _point(
    row: PointRow | UnreadablePoint,
    learner: LearnerRow | None,
    late_s: float,
    served: ServedPoint | None,
    counts: PointCounts,
) -> PointStatus:
    declared = row if isinstance(row, PointRow) else None
    replica = None if served is None else served.replica
    return PointStatus(
        row.skill,
        row.point,
        None if declared is None else declared.spec.policy.algorithm,
        None if declared is None else declared.spec.learning.mode,
        row.snapshot,
        0 if learner is None or learner.snapshot != row.snapshot else learner.seq,
        None if replica is None else replica.snapshot,
        None if replica is None else replica.seq,
        late_s,
        counts.decisions,
        counts.degraded,
        counts.rewarded,
        counts.total / counts.rewarded if counts.rewarded else None,
        pinned_seq=None if declared is None else declared.pinned_seq,
    )


def _rollout(row: RolloutRow, served: ServedPoint | None) -> RolloutStatus:
    arms = None if served is None else served.arms
    return RolloutStatus(
        str(row.id),
        row.status,
        row.stage,
        row.step,
        row.share,
        row.candidate,
        row.control,
        row.control_seq,
        arms is not None and arms.candidate is not None,
    )


def _first_id(at: float) -> UUID:
    """Return the smallest UUIDv7 of a time."""
    return UUID(int=int(max(at, 0.0) * 1000) << 80)
