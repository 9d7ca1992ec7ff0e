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
from typing import TYPE_CHECKING, Any

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
    encoder = RowArray(element, [_column(*column) for column in columns])
    connection._protocol.get_settings().add_python_codec(  # noqa: SLF001 (see float_arrays)
        array, f"_{table}", "steersman", [], "scalar", encoder, _never, "binary"
    )


class RowArray:
    """Encodes a list of rows; called by asyncpg.

    Args:
        element: the id of the row type.
        columns: what turns each column's value into its field.
    """

    def __init__(self, element: int, columns: Sequence[Callable[[Any], bytes]]) -> None:
        self._element = element
        self._columns = columns

    def __call__(self, rows: Sequence[Sequence[Any]]) -> bytes:
        """Return the rows as ``array_recv`` wants them.

        Args:
            rows: tuples in the order of the columns.

        Raises:
            TypeError: a value that its column cannot hold.
        """
        parts = [_ARRAY.pack(1, 0, self._element, len(rows), 1)]
        columns, count = self._columns, len(self._columns)
        for row in rows:
            body = b"".join([field(value) for field, value in zip(columns, row, strict=True)])
            parts += (_ROW.pack(len(body) + 4, count), body)
        return b"".join(parts)


class _Remembered(dict[Any, bytes]):
    """The fields of a column that holds the same few values over and over."""

    def __init__(self, field: Callable[[Any], bytes]) -> None:
        self._field = field

    def __missing__(self, value: Any) -> bytes:
        field = self._field(value)
        if len(self) >= _REMEMBERED:
            self.clear()
        self[value] = field
        return field


def _column(name: str, oid: int, kind: str) -> Callable[[Any], bytes]:
    """Return what turns a column's value into its field: type, length, data."""
    encode = _ENCODERS[kind]
    null = _COLUMN.pack(oid, _NULL)
    pack = _COLUMN.pack

    def field(value: Any) -> bytes:
        if value is None:
            return null
        try:
            data = encode(value)
        except AttributeError as error:
            message = f"{value!r:.80} is no value for column {name}: {error}"
            raise TypeError(message) from None
        return pack(oid, len(data)) + data

    return _Remembered(field).__getitem__ if name in _REPEATED else field


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
