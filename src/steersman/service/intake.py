"""Taking events and records in: checked one by one, stored in groups, answered when durable.

Records come first, since events may be about them. A record is a decision that could not be stored
when it was answered; events about it were never lost, they only wait for it in the client's queue.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.service.http import converted
from steersman.service.records import verify
from steersman.store import DecisionRow, EventRow, Expired
from steersman.wire import (
    Event,
    EventResult,
    LocalDecision,
    Problem,
    Refused,
    canonical_hash,
    id_time,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from steersman.service.replicas import Replicas
    from steersman.store import GroupCommit, Taken, Verdict
    from steersman.store.scrubbing import Scrubbing
    from steersman.wire import EventType

_log = logging.getLogger(__name__)
_MAX_BODY = 64 * 1024
_AHEAD_S = 86_400.0
_OLDEST_S = 946_684_800.0  # 2000-01-01
_NO_TARGET = "there is no such decision or episode; check the id"


class Intake:
    """Stores what clients report.

    Args:
        replicas: the decision points, for decisions that clients made themselves.
        decisions: writes decisions.
        events: writes events.
        secret: verifies records.
        within_s: how long a caller waits for durability before it is told to try again.
        on_scrubbed: told how many of each kind were taken out of a context or body.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        replicas: Replicas,
        decisions: GroupCommit[DecisionRow, Taken],
        events: GroupCommit[EventRow, Verdict],
        secret: bytes,
        *,
        within_s: float = 10.0,
        on_scrubbed: Callable[[Mapping[str, int]], None] = lambda _counts: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._replicas = replicas
        self._decisions = decisions
        self._events = events
        self._secret = secret
        self._within_s = within_s
        self._on_scrubbed = on_scrubbed
        self._clock = clock

    async def take(
        self,
        tenant: UUID,
        events: Sequence[Any],
        records: Sequence[Any] = (),
        *,
        fixed_type: EventType | None = None,
        traceparent: str | None = None,
    ) -> list[EventResult]:
        """Store records, then events.

        Args:
            tenant: who reports.
            events: `Event` as plain values.
            records: signed texts, or `LocalDecision` as plain values.
            fixed_type: the type of all events, which they need not name then.
            traceparent: W3C trace context, to be stored.

        Returns:
            What became of each: records first, then events, in order. ``stored`` and ``replayed``
            are durable.
        """
        decisions = [await self._record(tenant, record) for record in records]
        stored = await self._store(self._decisions, decisions)
        now = self._clock()
        rows = [self._event(tenant, event, fixed_type, traceparent, now) for event in events]
        scrubbing = await self._replicas.scrubbing(tenant) if rows else None
        if scrubbing is not None:
            rows = [self._scrubbed(row, scrubbing) for row in rows]
        return [*stored, *await self._store(self._events, rows)]

    async def _store(
        self, commits: GroupCommit[Any, Any], rows: Sequence[Any]
    ) -> list[EventResult]:
        """Return what became of each row; what was refused before is passed on."""
        said: dict[int, Any] = {}
        rest = [row for row in rows if not isinstance(row, EventResult)]
        while rest:
            # The same id twice in one request: the second is compared with what is stored then.
            first = {row.id: row for row in reversed(rest)}
            verdicts = await commits.submit(list(first.values()), within_s=self._within_s)
            for row in first.values():
                if isinstance(verdicts, Expired):
                    said[id(row)] = verdicts
                else:
                    said[id(row)] = verdicts.get(_name(row)) if verdicts else None
            rest = [row for row in rest if id(row) not in said] if len(first) < len(rest) else []
        return [
            row if isinstance(row, EventResult) else _result(str(row.id), said[id(row)])
            for row in rows
        ]

    def _event(
        self,
        tenant: UUID,
        raw: Any,
        fixed_type: EventType | None,
        traceparent: str | None,
        now: float,
    ) -> EventResult | EventRow:
        try:
            return _event_row(tenant, raw, fixed_type, traceparent, now=now)
        except Refused as refused:
            identifier = raw.get("event_id", "") if isinstance(raw, dict) else ""
            return _refused(str(identifier)[:128], refused.problem)

    def _scrubbed(
        self, row: EventResult | EventRow, scrubbing: Scrubbing
    ) -> EventResult | EventRow:
        if isinstance(row, EventResult) or row.body is None:
            return row
        body, found = scrubbing.body(row.body, self._secret, row.tenant)
        self._on_scrubbed(found)
        return row._replace(body=body)

    async def _record(self, tenant: UUID, record: Any) -> EventResult | DecisionRow:
        try:
            if isinstance(record, str):
                return verify(self._secret, tenant, record)
            return await self._local(tenant, record)
        except Refused as refused:
            identifier = record.get("decision_id", "") if isinstance(record, dict) else ""
            return _refused(str(identifier)[:128], refused.problem)

    async def _local(self, tenant: UUID, raw: Any) -> DecisionRow:
        """Return the row of a decision that the client answered with its own default."""
        local: LocalDecision = converted(raw, LocalDecision)
        # A process that has just started has loaded nothing yet; its client's queue comes first.
        served = await self._replicas.get(tenant, local.skill, local.decision)
        made = id_time(local.decision_id)
        if local.decision_id.version != 7 or not _OLDEST_S <= made <= self._clock() + _AHEAD_S:
            detail = f"{local.decision_id} is no UUIDv7 of our days; let the client make it"
            raise Refused.of("invalid", detail, field="decision_id")
        at = datetime.fromtimestamp(made, UTC)
        row = served.replica.row
        context = local.context
        if served.scrubbing is not None:
            context, found = served.scrubbing.context(context, self._secret, tenant)
            self._on_scrubbed(found)
        return DecisionRow(
            tenant=tenant,
            id=local.decision_id,
            skill=local.skill,
            point=local.decision,
            episode=local.episode_id,
            parent=None,
            unit=local.unit,
            rollout=None,
            stage="live",
            arm="control",
            snapshot="",
            update_seq=0,
            spec_hash=row.spec_hash,
            feature_hash=row.feature_hash,
            context=context,
            eligible=[local.action],
            distribution=[1.0],
            action=local.action,
            p=1.0,
            p_kind="client",
            x=None,
            key=None,
            features=None,
            u=None,
            degraded=True,
            weight=0.0,
            idempotency_key=None,
            body_hash=None,
            traceparent=None,
            at=at,
            window_ends=at + served.window,
        )


def _name(row: DecisionRow | EventRow) -> Any:
    """Return what a row's group commit calls it."""
    return (row.tenant, row.id) if isinstance(row, EventRow) else row.id


def _result(identifier: str, verdict: Any) -> EventResult:
    """Return what the store's verdict on a row means for who sent it."""
    if verdict is None:
        return EventResult(identifier, "stored")
    if verdict == "replayed":
        return EventResult(identifier, "replayed")
    if verdict == "unknown":
        return _refused(identifier, Problem.of("not_found", _NO_TARGET))
    if verdict == "conflict":
        detail = f"event {identifier!r} is stored with another body; use a new id for a new event"
        return _refused(identifier, Problem.of("idempotency_conflict", detail, field="event_id"))
    return _late(identifier) if isinstance(verdict, Expired) else _unstorable(identifier)


def _late(identifier: str) -> EventResult:
    detail = "the store did not answer in time; send it again, it will be stored once"
    return _refused(identifier, Problem.of("unavailable", detail, retry_after_s=1.0))


def _unstorable(identifier: str) -> EventResult:
    detail = "this event cannot be stored; remove what is unusual in its body"
    return _refused(identifier, Problem.of("invalid", detail))


def _refused(identifier: str, problem: Problem) -> EventResult:
    return EventResult(identifier, "refused", msgspec.to_builtins(problem))


def _event_row(
    tenant: UUID, raw: Any, fixed_type: EventType | None, traceparent: str | None, *, now: float
) -> EventRow:
    event: Event = converted(raw, Event)
    kind = event.type or fixed_type
    if kind is None or (fixed_type is not None and kind != fixed_type):
        detail = f"type is {event.type!r}, wanted is {fixed_type or 'one of the four event types'}"
        raise Refused.of("invalid", f"{detail}; correct it", field="type")
    if (event.decision_id is None) == (event.episode_id is None):
        detail = "an event is about one decision_id or one episode_id; give exactly one"
        raise Refused.of("invalid", detail, field="decision_id")
    at = now if event.at is None else event.at
    if not _OLDEST_S <= at <= now + _AHEAD_S:
        detail = f"at is {at}, allowed are seconds since 1970, from 2000 to a day from now"
        raise Refused.of("invalid", detail, field="at")
    if event.body and len(write(event.body)) > _MAX_BODY:
        detail = f"body is over {_MAX_BODY} bytes; keep long texts elsewhere and send a reference"
        raise Refused.of("too_large", detail, field="body")
    return EventRow(
        tenant,
        event.event_id,
        event.decision_id,
        event.episode_id,
        kind,
        event.schema_version,
        datetime.fromtimestamp(at, UTC),
        datetime.fromtimestamp(now, UTC),
        {name: float(value) for name, value in event.outcomes.items()} or None,
        event.action_taken,
        event.body or None,
        canonical_hash({**raw, "type": kind}),  # the same event, whichever path it took
        traceparent,
    )
