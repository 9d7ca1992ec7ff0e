"""HTTP handlers for rollouts: read with the scope read, start and act with the scope admin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Self
from uuid import UUID  # noqa: TC003 (field type)

import msgspec
from msgspec import Meta

from steersman.api.route import Route, handles
from steersman.db.rollouts import find_rollout, rollouts_of
from steersman.db.verdicts import verdicts_of
from steersman.errors import InputError, RolloutError, SnapshotError, StateError
from steersman.platform.http.tenant_limiter import Apart
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.commands import act, explain
from steersman.rollouts.start import StartRequest, start
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncpg import Pool

    from steersman.api.service import Service
    from steersman.db.incidents import IncidentRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.verdicts import VerdictRow
    from steersman.learning.replica import Bases
    from steersman.platform.breaker import Breaker
    from steersman.platform.http.messages import Request
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.commands import RolloutExplanation

_MOST = 200
_MISSING = "rollout not found; GET /v1/rollouts lists all"
_ACTIONS = {
    "pause": "Pause a rollout: it stays on its stage and is still monitored",
    "resume": "Resume a rollout, or unpin a frozen decision point",
    "promote": "Promote the candidate to the next stage, or to the live policy from the last stage",
    "rollback": "Roll back the candidate, freeze it and open an incident",
    "freeze": "Freeze the live policy at its current state",
}
_EXAMPLE = {
    "skill": "assistant",
    "decision": "route",
    "candidate": "0.1.1",
    "reason": "a week of feedback",
}

Reason = Annotated[str, Meta(min_length=1, max_length=500)]


class NewRollout(msgspec.Struct, forbid_unknown_fields=True):
    """Request to start a rollout.

    Attributes:
        skill: skill of the decision point.
        decision: name of the decision point.
        candidate: published version to roll out.
        reason: reason for the audit log.
        overrides: fields of the section ``rollout`` that replace the declared ones.
        concurrent: whether to allow this rollout while another rollout of the skill is active;
            absent: as declared.
        again: reason to retry a candidate that was rolled back.
        force: reason to serve the candidate at once, without shadow or evidence.
    """

    skill: Annotated[str, Meta(min_length=1, max_length=64)]
    decision: Annotated[str, Meta(min_length=1, max_length=64)]
    candidate: Annotated[str, Meta(min_length=1, max_length=64)]
    reason: Reason
    overrides: dict[str, Any] = {}
    concurrent: bool | None = None
    again: Annotated[str, Meta(max_length=500)] = ""
    force: Annotated[str, Meta(max_length=500)] = ""


class RolloutAct(msgspec.Struct, forbid_unknown_fields=True):
    """Request for a rollout action.

    Attributes:
        reason: reason for the audit log.
        force: whether to promote without evidence.
        step: step of the plan, from 0, on which to act. The request fails if the rollout is on
            another step, so a retry acts once. Absent: any step.
    """

    reason: Reason
    force: bool = False
    step: Annotated[int, Meta(ge=0, le=1000)] | None = None


class ShownVerdict(msgspec.Struct, omit_defaults=True):
    """One verdict of a rollout.

    Attributes:
        seq: number of the verdict within its rollout, from 1.
        at: time in seconds since 1970.
        stage: stage that was judged.
        step: step that was judged, from 0.
        share: share of units that the candidate served.
        verdict: one of promote, hold, roll_back, not_enough_data.
        acted: action that followed: none, next_stage, promoted, rolled_back or held.
        reasons: reasons for the verdict.
        inputs: all input numbers of the verdict; present only in the list of one rollout's
            verdicts.
    """

    seq: int
    at: float
    stage: str
    step: int
    share: float
    verdict: str
    acted: str
    reasons: list[str]
    inputs: dict[str, Any] | None = None


class ShownIncident(msgspec.Struct, omit_defaults=True):
    """One incident.

    Attributes:
        id: incident id.
        at: time in seconds since 1970.
        kind: machine-readable kind.
        summary: one-sentence summary.
        detail: further data.
        closed_at: closing time in seconds since 1970; absent: the incident is open.
    """

    id: UUID
    at: float
    kind: str
    summary: str
    detail: dict[str, Any]
    closed_at: float | None = None


class ShownRollout(msgspec.Struct, omit_defaults=True):
    """State of a rollout.

    Attributes:
        id: rollout id.
        skill: skill of the decision point.
        decision: name of the decision point.
        status: one of running, paused, promoted, rolled_back, aborted.
        stage: one of shadow, canary, ab, live.
        step: current step of the plan, from 0.
        share: share of units that the candidate serves.
        candidate: candidate version.
        control: control version, which served when the rollout started.
        control_seq: number of updates of the control at the start.
        started_at: start time in seconds since 1970.
        step_started_at: start time of the current step in seconds since 1970.
        ended_at: end time in seconds since 1970; absent: the rollout is active.
        reason: reason for the current state.
        plan: plan with stages, guardrails and limits; present only if one rollout is requested.
        legal_actions: actions allowed now; present only if one rollout is requested.
        frozen: whether the decision point is pinned to one state; present only if one rollout is
            requested.
        verdict: last verdict; present only if one rollout is requested.
        incidents: incidents of this rollout; present only if one rollout is requested.
    """

    id: UUID
    skill: str
    decision: str
    status: str
    stage: str
    step: int
    share: float
    candidate: str
    control: str
    control_seq: int
    started_at: float
    step_started_at: float
    ended_at: float | None = None
    reason: str = ""
    plan: dict[str, Any] | None = None
    legal_actions: list[str] | None = None
    frozen: bool | None = None
    verdict: ShownVerdict | None = None
    incidents: list[ShownIncident] | None = None


class Rollouts:
    """Handlers of the routes for rollouts.

    Args:
        database: database of the rollouts.
        pool: connections of role app, for reading.
        bases: verifier of candidates.
        reading: circuit breaker for reads.
        acting: circuit breaker for actions.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        pool: Pool[Any],
        bases: Bases,
        *,
        reading: Breaker,
        acting: Breaker,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._pool = pool
        self._bases = bases
        self._reading = reading
        self._acting = acting
        self._apart = Apart()
        self._clock = clock

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        pools, verified, breakers = service.pools, service.verified, service.breakers
        reading, acting = breakers["reading"], breakers["rollouts"]
        return cls(pools.acting, pools.reading, verified, reading=reading, acting=acting)

    @handles(
        Route(
            "GET",
            "/v1/rollouts",
            "List the latest rollouts, including ended ones",
            {"rollouts": list[ShownRollout]},
            scope="read",
            sheds="read",
        )
    )
    async def listed(self, request: Request) -> dict[str, list[ShownRollout]]:
        """Return the latest 200 rollouts, ended ones too."""
        tenant = request.key.tenant
        rows = await self._read(tenant, lambda it: rollouts_of(it, tenant, limit=_MOST))
        return {"rollouts": [_shown(row) for row in rows]}

    @handles(
        Route(
            "GET",
            "/v1/rollouts/{id}",
            "Get the state of a rollout, its reason and the allowed actions",
            ShownRollout,
            scope="read",
            sheds="read",
            codes=("not_found",),
        )
    )
    async def shown(self, request: Request) -> ShownRollout:
        """Return a rollout with plan, verdict and allowed actions."""
        tenant, identifier = request.key.tenant, request.uuid(_MISSING)
        try:
            found = await self._read(tenant, lambda it: explain(it, tenant, identifier))
        except RolloutError:
            raise _no_such_rollout() from None
        return _explained(found)

    @handles(
        Route(
            "GET",
            "/v1/rollouts/{id}/verdicts",
            "List every verdict of a rollout with the inputs to recompute it",
            {"verdicts": list[ShownVerdict]},
            scope="read",
            sheds="read",
            codes=("not_found",),
        )
    )
    async def verdicts(self, request: Request) -> dict[str, list[ShownVerdict]]:
        """Return the first 1,000 verdicts of a rollout."""
        tenant, identifier = request.key.tenant, request.uuid(_MISSING)

        async def read(connection: Any) -> list[VerdictRow] | None:
            if await find_rollout(connection, tenant, identifier) is None:
                return None
            return await verdicts_of(connection, tenant, identifier)

        rows = await self._read(tenant, read)
        if rows is None:
            raise _no_such_rollout()
        return {"verdicts": [_verdict(row, row.inputs) for row in rows]}

    @handles(
        Route(
            "POST",
            "/v1/rollouts",
            "Start a rollout of a published version",
            ShownRollout,
            scope="admin",
            body=NewRollout,
            examples={"one": _EXAMPLE},
            codes=("not_allowed",),
            status=201,
        )
    )
    async def start(self, request: Request, asked: NewRollout) -> ShownRollout:
        """Start a rollout and return it; never shed, like every action.

        Raises:
            Refused: the candidate does not fit or verify, or another rollout is active.
        """
        wanted = StartRequest(
            skill=asked.skill,
            point=asked.decision,
            candidate=asked.candidate,
            reason=asked.reason,
            overrides=asked.overrides,
            concurrent=asked.concurrent,
            again=asked.again,
            force=asked.force,
        )
        row = await self._do(
            request.key.tenant,
            lambda: start(
                self._database,
                request.key.tenant,
                wanted,
                actor=f"key {request.key.id}",
                clock=self._clock,
                bases=self._bases,
            ),
        )
        return _shown(row)

    @handles(
        *(
            Route(
                "POST",
                f"/v1/rollouts/{{id}}/{action}",
                about,
                ShownRollout,
                scope="admin",
                body=RolloutAct,
                examples={"one": {"reason": "latency alert of this morning"}},
                codes=("not_found", "not_allowed"),
                variant=action,
            )
            for action, about in _ACTIONS.items()
        )
    )
    async def act(self, request: Request, asked: RolloutAct) -> ShownRollout:
        """Act on a rollout and return it."""
        tenant, identifier = request.key.tenant, request.uuid(_MISSING)
        if await self._read(tenant, lambda it: find_rollout(it, tenant, identifier)) is None:
            raise _no_such_rollout()
        row = await self._do(
            tenant,
            lambda: act(
                self._database,
                tenant,
                identifier,
                request.route.variant,
                actor=f"key {request.key.id}",
                reason=asked.reason,
                force=asked.force,
                step=asked.step,
                clock=self._clock,
                bases=self._bases,
            ),
        )
        return _shown(row)

    async def _do(self, tenant: UUID, work: Callable[[], Awaitable[RolloutRow]]) -> RolloutRow:
        try:
            async with self._apart.turn(tenant):
                return await self._acting.call(work)
        except InputError as error:
            raise Refused.of("invalid", str(error)) from None
        except (RolloutError, SnapshotError, StateError) as error:
            raise Refused.of("not_allowed", str(error)) from None

    async def _read(self, tenant: UUID, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def read() -> Any:
            async with self._pool.acquire() as connection, as_tenant(connection, tenant):
                return await work(connection)

        return await self._reading.call(read)


def _shown(row: RolloutRow) -> ShownRollout:
    return ShownRollout(
        row.id,
        row.skill,
        row.point,
        row.status,
        row.stage,
        row.step,
        row.share,
        row.candidate,
        row.control,
        row.control_seq,
        row.started_at.timestamp(),
        row.step_started_at.timestamp(),
        None if row.ended_at is None else row.ended_at.timestamp(),
        row.reason,
    )


def _explained(found: RolloutExplanation) -> ShownRollout:
    shown = _shown(found.rollout)
    shown.plan = found.plan.to_json()
    shown.legal_actions = list(found.legal)
    shown.frozen = found.frozen
    shown.verdict = None if found.verdict is None else _verdict(found.verdict)
    shown.incidents = [_incident(one) for one in found.incidents]
    return shown


def _verdict(row: VerdictRow, inputs: dict[str, Any] | None = None) -> ShownVerdict:
    return ShownVerdict(
        row.seq,
        row.at.timestamp(),
        row.stage,
        row.step,
        row.share,
        row.verdict,
        row.acted,
        list(row.reasons),
        inputs,
    )


def _incident(row: IncidentRow) -> ShownIncident:
    closed = None if row.closed_at is None else row.closed_at.timestamp()
    return ShownIncident(row.id, row.at.timestamp(), row.kind, row.summary, row.detail, closed)


def _no_such_rollout() -> Refused:
    return Refused.of("not_found", _MISSING)
