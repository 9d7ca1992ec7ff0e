"""Client core without I/O: builds requests, judges answers, decides on retries."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from steersman_client.breaker import Breaker
from steersman_client.errors import InputError, QueueError, ServiceError, UnavailableError
from steersman_client.exchange import Local, Request, Send, Wait
from steersman_client.messages import Decision, Problem
from steersman_client.requests import answer_locally, decision_id, encode, request_of, signed_record
from steersman_client.responses import Again, Done, Refusal, error_of, judge
from steersman_client.retry import RETRIED, Backoff
from steersman_client.tracing import trace_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from steersman_client.exchange import Heard, Steps
    from steersman_client.items import Item
    from steersman_client.outbox import Outbox
    from steersman_client.requests import Ask
    from steersman_client.responses import Verdict

T = TypeVar("T")
_log = logging.getLogger("steersman.client")
_decision = msgspec.json.Decoder(Decision).decode
FLUSH_POLL_S = 0.02


class _Decisions(msgspec.Struct):
    decisions: list[dict[str, Any]]


_decisions = msgspec.json.Decoder(_Decisions).decode


class Core:
    """Methods of a client as generators of steps.

    Args:
        outbox: durable queue.
        retries: number of tries after the first.
        clock: monotonic clock in seconds.
        now: seconds since 1970.
        rng: random generator of the jitter; a fork does not copy the default's state.
    """

    def __init__(
        self,
        outbox: Outbox,
        retries: int,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.outbox = outbox
        self.breaker = Breaker(clock)
        self._tries = retries + 1
        self._clock = clock
        self._now = now
        self._backoff = Backoff(0.05, 2.0, rng or random.SystemRandom())
        self._outage = False
        self.answered_locally = 0
        self.unrecorded = 0

    def decide(self, ask: Ask, timeout_s: float) -> Steps[Decision]:
        """Request one decision; use the default without an answer."""
        message = request_of(ask, timeout_s)
        body = encode(message, context=message.context, features=message.features)
        request = Request("POST", "/v1/decide", body, trace_headers())
        try:
            decision = yield from self.exchange(request, _decision, timeout_s)
        except UnavailableError as error:
            if ask.default is None:
                raise
            return (yield from self._answer_locally([ask], error))[0]
        self._outage = False
        if (record := signed_record(decision)) is not None:
            yield from self._keep([record])
        return decision

    def decide_many(
        self, asks: Sequence[Ask], timeout_s: float
    ) -> Steps[list[Decision | ServiceError]]:
        """Request several decisions; the result holds a decision or an error for each."""
        if not 1 <= len(asks) <= 1000:
            raise InputError(f"a batch must hold 1 to 1000 questions, got {len(asks)}; split it")
        messages = [request_of(ask, timeout_s) for ask in asks]
        parts = [(message.context, message.features) for message in messages]
        body = encode({"requests": messages}, requests=parts)
        request = Request("POST", "/v1/decide", body, trace_headers())

        def parse(answer: bytes) -> list[Decision | ServiceError]:
            return _one_each(_decisions(answer).decisions, len(asks))

        heard: list[Decision | ServiceError]
        try:
            heard = yield from self.exchange(request, parse, timeout_s)
            self._outage = False
        except UnavailableError as error:
            heard = [error] * len(asks)
        yield from self._keep(
            [
                record
                for one in heard
                if isinstance(one, Decision) and (record := signed_record(one))
            ]
        )
        return (yield from self._fill_in(asks, heard))

    def explain(
        self, decision: Decision | UUID | str, timeout_s: float, *, recompute: bool
    ) -> Steps[Any]:
        """Request the explanation of a decision."""
        path = f"/v1/decisions/{decision_id(decision)}/explain"
        path += "?recompute=true" if recompute else ""
        request = Request("GET", path, headers=trace_headers())
        return (yield from self.exchange(request, msgspec.json.decode, timeout_s))

    def ping(self, timeout_s: float) -> Steps[bool]:
        """Check once whether the service is alive."""
        heard = yield Send(Request("GET", "/healthz"), timeout_s)
        return getattr(heard, "status", 0) == 200

    def report(self, item: Item) -> Steps[str]:
        """Queue an event; return its id."""
        yield Local(lambda: self.outbox.put([item]))
        return item.id

    def flush(self, timeout_s: float) -> Steps[int]:
        """Wait until the queue is empty or the time is over; return the number of rows left."""
        until = self._clock() + timeout_s
        self.outbox.hurry()
        while not (yield Local(self.outbox.is_empty)) and self._clock() < until:
            yield Wait(min(FLUSH_POLL_S, max(0.0, until - self._clock())))
        backlog = yield Local(self.outbox.backlog)
        left: int = backlog.records + backlog.events
        return left

    def exchange(self, request: Request, parse: Callable[[bytes], T], timeout_s: float) -> Steps[T]:
        """Send a request until it succeeds, is refused permanently, or the time is over."""
        until = self._clock() + timeout_s
        last = Again("not tried, because earlier requests failed in a row")
        tried = 0
        while tried < self._tries and self.breaker.allow():
            # Limit each try, so that a hanging server leaves time for another one.
            share = 2 if tried == 0 and self._tries > 1 else 1
            verdict = yield from self._try(
                Send(request, max(0.001, (until - self._clock()) / share)), parse
            )
            if isinstance(verdict, Done):
                return verdict.value
            if isinstance(verdict, Refusal):
                raise verdict.error
            last = verdict
            pause = self._backoff.pause(tried, last.retry_after_s)
            tried += 1
            if tried == self._tries or self._clock() + pause >= until:
                break
            yield Wait(pause)
        raise UnavailableError(
            f"{request.method} {request.path}: no usable answer in {timeout_s * 1000:.0f} ms and "
            f"{tried} tries; {last.reason}; check that the service runs (`steersman up`) and that "
            "its URL is right: http or https, host and port",
            last.problem,
        )

    def _try(self, send: Send, parse: Callable[[bytes], T]) -> Steps[Verdict[T]]:
        try:
            heard: Heard = yield send
        except BaseException:
            self.breaker.abandoned()
            raise
        verdict = judge(heard, parse, self._now())
        if isinstance(verdict, Again) and not verdict.healthy:
            self.breaker.failed()
        else:
            self.breaker.succeeded()
        return verdict

    def _fill_in(
        self, asks: Sequence[Ask], heard: Sequence[Decision | ServiceError]
    ) -> Steps[list[Decision | ServiceError]]:
        filled = list(heard)
        needy = [
            index
            for index, (ask, one) in enumerate(zip(asks, heard, strict=True))
            if isinstance(one, UnavailableError) and ask.default is not None
        ]
        if needy:
            reason = heard[needy[0]]
            local = yield from self._answer_locally([asks[index] for index in needy], reason)
            for index, decision in zip(needy, local, strict=True):
                filled[index] = decision
        return filled

    def _answer_locally(self, asks: Sequence[Ask], reason: object) -> Steps[list[Decision]]:
        # Log once per outage, because there may be thousands of requests per second.
        _log.log(
            logging.DEBUG if self._outage else logging.WARNING,
            "decisions are answered with their defaults: %s",
            reason,
        )
        self._outage = True
        pairs = [answer_locally(ask) for ask in asks]
        self.answered_locally += len(pairs)
        yield from self._keep([record for _, record in pairs])
        return [decision for decision, _ in pairs]

    def _keep(self, records: Sequence[Item]) -> Steps[None]:
        """Queue records; a queue error must not prevent the answer."""
        if not records:
            return

        def put() -> None:
            try:
                self.outbox.put(records)
            except QueueError:
                self.unrecorded += len(records)
                _log.exception(
                    "%d decisions could not be queued; events about them may be refused",
                    len(records),
                )

        yield Local(put)


def _one_each(found: Sequence[dict[str, Any]], expected: int) -> list[Decision | ServiceError]:
    if len(found) != expected:
        raise ValueError(f"{len(found)} decisions for {expected} requests")
    return [_decision_or_error(one) for one in found]


def _decision_or_error(found: dict[str, Any]) -> Decision | ServiceError:
    if "decision_id" in found:
        return msgspec.convert(found, Decision)
    problem = msgspec.convert(found.get("problem", found), Problem)
    if problem.status in RETRIED:
        return UnavailableError(f"{problem.title}: {problem.detail}", problem)
    return error_of(problem.status, problem)
