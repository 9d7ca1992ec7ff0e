"""Handlers of the decide and event routes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import msgspec

from steersman.api.route import Route, handles
from steersman.api.schemas import EVENT_EXAMPLES
from steersman.platform.http.messages import (
    Answer,
    check_media_type,
    converted,
    json_answer,
    problem_answer,
    read_body,
    read_json,
    too_large,
)
from steersman.serving.load_guard import LARGE_BATCH
from steersman.wire import (
    BatchRequest,
    DecideRequest,
    Decision,
    Event,
    EventBatch,
    EventResult,
    Problem,
    Refused,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from steersman.api.service import Service
    from steersman.platform.http.messages import Request
    from steersman.serving.load_guard import Guard
    from steersman.serving.metrics import Metrics
    from steersman.wire import EventType

ONE_BYTES = 1 << 20
BATCH_BYTES = 8 << 20
_EXAMPLE = {
    "skill": "assistant",
    "decision": "route",
    "context": {"intent": "refund", "length": 42},
    "idempotency_key": "request-17",
}
_EVENTS: Mapping[EventType, str] = {
    "interaction.create": "Report the start of an interaction",
    "interaction.output": "Report the output and its cost",
    "feedback.submit": "Report user feedback",
    "task_result": "Report the result of a task",
}


class DecisionService(Protocol):
    """Protocol of `Decider`."""

    async def decide(
        self, tenant: UUID, body: Mapping[str, Any], *, traceparent: str | None
    ) -> Decision:
        """Answer one request."""

    async def decide_many(
        self, tenant: UUID, bodies: Sequence[Mapping[str, Any]], *, traceparent: str | None
    ) -> list[Decision | Problem]:
        """Answer a batch; each request may be refused separately."""


class EventSink(Protocol):
    """Protocol of `Intake`."""

    async def take(
        self,
        tenant: UUID,
        events: Sequence[Any],
        records: Sequence[Any] = (),
        *,
        fixed_type: EventType | None = None,
        traceparent: str | None = None,
    ) -> list[EventResult]:
        """Store records, then events."""


class Endpoints:
    """Handlers of the routes that write.

    Args:
        deciding: answers decide requests.
        intake: stores events.
        guard: load guard.
        metrics: counters.
        storing: returns whether events can be stored now; if not, they are refused at once and the
            client keeps them.
    """

    def __init__(
        self,
        deciding: DecisionService,
        intake: EventSink,
        guard: Guard,
        metrics: Metrics,
        *,
        storing: Callable[[], bool] = lambda: True,
    ) -> None:
        self._deciding = deciding
        self._intake = intake
        self._guard = guard
        self._metrics = metrics
        self._storing = storing

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        return cls(
            service.deciding,
            service.intake,
            service.guard,
            service.metrics,
            storing=service.storing,
        )

    @handles(
        Route(
            "POST",
            "/v1/decide",
            "Make one decision, or a batch of up to 1,000",
            (Decision, {"decisions": [Decision, {"problem": Problem}]}),
            scope="decide",
            traced=True,
            body=(DecideRequest, BatchRequest),
            examples={"one": _EXAMPLE, "batch": {"requests": [_EXAMPLE]}},
            codes=("not_found", "idempotency_conflict"),
            raw=True,
        )
    )
    async def decide(self, request: Request) -> Answer:
        """Answer ``POST /v1/decide``: a `Decision`, or ``{"decisions": [...]}`` for a batch."""
        check_media_type(request.headers)
        raw = await read_body(request, BATCH_BYTES)
        body = read(raw, max_bytes=BATCH_BYTES)
        tenant = request.key.tenant
        if isinstance(body, dict) and "requests" in body:
            return await self._decide_many(request, body)
        if len(raw) > ONE_BYTES:
            raise too_large(len(raw), ONE_BYTES)
        decision = await self._deciding.decide(tenant, body, traceparent=request.traceparent)
        self._count(body, decision)
        return json_answer(decision)

    async def _decide_many(self, request: Request, body: Any) -> Answer:
        bodies = converted(body, BatchRequest).requests
        if len(bodies) > LARGE_BATCH and self._guard.state:
            self._guard.refuse("large_batch")
        answers = await self._deciding.decide_many(
            request.key.tenant, bodies, traceparent=request.traceparent
        )
        for one, answer in zip(bodies, answers, strict=True):
            if isinstance(answer, Decision):
                self._count(one, answer)
        shown = [{"problem": one} if isinstance(one, Problem) else one for one in answers]
        return json_answer({"decisions": shown})

    def _count(self, body: Any, decision: Decision) -> None:
        logged = decision.logged
        shown = logged if isinstance(logged, str) else "true" if logged else "false"
        self._metrics.decision(body["skill"], body["decision"], shown, degraded=decision.degraded)

    @handles(
        *(
            Route(
                "POST",
                f"/v1/{kind}",
                about,
                {"event_id": str, "status": Literal["stored", "replayed"]},
                scope="events",
                sheds="events",
                traced=True,
                body=Event,
                examples={"one": {k: v for k, v in EVENT_EXAMPLES[kind].items() if k != "type"}},
                codes=("not_found", "idempotency_conflict"),
                raw=True,
                variant=kind,
            )
            for kind, about in _EVENTS.items()
        )
    )
    async def event(self, request: Request) -> Answer:
        """Answer ``POST /v1/<type>``: one event of the type in the path."""
        kind: EventType = request.route.variant
        body = await read_json(request, ONE_BYTES)
        self._check_storing()
        (result,) = await self._intake.take(
            request.key.tenant, [body], fixed_type=kind, traceparent=request.traceparent
        )
        self._metrics.event(kind, result.status)
        if result.problem is not None:
            return problem_answer(msgspec.convert(result.problem, Problem))
        return json_answer({"event_id": result.id, "status": result.status})

    @handles(
        Route(
            "POST",
            "/v1/events",
            "Report a batch of events and records of decisions that could not be stored",
            {"results": list[EventResult]},
            scope="events",
            sheds="events",
            traced=True,
            body=EventBatch,
            examples={"batch": {"events": [EVENT_EXAMPLES["feedback.submit"]], "records": []}},
            raw=True,
        )
    )
    async def events(self, request: Request) -> Answer:
        """Answer ``POST /v1/events``: ``{"results": [...]}``, records first, then events."""
        body = await read_json(request, BATCH_BYTES)
        batch = converted(body, EventBatch)
        if len(batch.events) + len(batch.records) > LARGE_BATCH and self._guard.state:
            self._guard.refuse("large_batch")
        self._check_storing()
        results = await self._intake.take(
            request.key.tenant, batch.events, batch.records, traceparent=request.traceparent
        )
        self._count_results(batch, results)
        return json_answer({"results": results})

    def _count_results(self, batch: EventBatch, results: Sequence[EventResult]) -> None:
        records = len(batch.records)
        seen = Counter(("record", result.status) for result in results[:records])
        seen.update(
            ("unknown" if result.status == "refused" else str(event.get("type")), result.status)
            for event, result in zip(batch.events, results[records:], strict=True)
        )
        for (kind, status), count in seen.items():
            self._metrics.event(kind, status, count)

    def _check_storing(self) -> None:
        if not self._storing():
            detail = "the store does not respond; keep the events and send them again later"
            raise Refused.of("unavailable", detail, retry_after_s=2.0)
