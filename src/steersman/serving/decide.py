"""Decide endpoint logic: draw, store, answer.

Stored in time: `logged: true`. Deadline passed: the drawn action with `logged: "unknown"`; the row
is
still being written, and the signed record covers a crash of the process. Store down or guard in
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

from steersman.db.decisions import Taken, find_decision
from steersman.db.write_batches import Expired
from steersman.errors import SteersmanError
from steersman.platform.http.messages import converted
from steersman.platform.postgres.database import as_tenant, store_breaker
from steersman.serving.arm_dispatch import Drew, take_turns
from steersman.serving.decision_rows import Wanted, declared, to_answer, to_row
from steersman.serving.draw import GUARDIAN, draw_many, fall_back
from steersman.serving.fallback_records import sign
from steersman.serving.micro_batch import Gathering, Pacing
from steersman.serving.pending_decision import OnItsWay, key_conflict, same_request, waiting_of
from steersman.wire import DecideRequest, Decision, Problem, Refused, canonical_hash, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from uuid import UUID

    from asyncpg import Pool

    from steersman.db.decisions import DecisionRow
    from steersman.db.group_commit import GroupCommit
    from steersman.platform.breaker import Breaker
    from steersman.serving.arm_dispatch import Asked, OnArm
    from steersman.serving.draw import Served
    from steersman.serving.pending_decision import Begun
    from steersman.serving.replicas import Replicas

_log = logging.getLogger(__name__)
_TOGETHER = 512  # rows that share a wait: as many as a flush holds


class Deciding:
    """Answers decide requests of all tenants.

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
        commits: GroupCommit[DecisionRow, Taken],
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
        self._on_fallback = on_fallback
        self._on_scrubbed = on_scrubbed
        self._on_arm = on_arm
        self._on_answered = on_answered
        self._replaying = replaying or store_breaker()
        self._rng = rng or np.random.default_rng()
        self._clock = clock
        self._asked: dict[tuple[UUID, str], OnItsWay] = {}
        self._gathering: Gathering[Wanted, Begun] = Gathering(self._begin, waiting_of)
        self._pacing: Pacing[Wanted, Begun] = Pacing(self._begin, waiting_of)

    async def decide(
        self, tenant: UUID, body: Mapping[str, Any], *, traceparent: str | None = None
    ) -> Decision:
        """Answer one request.

        Args:
            traceparent: W3C trace context to store.

        Raises:
            Refused: invalid request, unknown decision point, or a key used with another body.
        """
        wanted = await self._read(tenant, body, traceparent)
        selects = wanted.served.selects
        (begun,) = await (self._pacing if selects else self._gathering).add([wanted])
        if isinstance(begun, Exception):
            raise begun
        decision = begun if isinstance(begun, Decision) else await self._finish(begun)
        self._on_answered(time.monotonic() - wanted.read_at)
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
        wanted: dict[int, Wanted] = {}
        for place, body in enumerate(bodies):
            try:
                wanted[place] = await self._read(tenant, body, traceparent)
            except Refused as refused:
                answers[place] = refused.problem
        for place, one in (await self._all(wanted)).items():
            try:
                if isinstance(one, Exception):
                    answers[place] = _problem(one)
                else:
                    answers[place] = one if isinstance(one, Decision) else await self._finish(one)
            except Exception as error:  # noqa: BLE001 (the others are stored, and get their answers)
                answers[place] = _problem(error)
        if wanted:
            self._on_answered(time.monotonic() - max(one.read_at for one in wanted.values()))
        return [answer for answer in answers if answer is not None]

    async def _all(self, wanted: Mapping[int, Wanted]) -> dict[int, Begun]:
        """Draw selections one by one and all other requests together."""
        paced = [place for place, one in wanted.items() if one.served.selects]
        if not paced:
            return dict(zip(wanted, await self._gathering.add([*wanted.values()]), strict=True))
        others = [place for place, one in wanted.items() if not one.served.selects]
        drawn, selected = await asyncio.gather(
            self._gathering.add([wanted[place] for place in others]),
            self._pacing.add([wanted[place] for place in paced]),
        )
        return dict(zip([*others, *paced], [*drawn, *selected], strict=True))

    async def _read(self, tenant: UUID, body: Mapping[str, Any], traceparent: str | None) -> Wanted:
        request: DecideRequest = converted(body, DecideRequest)
        served = self._replicas.find(tenant, request.skill, request.decision)
        if served is None:
            served = await self._replicas.get(tenant, request.skill, request.decision)
        body_hash = None if request.idempotency_key is None else canonical_hash(body)
        return Wanted(tenant, served, request, body_hash, traceparent, time.monotonic())

    def _begin(self, wanted: Sequence[Wanted]) -> list[Begun]:
        """Draw each request, or find the same one in progress; submit the rows to the store."""
        begun: dict[int, Begun] = {}
        first: dict[tuple[UUID, str], int] = {}
        twins: list[tuple[int, int]] = []
        apart: dict[Served | None, list[int]] = {}  # by point where a rollout is under way
        for place, one in enumerate(wanted):
            key = one.request.idempotency_key
            if key is not None:
                asked = self._asked.get((one.tenant, key))
                if asked is not None:
                    begun[place] = same_request(asked, one)
                    continue
                if first.setdefault((one.tenant, key), place) != place:
                    twins.append((place, first[one.tenant, key]))
                    continue
            point = None if one.served.arms is None else one.served
            apart.setdefault(point, []).append(place)
        for places in apart.values():
            asking = self._ask_apart([wanted[place] for place in places])
            begun.update(zip(places, asking, strict=True))
        for place, original in twins:
            other = begun[original]
            if isinstance(other, OnItsWay):
                begun[place] = same_request(other, wanted[place])
            else:  # that request failed
                (begun[place],) = self._begin([wanted[place]])
        answers = [begun[place] for place in range(len(wanted))]
        self._submit([one for one in answers if isinstance(one, OnItsWay)])
        return answers

    def _ask_apart(self, wanted: Sequence[Wanted]) -> list[Begun]:
        """Draw per request after a common failure, so that an error affects one request only."""
        try:
            return self._ask(wanted)
        except Exception as error:  # noqa: BLE001 (raised where the request waits)
            half = len(wanted) // 2
            if not half:
                return [error]
            return self._ask_apart(wanted[:half]) + self._ask_apart(wanted[half:])

    def _ask(self, wanted: Sequence[Wanted]) -> list[Begun]:
        """Draw for requests of points that share a rollout or have none; create their rows."""
        asked = [(one.request, self._context(one)) for one in wanted]
        now = self._clock()
        at = datetime.fromtimestamp(now, UTC)
        identifiers = [new_id(now) for _ in asked]
        begun: list[Begun] = []
        results = self._draw([one.served for one in wanted], asked, identifiers)
        for one, (request, context), identifier, result in zip(
            wanted, asked, identifiers, results, strict=True
        ):
            if isinstance(result, Exception):
                begun.append(result)
                continue
            row = to_row(one, context, result, identifier=identifier, at=at)
            spec = result.served.spec
            if not result.stored:
                record = sign(self._secret, row)
                begun.append(to_answer(row, spec, logged=False, record=record))
                continue
            deadline = request.deadline_ms
            within_s = one.served.deadline_s if deadline is None else deadline / 1000
            begun.append(OnItsWay(row, spec, within_s, one.read_at, result.arm))
        return begun

    def _submit(self, asked: Sequence[OnItsWay]) -> None:
        """Submit rows to the store; rows without a key and with equal deadlines share one wait.

        Keys are remembered here and not earlier, because settling a row forgets its key.
        """
        now = time.monotonic()
        together: dict[tuple[UUID, float], list[OnItsWay]] = {}
        for one in asked:
            if one.waiting is not None:
                continue
            key = one.row.idempotency_key
            if key is None:
                together.setdefault((one.row.tenant, one.within_s), []).append(one)
                continue
            one.waiting = self._commits.submit(
                [one.row],
                within_s=one.read_at + one.within_s - now,
                on_settled=partial(self._settle, (one,)),
            )
            self._asked[one.row.tenant, key] = one
        for alike in together.values():
            for start in range(0, len(alike), _TOGETHER):
                self._submit_together(alike[start : start + _TOGETHER], now)

    def _submit_together(self, group: Sequence[OnItsWay], now: float) -> None:
        tried = [one for one in group if one.arm]
        waiting = self._commits.submit(
            [one.row for one in group],
            # The earliest request of a group sets its deadline.
            within_s=min(one.read_at for one in group) + group[0].within_s - now,
            on_settled=partial(self._settle, tried) if tried else None,
        )
        for one in group:
            one.waiting = waiting

    def _settle(
        self, asked: Sequence[OnItsWay], verdicts: Mapping[Hashable, Taken | Exception]
    ) -> None:
        """Forget settled keys and count draws of an arm that were not stored.

        The store may refuse a row long after its caller got "unknown" or left.
        """
        for one in asked:
            row = one.row
            if row.idempotency_key is not None:
                self._asked.pop((row.tenant, row.idempotency_key), None)
            if one.arm and isinstance(verdicts.get(row.id), Exception):
                self._on_arm(row.skill, row.point, one.arm, "unstored", 0.0)

    def _context(self, wanted: Wanted) -> dict[str, Any]:
        served, context = wanted.served, wanted.request.context
        if served.scrubbing is not None:
            context, found = served.scrubbing.context(context, self._secret, wanted.tenant)
            self._on_scrubbed(found)
        if served.wants_guardian and GUARDIAN not in context:
            return {**context, GUARDIAN: self._guardian().lower()}
        return context

    def _draw(
        self, points: Sequence[Served], asked: Asked, identifiers: Sequence[UUID]
    ) -> list[Drew | Exception]:
        served, arms = points[0], points[0].arms
        if arms is not None and self._serves():
            return take_turns(
                arms,
                asked,
                identifiers,
                rng=self._rng,
                control=lambda own: self._control([(served, *one) for one in own]),
                on_arm=self._on_arm,
            )
        return self._control([(point, *one) for point, one in zip(points, asked, strict=True)])

    def _serves(self) -> bool:
        """Return whether policies answer; if not, the fallback does."""
        return self._guardian() != "LOCKDOWN" and self._commits.available

    def _control(
        self, asked: Sequence[tuple[Served, DecideRequest, dict[str, Any]]]
    ) -> list[Drew | Exception]:
        """Return the draws of control or of the fallback."""
        if self._guardian() == "LOCKDOWN":
            return [self._fall_back(*one, "lockdown") for one in asked]
        # With nothing waiting, one decision goes through to see whether the store is back.
        through = len(asked) if self._commits.available else int(self._commits.depth == 0)
        results: list[Drew | Exception] = []
        for one, drawn in zip(asked, draw_many(asked[:through], self._rng), strict=False):
            if isinstance(drawn, (SteersmanError, ArithmeticError, np.linalg.LinAlgError)):
                _, request, _ = one
                _log.error("%s/%s uses the fallback: %r", request.skill, request.decision, drawn)
                results.append(self._fall_back(*one, "policy", stored=True))
            elif isinstance(drawn, Exception):
                results.append(drawn)
            else:
                if drawn.degraded:  # nothing was eligible
                    self._on_fallback("eligible")
                results.append(Drew(drawn, one[0]))
        return results + [self._fall_back(*one, "store") for one in asked[through:]]

    def _fall_back(
        self,
        served: Served,
        request: DecideRequest,
        context: dict[str, Any],
        reason: str,
        *,
        stored: bool = False,
    ) -> Drew:
        """Return the declared fallback; `stored` says whether the store will keep it."""
        self._on_fallback(reason)
        return Drew(fall_back(served, request, context), served, stored=stored)

    async def _finish(self, asked: OnItsWay) -> Decision:
        waiting = asked.waiting
        assert waiting is not None  # noqa: S101 (submitted before)
        # A caller that leaves must not cancel the wait that others share.
        verdicts = waiting.result() if waiting.done() else await asyncio.shield(waiting)
        if isinstance(verdicts, Expired):
            record = sign(self._secret, asked.row)
            return to_answer(asked.row, asked.spec, logged="unknown", record=record)
        verdict = verdicts.get(asked.row.id)
        if verdict is None:
            return to_answer(asked.row, asked.spec, logged=True)
        if isinstance(verdict, Exception):
            detail = f"this decision cannot be stored: {type(verdict).__name__}; change the request"
            raise Refused.of("invalid", detail) from verdict
        if verdict.body_hash != asked.row.body_hash:
            raise key_conflict(asked.row.idempotency_key)
        return await self._earlier(asked.row.tenant, verdict.earlier)

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
                document: str = await connection.fetchval(
                    "SELECT document FROM spec WHERE hash = $1", row.spec_hash
                )
        return row, document


def _problem(error: Exception) -> Problem:
    """Return the problem of one failed request of a batch."""
    if isinstance(error, Refused):
        return error.problem
    _log.error("a decision of a batch failed", exc_info=error)
    return Problem.of("internal", "this decision failed; the server log has the error")
