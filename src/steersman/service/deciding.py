"""Deciding: draw, have it stored, answer. There is always an answer, and it tells what is sure.

Durable in time: `logged: true`. The deadline first: the drawn action, `logged: "unknown"`; the row
is still being written, and the signed record makes up for it if this process should die. The store
away or the guard in LOCKDOWN: the declared fallback, `logged: false`, `degraded: true`, with its
record. An idempotency key that is asked again gets its first answer, from here while it is on its
way, from the store ever after.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from steersman.errors import SteersmanError
from steersman.service.drawing import GUARDIAN, draw, fall_back, over, to_answer, to_row
from steersman.service.records import sign
from steersman.spec import loads
from steersman.store import AWAY, Expired, Taken, as_tenant, find_decision
from steersman.wire import DecideRequest, Decision, Problem, Refused, canonical_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from uuid import UUID

    from asyncpg import Pool

    from steersman.service.drawing import Drawn, Served
    from steersman.service.replicas import Replicas
    from steersman.store import DecisionRow, GroupCommit

    Waiting = asyncio.Future[dict[Hashable, Taken | Exception] | Expired]

_log = logging.getLogger(__name__)
_convert = msgspec.convert


class _Asked:
    """A decision on its way: what to answer, for how long to wait, and on what."""

    __slots__ = ("names", "row", "waiting", "within_s")

    def __init__(self, row: DecisionRow, names: Sequence[str], within_s: float) -> None:
        self.row = row
        self.names = names
        self.within_s = within_s
        self.waiting: Waiting | None = None


class Deciding:
    """Answers decide requests of any tenant.

    Args:
        replicas: the decision points.
        commits: writes the rows.
        pool: connections of role app, to read earlier answers.
        secret: signs records.
        guardian: the load guard's state: NORMAL, BROWNOUT or LOCKDOWN.
        on_fallback: told the reason whenever a fallback answers.
        on_scrubbed: told how many of each kind were taken out of a context.
        rng: draws; default: seeded by the operating system.
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
        self._rng = rng or np.random.default_rng()
        self._clock = clock
        self._asked: dict[tuple[UUID, str], _Asked] = {}

    async def decide(
        self, tenant: UUID, body: Mapping[str, Any], *, traceparent: str | None = None
    ) -> Decision:
        """Answer one request.

        Args:
            tenant: who asks.
            body: a `DecideRequest` as plain values.
            traceparent: W3C trace context, to be stored.

        Returns:
            The decision.

        Raises:
            Refused: a request that is not as declared, an unknown point, or a key that was used
                with another body.
        """
        request = self._read(body)
        served = self._replicas.find(tenant, request.skill, request.decision)
        if served is None:
            served = await self._replicas.get(tenant, request.skill, request.decision)
        begun = self._begin(tenant, served, request, body, traceparent)
        if isinstance(begun, Decision):
            return begun
        self._submit([begun])
        return await self._finish(begun)

    async def decide_many(
        self,
        tenant: UUID,
        bodies: Sequence[Mapping[str, Any]],
        *,
        traceparent: str | None = None,
    ) -> list[Decision | Problem]:
        """Answer several requests, which share the wait; each may be refused on its own.

        Args:
            tenant: who asks.
            bodies: as in `decide`.
            traceparent: W3C trace context, to be stored.

        Returns:
            A decision or a problem for each, in order.
        """
        begun: list[Decision | Problem | _Asked] = []
        for body in bodies:
            try:
                request = self._read(body)
                served = await self._replicas.get(tenant, request.skill, request.decision)
                begun.append(self._begin(tenant, served, request, body, traceparent))
            except Refused as refused:
                begun.append(refused.problem)
        self._submit([one for one in begun if isinstance(one, _Asked)])
        answers: list[Decision | Problem] = []
        for item in begun:
            try:
                answers.append(await self._finish(item) if isinstance(item, _Asked) else item)
            except Refused as refused:
                answers.append(refused.problem)
        return answers

    @staticmethod
    def _read(body: Mapping[str, Any]) -> DecideRequest:
        try:
            return _convert(body, DecideRequest)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            raise Refused.of("invalid", what, field=where.strip("`.")) from None

    def _begin(
        self,
        tenant: UUID,
        served: Served,
        request: DecideRequest,
        body: Mapping[str, Any],
        traceparent: str | None,
    ) -> _Asked | Decision:
        """Draw, or find the same request on its way."""
        key = request.idempotency_key
        body_hash = None
        if key is not None:
            body_hash = canonical_hash(body)
            asked = self._asked.get((tenant, key))
            if asked is not None:
                return asked if asked.row.body_hash == body_hash else _conflict(key)
        context = self._context(tenant, served, request)
        drawn, stored = self._draw(served, request, context)
        row = to_row(
            drawn,
            served,
            tenant,
            request,
            context,
            at=self._clock(),
            body_hash=body_hash,
            traceparent=traceparent,
        )
        names = over(row, served.spec)
        if not stored:
            return to_answer(row, names, logged=False, record=sign(self._secret, row))
        within_s = served.deadline_s if request.deadline_ms is None else request.deadline_ms / 1000
        asked = _Asked(row, names, within_s)
        if key is not None:
            self._asked[tenant, key] = asked
        return asked

    def _submit(self, asked: Sequence[_Asked]) -> None:
        """Hand over to the store; those without a key that wait alike share their wait."""
        together: dict[float, list[_Asked]] = {}
        for one in asked:
            if one.waiting is not None:
                continue
            key = one.row.idempotency_key
            if key is None:
                together.setdefault(one.within_s, []).append(one)
                continue
            place = (one.row.tenant, key)
            one.waiting = self._commits.submit(
                [one.row],
                within_s=one.within_s,
                on_settled=lambda place=place: self._forget(place),  # type: ignore[misc]
            )
        for within_s, group in together.items():
            waiting = self._commits.submit([one.row for one in group], within_s=within_s)
            for one in group:
                one.waiting = waiting

    def _forget(self, place: tuple[UUID, str]) -> None:
        self._asked.pop(place, None)

    def _context(self, tenant: UUID, served: Served, request: DecideRequest) -> dict[str, Any]:
        context = request.context
        if served.scrubbing is not None:
            context, found = served.scrubbing.context(context, self._secret, tenant)
            self._on_scrubbed(found)
        if served.wants_guardian and GUARDIAN not in context:
            return {**context, GUARDIAN: self._guardian().lower()}
        return context

    def _draw(
        self, served: Served, request: DecideRequest, context: dict[str, Any]
    ) -> tuple[Drawn, bool]:
        """Return the draw, and whether the store shall have it."""
        if self._guardian() == "LOCKDOWN":
            self._on_fallback("lockdown")
            return fall_back(served, request, context), False
        # With nothing waiting, one decision goes through to see whether the store is back.
        if not self._commits.available and self._commits.depth > 0:
            self._on_fallback("store")
            return fall_back(served, request, context), False
        try:
            drawn = draw(served, request, context, self._rng)
        except (SteersmanError, ArithmeticError, np.linalg.LinAlgError) as error:
            _log.error("%s/%s falls back: %r", request.skill, request.decision, error)
            drawn = fall_back(served, request, context)
        if drawn.degraded:
            self._on_fallback("policy")
        return drawn, True

    async def _finish(self, asked: _Asked) -> Decision:
        # Retries of a key share the wait, and one whose caller has gone must not end it for all.
        assert asked.waiting is not None  # noqa: S101 (submitted before)
        alone = asked.row.idempotency_key is None
        verdicts = await (asked.waiting if alone else asyncio.shield(asked.waiting))
        if isinstance(verdicts, Expired):
            record = sign(self._secret, asked.row)
            return to_answer(asked.row, asked.names, logged="unknown", record=record)
        verdict = verdicts.get(asked.row.id)
        if verdict is None:
            return to_answer(asked.row, asked.names, logged=True)
        if isinstance(verdict, Exception):
            detail = f"this decision cannot be stored: {type(verdict).__name__}; change the request"
            raise Refused.of("invalid", detail) from verdict
        if verdict.body_hash != asked.row.body_hash:
            _conflict(asked.row.idempotency_key or "")
        return await self._earlier(asked.row.tenant, verdict.earlier)

    async def _earlier(self, tenant: UUID, identifier: UUID) -> Decision:
        """Return the answer that was given to the same key before."""
        try:
            async with self._pool.acquire() as connection:
                row = await find_decision(connection, tenant, identifier)
                if row is None:
                    detail = "the earlier decision of this key was erased; use another key"
                    raise Refused.of("idempotency_conflict", detail, field="idempotency_key")
                async with as_tenant(connection, tenant):
                    document = await connection.fetchval(
                        "SELECT document FROM spec WHERE hash = $1", row.spec_hash
                    )
        except AWAY:
            _log.exception("an earlier answer cannot be read")
            detail = "the earlier answer to this key cannot be read now; try again"
            raise Refused.of("unavailable", detail, retry_after_s=1.0) from None
        return to_answer(row, over(row, loads(document)), logged=True)


def _conflict(key: str) -> Decision:
    detail = f"idempotency key {key!r} was used with another body; use a new key for a new request"
    raise Refused.of("idempotency_conflict", detail, field="idempotency_key")
