"""Binary encoding of events on arrival.

Encoding on arrival avoids an `EventRow` per event and shortens the flush. The format is that of
`bulk_encoder` for table ``event``; most columns are shared by all events of a request.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec

from steersman.db.write_batches import slices
from steersman.platform.postgres.bulk_encoder import COLUMN, ROW, timestamp
from steersman.platform.postgres.pipeline import SharedPipeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.platform.postgres.database import Database
    from steersman.platform.postgres.pipeline import Pipeline

    _Answers = list[tuple[bytes, bytes, bytes]]

Verdict = Literal["replayed", "conflict", "unknown"]
VERDICTS: dict[bytes, Verdict] = {b"r": "replayed", b"c": "conflict", b"u": "unknown"}
# To separate its rows from those of others, the function compares their xmin with the id of the
# whole transaction, so it must be called at its top level: within a savepoint of the caller rows
# carry the id of that, new events would be taken for replayed ones, and would not be written.
LOG_EVENTS = "SELECT owner, event, verdict FROM log_events($1, $2, $3, $4)"


class EventRow(NamedTuple):
    """Row of table ``event``, in column order.

    Attributes:
        tenant: tenant id.
        id: id chosen by the application.
        decision: decision of the event,
        episode: or its episode.
        type: interaction.create, interaction.output, feedback.submit or task_result.
        schema_version: version of its format.
        at: time of the event.
        received_at: arrival time.
        outcomes: finite numbers by name; None for none.
        action_taken: action of the application instead of the decided one.
        body: other data; None for none.
        body_hash: hash of the sent event.
        traceparent: W3C trace context of the request.
    """

    tenant: UUID
    id: str
    decision: UUID | None
    episode: str | None
    type: str
    schema_version: int
    at: datetime
    received_at: datetime
    outcomes: Any
    action_taken: str | None
    body: Any
    body_hash: bytes
    traceparent: str | None


async def log_events(connection: Any, rows: Sequence[EventRow]) -> dict[tuple[UUID, str], Verdict]:
    """Write events of any tenants and queue their work in one transaction, all or none."""
    batch = sorted(rows, key=_order)
    answers = await connection.fetch(LOG_EVENTS, batch, *slices([row.tenant for row in batch]))
    return {(tenant, event): VERDICTS[verdict] for tenant, event, verdict in answers}


def _order(row: EventRow) -> tuple[int, str]:
    return row.tenant.int, row.id


_COLUMNS = 13
_TEXT, _JSONB, _BYTEA, _UUID, _INT2, _INT4, _TIME = 25, 3802, 17, 2950, 21, 23, 1184
_column = COLUMN.pack
_row = ROW.pack
_NO_TEXT, _NO_JSONB, _NO_UUID = (_column(oid, -1) for oid in (_TEXT, _JSONB, _UUID))
_UUID_OF = _column(_UUID, 16)
_TIME_OF = _column(_TIME, 8)
_version = Struct(">Iih").pack
_jsonb_head = Struct(">IiB").pack  # type, bytes, and the version of jsonb's binary format
_array_head = Struct(">iiIii").pack  # dimensions, has nulls, element type, length, first index
_int4 = Struct(">ii").pack  # length and value
_LENGTH_OF_UUID = Struct(">i").pack(16)
_json = msgspec.json.Encoder().encode


class PackedEvent(msgspec.Struct, frozen=True, gc=False):
    """Encoded event.

    Attributes:
        tenant: tenant id.
        id: id chosen by the application.
        name: unique sort key: tenant, then id in the server's order.
        data: encoded row.
        traceparent: W3C trace context of its request.
    """

    tenant: UUID
    id: str
    name: bytes
    data: bytes
    traceparent: str | None


class EventPacker:
    """Encoder of the events of one request.

    Args:
        tenant: tenant id.
        received_at: arrival time.
        traceparent: W3C trace context of the request.
    """

    def __init__(self, tenant: UUID, received_at: datetime, traceparent: str | None) -> None:
        self._tenant = tenant
        self._prefix = tenant.bytes
        self._first = _UUID_OF + tenant.bytes
        self._received = _TIME_OF + timestamp(received_at)
        self._last = _text(traceparent)
        self._traceparent = traceparent

    def pack(
        self,
        identifier: str,
        decision: UUID | None,
        episode: str | None,
        kind: str,
        schema_version: int,
        at: datetime | None,
        outcomes: Any,
        action_taken: str | None,
        body: bytes | None,
        body_hash: bytes,
    ) -> PackedEvent:
        """Encode an event.

        Args:
            schema_version: version of its format, 16 bits.
            at: time of the event; None: arrival time.
            outcomes: finite numbers by name, or None.
            action_taken: action of the application instead of the decided one, or None.
            body: other data as JSON, or None.

        Raises:
            TypeError: JSON cannot represent the outcomes.
            ValueError: JSON cannot represent the outcomes.
        """
        key = identifier.encode()
        data = b"".join((
            self._first,
            _column(_TEXT, len(key)),
            key,
            _NO_UUID if decision is None else _UUID_OF + decision.bytes,
            _NO_TEXT if episode is None else _text(episode),
            _kind(kind, schema_version),
            self._received if at is None else _TIME_OF + timestamp(at),
            self._received,
            _NO_JSONB if outcomes is None else _jsonb(_json(outcomes)),
            _NO_TEXT if action_taken is None else _text(action_taken),
            _NO_JSONB if body is None else _jsonb(body),
            _column(_BYTEA, len(body_hash)),
            body_hash,
            self._last,
        ))  # fmt: skip
        packed = _row(len(data) + 4, _COLUMNS) + data
        return PackedEvent(self._tenant, identifier, self._prefix + key, packed, self._traceparent)


def pack_event(row: EventRow) -> PackedEvent:
    """Encode a row."""
    packer = EventPacker(row.tenant, row.received_at, row.traceparent)
    return packer.pack(
        row.id,
        row.decision,
        row.episode,
        row.type,
        row.schema_version,
        row.at,
        row.outcomes,
        row.action_taken,
        None if row.body is None else _json(row.body),
        row.body_hash,
    )


async def log_packed_events(
    pipeline: Pipeline, rows: Sequence[PackedEvent]
) -> Mapping[bytes, Verdict]:
    """Write events of any tenants and queue their work in one transaction, all or none."""
    batch = sorted(rows, key=_name)
    tenants, firsts, lasts = slices([row.tenant for row in batch])
    answers = await pipeline.ask(
        (
            _array(pipeline.element, [row.data for row in batch]),
            _array(_UUID, [_LENGTH_OF_UUID + tenant.bytes for tenant in tenants]),
            _array(_INT4, [_int4(4, first) for first in firsts]),
            _array(_INT4, [_int4(4, last) for last in lasts]),
        )
    )
    return {owner + event: VERDICTS[said] for owner, event, said in cast("_Answers", answers)}


def event_pipeline(database: Database) -> SharedPipeline:
    """Return the pipeline for `log_packed_events`, opened on first use."""
    return SharedPipeline(database, LOG_EVENTS, row_type="event")


def _array(element: int, fields: Sequence[bytes]) -> bytes:
    return _array_head(1, 0, element, len(fields), 1) + b"".join(fields)


_name = attrgetter("name")


@lru_cache(maxsize=64)
def _kind(kind: str, schema_version: int) -> bytes:
    return _text(kind) + _version(_INT2, 2, schema_version)


def _text(value: str | None) -> bytes:
    if value is None:
        return _NO_TEXT
    data = value.encode()
    return _column(_TEXT, len(data)) + data


def _jsonb(data: bytes) -> bytes:
    return _jsonb_head(_JSONB, len(data) + 1, 1) + data
