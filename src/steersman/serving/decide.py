"""Decide endpoint logic: draw, store, answer.

Stored in time: `logged: true`. Deadline passed: the drawn action with `logged: "unknown"`; the row
is still being written, and the signed record covers a crash of the process. Store down or guard in
LOCKDOWN: the declared fallback with `logged: false`, `degraded: true` and a record. A repeated
idempotency key gets its first answer, from memory while it is being stored, later from the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.db.decisions import find_decision
from steersman.db.rewards import spec_document
from steersman.db.write_batches import WriteTimeout
from steersman.platform.breaker import Breaker
from steersman.platform.http.messages import converted
from steersman.platform.postgres.database import as_tenant
from steersman.serving.arm_dispatch import ArmDispatch
from steersman.serving.decision_answer import declared, to_answer
from steersman.serving.draw import GUARDIAN
from steersman.serving.fallback_records import sign
from steersman.serving.micro_batch import MicroBatch, SlowLane
from steersman.serving.pending_decision import PendingDecision, PointRequest
from steersman.wire import DecideRequest, Decision, Problem, Refused, canonical_hash, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
    from uuid import UUID

    from asyncpg import Pool

    from steersman.db.decisions import DecisionRow, IdempotencyConflict
    from steersman.db.group_commit import GroupCommit
    from steersman.serving.arm_dispatch import OnArm
    from steersman.serving.draw import ServedPoint
    from steersman.serving.pending_decision import Drawn
    from steersman.serving.replicas import Replicas

_log = logging.getLogger(__name__)
_TOGETHER = 512  # rows per shared wait: the size of a flush


class Decider:
    """Answers decide requests of all tenants.

    A request takes three forms: `PointRequest`, `PendingDecision` and `DecisionRow`. Requests enter
    a queue; a task takes them until the queue is empty, draws them and submits their rows.

    Args:
        replicas: decision points.
        commits: group commit of the rows.
        pool: connections of role app, for reading earlier answers.
        secret: secret for signing records.
        guardian: returns the load guard's state: NORMAL, BROWNOUT or LOCKDOWN.
        on_fallback: callback with the reason of each fallback answer.
        on_scrubbed: callback with the number of removed personal data items by kind.
        on_arm: callback for each draw during a rollout and for draws that could not be stored, as
            `Metrics.arm`.
        on_answered: callback with the seconds of a request, without the first load of a tenant.
        replaying: circuit breaker for reading earlier answers; default: a new one.
        rng: random generator; default: seeded by the operating system.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        replicas: Replicas,
        commits: GroupCommit[DecisionRow, IdempotencyConflict],
        pool: Pool[Any],
        secret: bytes,
        *,
        guardian: Callable[[], str] = lambda: "NORMAL",
        on_fallback: Callable[[str], None] = lambda _reason: None,
        on_scrubbed: Callable[[Mapping[str, int]], None] = lambda _counts: None,
        on_arm: OnArm = lambda *_: None,
        on_answered: Callable[[float], None] = lambda _seconds: None,
        replaying: Breaker | None = None,
        rng: np.random.Generator | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._replicas = replicas
        self._commits = commits
        self._pool = pool
        self._secret = secret
        self._guardian = guardian
        self._on_scrubbed = on_scrubbed
        self._on_arm = on_arm
        self._on_answered = on_answered
        self._replaying = replaying or Breaker("store", time.monotonic)
        self._clock = clock
        self._dispatch = ArmDispatch(
            commits,
            guardian=guardian,
            rng=rng or np.random.default_rng(),
            on_fallback=on_fallback,
            on_arm=on_arm,
        )
        self._by_key: dict[tuple[UUID, str], PendingDecision] = {}
        self._batch: MicroBatch[PointRequest, Drawn] = MicroBatch()
        self._slow: SlowLane[PointRequest, Drawn] = SlowLane()
        self._batch_task: asyncio.Task[None] | None = None
        self._slow_task: asyncio.Task[None] | None = None

    async def decide(
        self, tenant: UUID, body: Mapping[str, Any], *, traceparent: str | None = None
    ) -> Decision:
        """Answer one request.

        Args:
            traceparent: W3C trace context to store.

        Raises:
            Refused: invalid request, unknown decision point, or a key used with another body.
        """
        asked = await self._read(tenant, body, traceparent)
        (drawn,) = await (self._draw_slow if asked.served.selects else self._draw_batched)([asked])
        decision = await self._answer(drawn)
        self._on_answered(time.monotonic() - asked.read_at)
        return decision

    async def decide_many(
        self,
        tenant: UUID,
        bodies: Sequence[Mapping[str, Any]],
        *,
        traceparent: str | None = None,
    ) -> list[Decision | Problem]:
        """Answer a batch. All requests share one wait, and each may be refused separately.

        Args:
            traceparent: W3C trace context to store.
        """
        answers: list[Decision | Problem | None] = [None] * len(bodies)
        asked: dict[int, PointRequest] = {}
        for place, body in enumerate(bodies):
            try:
                asked[place] = await self._read(tenant, body, traceparent)
            except Exception as error:  # noqa: BLE001 (fails one request only)
                answers[place] = _problem(error)
        for place, drawn in (await self._draw_all(asked)).items():
            try:
                answers[place] = await self._answer(drawn)
            except Exception as error:  # noqa: BLE001 (fails one request only)
                answers[place] = _problem(error)
        if asked:
            self._on_answered(time.monotonic() - max(one.read_at for one in asked.values()))
        return [answer for answer in answers if answer is not None]

    async def _read(
        self, tenant: UUID, body: Mapping[str, Any], traceparent: str | None
    ) -> PointRequest:
        request: DecideRequest = converted(body, DecideRequest)
        served = self._replicas.find(tenant, request.skill, request.decision)
        if served is None:
            served = await self._replicas.get(tenant, request.skill, request.decision)
        body_hash = None if request.idempotency_key is None else canonical_hash(body)
        context = self._context(tenant, served, request)
        return PointRequest(
            tenant, served, request, context, body_hash, traceparent, time.monotonic()
        )

    def _context(
        self, tenant: UUID, served: ServedPoint, request: DecideRequest
    ) -> Mapping[str, Any]:
        context = request.context
        if served.scrubbing is not None:
            context, found = served.scrubbing.context(context, self._secret, tenant)
            self._on_scrubbed(found)
        if served.wants_guardian and GUARDIAN not in context:
            return {**context, GUARDIAN: self._guardian().lower()}
        return context

    async def _draw_all(self, asked: Mapping[int, PointRequest]) -> dict[int, Drawn]:
        """Draw selections one by one and all other requests together."""
        slow = [place for place, one in asked.items() if one.served.selects]
        others = [place for place, one in asked.items() if not one.served.selects]
        if not slow:
            return dict(zip(others, await self._draw_batched([*asked.values()]), strict=True))
        drawn, selected = await asyncio.gather(
            self._draw_batched([asked[place] for place in others]),
            self._draw_slow([asked[place] for place in slow]),
        )
        return dict(zip([*others, *slow], [*drawn, *selected], strict=True))

    def _draw_batched(self, asked: Sequence[PointRequest]) -> asyncio.Future[list[Drawn]]:
        """Queue requests for the next micro-batch."""
        future = self._batch.put(asked)
        self._batch_task = _running(self._batch_task, self._take_batches)
        return future

    def _draw_slow(self, asked: Sequence[PointRequest]) -> asyncio.Future[list[Drawn]]:
        """Queue requests that are drawn one by one, a few in each loop iteration."""
        future = self._slow.put(asked)
        self._slow_task = _running(self._slow_task, self._take_slow)
        return future

    async def _take_batches(self) -> None:
        while self._batch:
            await self._batch.ready()
            entries = self._batch.take()
            try:
                drawn = self._begin([one for entry in entries for one in entry.items])
            except Exception as error:  # noqa: BLE001 (raised where the requests wait)
                _fail([entry.future for entry in entries], error)
            else:
                start = 0
                for entry in entries:
                    end = start + len(entry.items)
                    _hand_over(entry.future, drawn[start:end])
                    start = end
            await asyncio.sleep(0)  # other work runs between two batches

    async def _take_slow(self) -> None:
        while self._slow:
            for entry, one in self._slow.take():
                try:
                    entry.results += self._begin([one])
                except Exception as error:  # noqa: BLE001 (raised where the request waits)
                    _fail([entry.future], error)
                    continue
                if len(entry.results) == len(entry.items):
                    _hand_over(entry.future, entry.results)
            await asyncio.sleep(0)

    def _begin(self, asked: Sequence[PointRequest]) -> list[Drawn]:
        """Draw each request, or find an equal one in progress; submit the rows to the store."""
        begun: dict[int, Drawn] = {}
        first: dict[tuple[UUID, str], int] = {}
        twins: list[tuple[int, int]] = []
        apart: dict[ServedPoint | None, list[int]] = {}  # grouped by point with a rollout
        for place, one in enumerate(asked):
            key = one.request.idempotency_key
            if key is not None:
                earlier = self._by_key.get((one.tenant, key))
                if earlier is not None:
                    begun[place] = _same_request(earlier, one)
                    continue
                if first.setdefault((one.tenant, key), place) != place:
                    twins.append((place, first[one.tenant, key]))
                    continue
            point = None if one.served.arms is None else one.served
            apart.setdefault(point, []).append(place)
        for places in apart.values():
            drawn = self._draw_apart([asked[place] for place in places])
            begun.update(zip(places, drawn, strict=True))
        for place, original in twins:
            other = begun[original]
            if isinstance(other, PendingDecision) and other.stored:
                begun[place] = _same_request(other, asked[place])
            else:  # the original request failed
                (begun[place],) = self._begin([asked[place]])
        drawn = [begun[place] for place in range(len(asked))]
        self._submit([one for one in drawn if isinstance(one, PendingDecision) and one.stored])
        return drawn

    def _draw_apart(self, asked: Sequence[PointRequest]) -> list[Drawn]:
        """Draw requests; after a failure draw each half, so that one error fails one request."""
        try:
            return self._draw(asked)
        except Exception as error:  # noqa: BLE001 (raised where the request waits)
            half = len(asked) // 2
            if not half:
                return [error]
            return self._draw_apart(asked[:half]) + self._draw_apart(asked[half:])

    def _draw(self, asked: Sequence[PointRequest]) -> list[Drawn]:
        """Draw requests of one point with a rollout, or of points without one; make their rows."""
        now = self._clock()
        at = datetime.fromtimestamp(now, UTC)
        identifiers = [new_id(now) for _ in asked]
        results = self._dispatch.draw(asked, identifiers)
        for identifier, drawn in zip(identifiers, results, strict=True):
            if isinstance(drawn, PendingDecision):
                drawn.identify(identifier, at)
        return results

    def _submit(self, drawn: Sequence[PendingDecision]) -> None:
        """Submit rows to the store; rows without a key and with equal deadlines share one wait.

        Keys are remembered here and not earlier, because settling a row forgets its key.
        """
        now = time.monotonic()
        together: dict[tuple[UUID, float], list[PendingDecision]] = {}
        for one in drawn:
            if one.commit is not None:
                continue
            asked, key = one.asked, one.asked.request.idempotency_key
            if key is None:
                together.setdefault((asked.tenant, asked.within_s), []).append(one)
                continue
            one.commit = self._commits.submit(
                [one.row],
                within_s=asked.read_at + asked.within_s - now,
                on_settled=partial(self._settle, (one,)),
            )
            self._by_key[asked.tenant, key] = one
        for alike in together.values():
            for start in range(0, len(alike), _TOGETHER):
                self._submit_together(alike[start : start + _TOGETHER], now)

    def _submit_together(self, group: Sequence[PendingDecision], now: float) -> None:
        tried = [one for one in group if one.arm]
        commit = self._commits.submit(
            [one.row for one in group],
            # The earliest request of a group sets its deadline.
            within_s=min(one.asked.read_at for one in group) + group[0].asked.within_s - now,
            on_settled=partial(self._settle, tried) if tried else None,
        )
        for one in group:
            one.commit = commit

    def _settle(
        self,
        drawn: Sequence[PendingDecision],
        verdicts: Mapping[Hashable, IdempotencyConflict | Exception],
    ) -> None:
        """Forget settled keys and count draws of an arm that were not stored.

        The store may refuse a row long after its caller got "unknown" or left.
        """
        for one in drawn:
            row = one.row
            if row.idempotency_key is not None:
                self._by_key.pop((row.tenant, row.idempotency_key), None)
            if one.arm and isinstance(verdicts.get(row.id), Exception):
                self._on_arm(row.skill, row.point, one.arm, "unstored", 0.0)

    async def _answer(self, drawn: Drawn) -> Decision:
        if isinstance(drawn, Exception):
            raise drawn
        row, spec, commit = drawn.row, drawn.served.spec, drawn.commit
        if commit is None:  # the fallback answered, and the client keeps the row
            return to_answer(row, spec, logged=False, record=sign(self._secret, row))
        # Shielded: a caller that leaves must not cancel the shared wait.
        verdicts = commit.result() if commit.done() else await asyncio.shield(commit)
        if isinstance(verdicts, WriteTimeout):
            return to_answer(row, spec, logged="unknown", record=sign(self._secret, row))
        verdict = verdicts.get(row.id)
        if verdict is None:
            return to_answer(row, spec, logged=True)
        if isinstance(verdict, Exception):
            detail = f"this decision cannot be stored: {type(verdict).__name__}; change the request"
            raise Refused.of("invalid", detail) from verdict
        if verdict.body_hash != row.body_hash:
            raise _key_conflict(row.idempotency_key)
        return await self._earlier(row.tenant, verdict.earlier)

    async def _earlier(self, tenant: UUID, identifier: UUID) -> Decision:
        """Return the earlier answer for the same key."""
        row, document = await self._replaying.call(lambda: self._read_earlier(tenant, identifier))
        return to_answer(row, declared(document), logged=True)

    async def _read_earlier(self, tenant: UUID, identifier: UUID) -> tuple[DecisionRow, str]:
        async with self._pool.acquire() as connection:
            row = await find_decision(connection, tenant, identifier)
            if row is None:
                detail = "the earlier decision with this idempotency key was erased or is too old; "
                detail += "use another key"
                raise Refused.of("idempotency_conflict", detail, field="idempotency_key")
            async with as_tenant(connection, tenant):
                return row, await spec_document(connection, row.spec_hash)


def _running(
    task: asyncio.Task[None] | None, work: Callable[[], Coroutine[Any, Any, None]]
) -> asyncio.Task[None]:
    """Return the task that empties a queue; start it again if it ended on an empty queue."""
    return asyncio.create_task(work()) if task is None or task.done() else task


def _hand_over(future: asyncio.Future[list[Drawn]], drawn: list[Drawn]) -> None:
    """Resolve a request's future; a single decision waits for its row and wakes only once."""

    def wake(_: object = None) -> None:
        if not future.done():
            future.set_result(drawn)

    only = drawn[0] if len(drawn) == 1 else None
    if isinstance(only, PendingDecision) and only.commit is not None:
        only.commit.add_done_callback(wake)
    else:
        wake()


def _fail(futures: Sequence[asyncio.Future[list[Drawn]]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)


def _same_request(earlier: PendingDecision, asked: PointRequest) -> Drawn:
    """Return the decision in progress with the same key, or a refusal if its body differs."""
    if earlier.asked.body_hash == asked.body_hash:
        return earlier
    return _key_conflict(asked.request.idempotency_key)


def _key_conflict(key: str | None) -> Refused:
    detail = f"idempotency key {key!r} was used with another body; use a new key for a new request"
    return Refused.of("idempotency_conflict", detail, field="idempotency_key")


def _problem(error: Exception) -> Problem:
    """Return the problem of one failed request of a batch."""
    if isinstance(error, Refused):
        return error.problem
    _log.error("a decision of a batch failed", exc_info=error)
    return Problem.of("internal", "this decision failed; the server log has the error")
