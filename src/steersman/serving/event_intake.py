"""Intake of events and records: checked one by one, stored in groups, answered when durable.

A record is a signed decision that could not be stored when it was answered. Records come first,
because events may be about them.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.db.decisions import DecisionRow, IdempotencyConflict
from steersman.db.packed_events import EventPacker, PackedEvent
from steersman.db.write_batches import WriteTimeout
from steersman.platform.http.messages import converted
from steersman.serving.fallback_records import verify
from steersman.wire import (
    OLDEST_S,
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

    from steersman.db.group_commit import GroupCommit
    from steersman.db.packed_events import Verdict
    from steersman.privacy.declared_scrub import Scrubbing
    from steersman.serving.replicas import Replicas
    from steersman.wire import EventType

_log = logging.getLogger(__name__)
_MAX_BODY = 64 * 1024
_AHEAD_S = 86_400.0
_ID = attrgetter("id")
_NO_TARGET = "decision or episode not found; check the id"


class Intake:
    """Storage of client reports.

    Args:
        replicas: decision points, for decisions that clients made themselves.
        decisions: group commit of decisions.
        events: group commit of events.
        secret: secret for verifying records.
        within_s: time limit in seconds for durability; after it the client must retry.
        on_scrubbed: callback with the number of removed personal data items by kind.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        replicas: Replicas,
        decisions: GroupCommit[DecisionRow, IdempotencyConflict],
        events: GroupCommit[PackedEvent, Verdict],
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
            traceparent: W3C trace context to store.
        """
        decisions = [await self._record(tenant, record) for record in records]
        stored = await self._store(self._decisions, decisions)
        scrubbing = await self._replicas.scrubbing(tenant) if events else None
        rows = self._packed(tenant, events, fixed_type, traceparent, scrubbing)
        return [*stored, *await self._store(self._events, rows)]

    async def _store(
        self, commits: GroupCommit[Any, Any], rows: Sequence[Any]
    ) -> list[EventResult]:
        """Return the result of each row; earlier refusals pass through."""
        said: dict[int, Any] = {}
        rest = [row for row in rows if not isinstance(row, EventResult)]
        while rest:
            once, again = _each_once(rest)
            verdicts = await commits.submit(once, within_s=self._within_s)
            if isinstance(verdicts, WriteTimeout):
                said.update((id(row), verdicts) for row in once)
            elif verdicts:
                said.update((id(row), verdicts.get(_name(row))) for row in once)
            rest = again
        return [
            row if isinstance(row, EventResult) else _result(str(row.id), said.get(id(row)))
            for row in rows
        ]

    def _packed(
        self,
        tenant: UUID,
        raws: Sequence[Any],
        fixed_type: EventType | None,
        traceparent: str | None,
        scrubbing: Scrubbing | None,
    ) -> list[EventResult | PackedEvent]:
        """Return events in stored form or their refusals; each is checked separately."""
        now = self._clock()
        packer = EventPacker(tenant, datetime.fromtimestamp(now, UTC), traceparent)
        rows: list[EventResult | PackedEvent] = []
        for raw, event in zip(raws, _events(raws), strict=True):
            try:
                checked = event or converted(raw, Event)
                kind = _type_of(checked, fixed_type, now)
                body = _body_of(checked) if checked.body else None
                if body is not None and scrubbing is not None:
                    clean, found = scrubbing.body(checked.body, self._secret, tenant)
                    self._on_scrubbed(found)
                    body = write(clean)
                rows.append(_pack(packer, checked, kind, body, raw))
            except Refused as refused:
                identifier = raw.get("event_id", "") if isinstance(raw, dict) else ""
                rows.append(_refused(str(identifier)[:128], refused.problem))
            except (TypeError, ValueError, OverflowError):  # the scrubbed event is not valid JSON
                _log.exception("an event cannot be stored")
                rows.append(_unstorable(raw["event_id"]))
        return rows

    async def _record(self, tenant: UUID, record: Any) -> EventResult | DecisionRow:
        try:
            if isinstance(record, str):
                return verify(self._secret, tenant, record)
            return await self._local(tenant, record)
        except Refused as refused:
            problem = refused.problem
        except Exception:  # noqa: BLE001 (logged; fails one item only)
            _log.exception("a record cannot be stored")
            problem = Problem.of(
                "internal", "this record could not be stored; the server log has the error"
            )
        identifier = record.get("decision_id", "") if isinstance(record, dict) else ""
        return _refused(str(identifier)[:128], problem)

    async def _local(self, tenant: UUID, raw: Any) -> DecisionRow:
        """Return the row of a decision that the client answered with its own default."""
        local: LocalDecision = converted(raw, LocalDecision)
        # `get` loads the point, because the first requests after a start may be queued events.
        served = await self._replicas.get(tenant, local.skill, local.decision)
        made = id_time(local.decision_id)
        if local.decision_id.version != 7 or not OLDEST_S <= made <= self._clock() + _AHEAD_S:
            detail = (
                f"invalid decision id {local.decision_id}: expected a UUIDv7 with a time from 2000 "
                "to one day from now; let the client create it"
            )
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
            parent=local.parent_id,
            unit=local.unit,
            snapshot="",
            spec_hash=row.spec_hash,
            feature_hash=row.feature_hash,
            context=context,
            eligible=[local.action],
            distribution=[1.0],
            action=local.action,
            p=1.0,
            p_kind="client",
            degraded=True,
            weight=0.0,
            at=at,
            window_ends=at + served.window,
        )


def _each_once(rows: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the first row of each id, and the repeats; those are compared with the store."""
    if len(set(map(_ID, rows))) == len(rows):
        return rows, []
    first = {row.id: row for row in reversed(rows)}
    return list(first.values()), [row for row in rows if first[row.id] is not row]


def _name(row: DecisionRow | PackedEvent) -> Any:
    """Return the key of a row in the group commit."""
    return row.name if isinstance(row, PackedEvent) else row.id


def _result(identifier: str, verdict: Any) -> EventResult:
    """Return the answer for the store's verdict on a row."""
    if verdict is None:
        return EventResult(identifier, "stored")
    if verdict == "replayed":
        return EventResult(identifier, "replayed")
    if verdict == "unknown":
        return _refused(identifier, Problem.of("not_found", _NO_TARGET))
    if verdict == "conflict":
        detail = f"event {identifier!r} exists with another body; use a new id for a new event"
        return _refused(identifier, Problem.of("idempotency_conflict", detail, field="event_id"))
    if isinstance(verdict, IdempotencyConflict):
        detail = f"{identifier} is the id of another decision; use a new id for a new decision"
        return _refused(identifier, Problem.of("idempotency_conflict", detail, field="decision_id"))
    return _late(identifier) if isinstance(verdict, WriteTimeout) else _unstorable(identifier)


def _late(identifier: str) -> EventResult:
    detail = "the store did not respond in time; send it again: it is stored only once"
    return _refused(identifier, Problem.of("unavailable", detail, retry_after_s=1.0))


def _unstorable(identifier: str) -> EventResult:
    detail = "this event cannot be stored; remove unusual values from its body"
    return _refused(identifier, Problem.of("invalid", detail))


def _refused(identifier: str, problem: Problem) -> EventResult:
    return EventResult(identifier, "refused", msgspec.to_builtins(problem))


def _events(raws: Sequence[Any]) -> Sequence[Event | None]:
    """Return the events, decoded together if all are valid; otherwise None for each."""
    try:
        return msgspec.convert(raws, list[Event])
    except msgspec.ValidationError:
        return [None] * len(raws)


def _type_of(event: Event, fixed_type: EventType | None, now: float) -> EventType:
    """Return the type of an event after the checks that its message type cannot express."""
    kind = event.type or fixed_type
    if kind is None or (fixed_type is not None and kind != fixed_type):
        detail = (
            f"invalid type {event.type!r}: expected {fixed_type or 'one of the four event types'}"
        )
        raise Refused.of("invalid", f"{detail}; correct it", field="type")
    if (event.decision_id is None) == (event.episode_id is None):
        detail = "an event needs exactly one of decision_id and episode_id; give exactly one"
        raise Refused.of("invalid", detail, field="decision_id")
    if event.at is not None and not OLDEST_S <= event.at <= now + _AHEAD_S:
        detail = (
            f"invalid at {event.at}: expected seconds since 1970, from 2000 to one day from now"
        )
        raise Refused.of("invalid", detail, field="at")
    return kind


def _body_of(event: Event) -> bytes:
    """Return the body of an event as JSON; refuse one that is too long."""
    body = write(event.body)
    if len(body) > _MAX_BODY:
        detail = (
            f"the body exceeds {_MAX_BODY} bytes; store long texts elsewhere and send a reference"
        )
        raise Refused.of("too_large", detail, field="body")
    return body


def _pack(
    packer: EventPacker, event: Event, kind: EventType, body: bytes | None, raw: Any
) -> PackedEvent:
    return packer.pack(
        event.event_id,
        event.decision_id,
        event.episode_id,
        kind,
        event.schema_version,
        None if event.at is None else datetime.fromtimestamp(event.at, UTC),
        {name: float(value) for name, value in event.outcomes.items()} if event.outcomes else None,
        event.action_taken,
        body,
        # Equal for both routes: with the type in the path or in the body.
        canonical_hash(raw if raw.get("type") == kind else {**raw, "type": kind}),
    )
