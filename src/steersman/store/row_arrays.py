"""Whole rows as one argument: an array of a table's row type, laid out in PostgreSQL's binary form.

asyncpg can encode such an argument itself, one attribute of one row at a time through general
machinery; for the 31 columns of a decision that was a tenth of the service's time. Here the columns
that hold the same few values over and over (tenant, names, hashes) are encoded once and
remembered. `register` is an optimisation only: without it the same rows are written more slowly.

Source:
    PostgreSQL 18, src/backend/utils/adt/{arrayfuncs,rowtypes}.c: array_recv and record_recv.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from steersman.store import float_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncpg import Connection

    from steersman.store.database import Database

_ARRAY = struct.Struct(">iiIii")  # dimensions, has nulls, element type, length, first index
_ROW = struct.Struct(">ii")  # bytes, columns
_COLUMN = struct.Struct(">Ii")  # type, bytes
_NULL = -1
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_REMEMBERED = 512
_REPEATED = {
    *("tenant", "skill", "point", "stage", "arm", "snapshot", "update_seq", "spec_hash"),
    *("feature_hash", "action", "p_kind", "degraded", "weight", "type", "schema_version"),
    "received_at",
}
_json = msgspec.json.Encoder().encode


class _Column(NamedTuple):
    oid: int
    null: bytes
    encode: Callable[[Any], bytes]
    known: dict[Any, bytes] | None


async def connect_writer(database: Database) -> Connection[Any]:
    """Return a connection of role app that writes decisions and events the short way.

    Args:
        database: migrated.

    Returns:
        A connection, for `GroupCommit`.

    Raises:
        StoreError: the server does not answer.

    No doctest: it needs a server; ``tests/store/test_row_arrays.py`` shows it.
    """
    connection = await database.connect("app")
    for table in ("decision", "event"):
        await register(connection, table)
    return connection


async def register(connection: Any, table: str) -> None:
    """Make a connection encode arrays of a table's rows this way.

    Args:
        connection: of asyncpg, with the schema in its search path.
        table: its name; the rows that are sent are tuples in the order of its columns.

    No doctest: it needs a server; ``tests/store/test_row_arrays.py`` shows it.
    """
    columns = await connection.fetch(
        "SELECT a.attname, a.atttypid::int8, t.typname FROM pg_attribute AS a "
        "JOIN pg_type AS t ON t.oid = a.atttypid "
        "WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped "
        "ORDER BY a.attnum",
        table,
    )
    element, array = await connection.fetchrow(
        "SELECT oid::int8, typarray::int8 FROM pg_type WHERE typrelid = to_regclass($1)", table
    )
    encoder = _Rows(element, [_column(*column) for column in columns])
    connection._protocol.get_settings().add_python_codec(  # noqa: SLF001 (see float_arrays)
        array, f"_{table}", "steersman", [], "scalar", encoder, _never, "binary"
    )


class _Rows:
    """Encodes a list of rows; called by asyncpg."""

    def __init__(self, element: int, columns: list[_Column]) -> None:
        self._element = element
        self._columns = columns

    def __call__(self, rows: Sequence[Sequence[Any]]) -> bytes:
        parts = [_ARRAY.pack(1, 0, self._element, len(rows), 1)]
        count = len(self._columns)
        for row in rows:
            body = self._row(row)
            parts += (_ROW.pack(len(body) + 4, count), body)
        return b"".join(parts)

    def _row(self, row: Sequence[Any]) -> bytes:
        fields = []
        for (oid, null, encode, known), value in zip(self._columns, row, strict=True):
            if value is None:
                fields.append(null)
                continue
            if known is not None and (field := known.get(value)) is not None:
                fields.append(field)
                continue
            try:
                data = encode(value)
            except AttributeError as error:
                message = f"{value!r:.80} is no value for this column: {error}"
                raise TypeError(message) from None
            field = _COLUMN.pack(oid, len(data)) + data
            if known is not None:
                if len(known) >= _REMEMBERED:
                    known.clear()
                known[value] = field
            fields.append(field)
        return b"".join(fields)


def _column(name: str, oid: int, kind: str) -> _Column:
    null = _COLUMN.pack(oid, _NULL)
    return _Column(oid, null, _ENCODERS[kind], {} if name in _REPEATED else None)


def _timestamp(value: datetime) -> bytes:
    return _INT8((value - _EPOCH) // _MICROSECOND)


def _texts(values: Sequence[str]) -> bytes:
    encoded = [value.encode() for value in values]
    if not encoded:
        return struct.pack(">iiI", 0, 0, 25)
    elements = [struct.pack(">i", len(one)) + one for one in encoded]
    return _ARRAY.pack(1, 0, 25, len(encoded), 1) + b"".join(elements)


def _jsonb(value: Any) -> bytes:
    return b"\x01" + _json(value)


def _never(_data: bytes) -> Any:
    message = "whole rows are sent to the server and never read from it"
    raise NotImplementedError(message)


_INT8 = struct.Struct(">q").pack
_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "_float4": float_arrays.to_bytes,
    "_text": _texts,
    "bool": struct.Struct(">?").pack,
    "bytea": lambda value: b"" + value,  # bytes(7) would be seven zeros
    "float4": struct.Struct(">f").pack,
    "float8": struct.Struct(">d").pack,
    "int2": struct.Struct(">h").pack,
    "int8": _INT8,
    "jsonb": _jsonb,
    "text": str.encode,
    "timestamptz": _timestamp,
    "uuid": lambda value: value.bytes,
}
