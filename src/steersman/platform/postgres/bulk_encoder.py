"""Fast codec for arrays of table rows, in PostgreSQL's binary format.

asyncpg encodes such arrays attribute by attribute; for the columns of a decision that took a tenth
of the service's time. Here repeated values (tenant, names, hashes) are encoded once. `register` is
only an optimisation: without it the same rows are written more slowly.

Source:
    PostgreSQL 18, src/backend/utils/adt/{arrayfuncs,rowtypes}.c: array_recv and record_recv.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import StoreError
from steersman.platform.postgres import codecs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_ARRAY = struct.Struct(">iiIii")  # dimensions, has nulls, element type, length, first index
ROW = struct.Struct(">ii")  # bytes, columns
COLUMN = struct.Struct(">Ii")  # type, bytes
_NULL = -1
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_REMEMBERED = 512
_json = msgspec.json.Encoder().encode


async def register(
    connection: Any, table: str, fields: Sequence[str], *, repeated: Collection[str] = ()
) -> None:
    """Use this codec for a table's rows on a connection.

    Args:
        fields: column names in the table's order; rows are tuples of their values.
        repeated: columns in which many rows share a value.

    Raises:
        StoreError: the table has other columns.
    """
    found = await connection.fetch(
        "SELECT a.attname, a.atttypid::int8, t.typname FROM pg_attribute AS a "
        "JOIN pg_type AS t ON t.oid = a.atttypid "
        "WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped "
        "ORDER BY a.attnum",
        table,
    )
    columns = {name: kind for name, *kind in found}
    if [*columns] != [*fields]:
        message = (
            f"table {table} has the columns {', '.join(columns)}; this version of the service "
            f"writes {', '.join(fields)}; use the version that migrated the database"
        )
        raise StoreError(message)
    element, array = await connection.fetchrow(
        "SELECT oid::int8, typarray::int8 FROM pg_type WHERE typrelid = to_regclass($1)", table
    )
    encoder = RowArray(
        element,
        [(Repeated if name in repeated else Column)(name, *columns[name]) for name in fields],
    )
    connection._protocol.get_settings().add_python_codec(  # noqa: SLF001 (see codecs)
        array, f"_{table}", "steersman", [], "scalar", encoder, _never, "binary"
    )


class RowArray:
    """Encoder of a list of rows, called by asyncpg.

    Args:
        element: id of the row type.
        columns: column encoders.
    """

    def __init__(self, element: int, columns: Sequence[Column]) -> None:
        self._element = element
        self._columns = columns

    def __call__(self, rows: Sequence[Any]) -> bytes:
        """Return the encoded rows."""
        parts = [_ARRAY.pack(1, 0, self._element, len(rows), 1)]
        count = len(self._columns)
        for fields in zip(*self._pieces(rows), strict=True):
            body = b"".join(fields)
            parts += (ROW.pack(len(body) + 4, count), body)
        return b"".join(parts)

    def _pieces(self, rows: Sequence[Sequence[Any]]) -> list[Sequence[bytes]]:
        """Return the encoded columns of each row; constant columns are shared."""
        pieces: list[Sequence[bytes]] = []
        shared = b""
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=bool(rows)):
            field = column.shared(values)
            if field is not None:
                shared += field
                continue
            pieces += ([shared] * len(rows), column.fields(values))
            shared = b""
        return [*pieces, [shared] * len(rows)]


class Column:
    """Encoder of a column: each value becomes type, length and data.

    Args:
        name: column name for errors.
        oid: type id.
        kind: type name.
    """

    def __init__(self, name: str, oid: int, kind: str) -> None:
        self._name = name
        self._oid = oid
        self._encode = _ENCODERS[kind]
        self._are_reals = kind == "_float4"
        self._null = COLUMN.pack(oid, _NULL)

    def shared(self, values: Sequence[Any]) -> bytes | None:
        """Return the common encoding if all values are quickly seen to be equal."""
        alike = values[0] is None and set(map(type, values)) == {NoneType}
        return self._null if alike else None

    def fields(self, values: Sequence[Any]) -> Sequence[bytes]:
        """Return the encoding of each value.

        Raises:
            TypeError: a value has the wrong type.
        """
        if self._are_reals and NoneType not in map(type, values):
            pack, oid = COLUMN.pack, self._oid
            return [pack(oid, len(data)) + data for data in codecs.to_bytes_of_rows(values)]
        field = self._field
        return [field(value) for value in values]

    def _field(self, value: Any) -> bytes:
        if value is None:
            return self._null
        try:
            data = self._encode(value)
        except AttributeError as error:
            message = f"{value!r:.80} is not valid for column {self._name}: {error}"
            raise TypeError(message) from None
        return COLUMN.pack(self._oid, len(data)) + data


class Repeated(Column):
    """Column encoder that caches repeated values."""

    def __init__(self, name: str, oid: int, kind: str) -> None:
        super().__init__(name, oid, kind)
        self._remembered: dict[Any, bytes] = {}

    def shared(self, values: Sequence[Any]) -> bytes | None:
        """Return the common encoding if all values are equal."""
        return self._known(values[0]) if values.count(values[0]) == len(values) else None

    def fields(self, values: Sequence[Any]) -> Sequence[bytes]:
        """Return the encoding of each value."""
        known = self._known
        return [known(value) for value in values]

    def _known(self, value: Any) -> bytes:
        field = self._remembered.get(value)
        if field is None:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            field = self._remembered[value] = self._field(value)
        return field


def timestamp(value: datetime) -> bytes:
    """Return a time in PostgreSQL's binary format.

    >>> timestamp(datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC)).hex()
    '00000000000f4240'
    """
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
    message = "row arrays are write-only"
    raise NotImplementedError(message)


_INT8 = struct.Struct(">q").pack
_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "_float4": codecs.to_bytes,
    "_text": _texts,
    "bool": struct.Struct(">?").pack,
    "bytea": lambda value: b"" + value,  # bytes(7) would be seven zeros
    "float4": struct.Struct(">f").pack,
    "float8": struct.Struct(">d").pack,
    "int2": struct.Struct(">h").pack,
    "int8": _INT8,
    "jsonb": _jsonb,
    "text": str.encode,
    "timestamptz": timestamp,
    "uuid": lambda value: value.bytes,
}
