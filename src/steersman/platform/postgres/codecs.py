"""Type codecs for new connections, through a private interface of asyncpg.

asyncpg queries the server for each new array type (5 ms), and encodes real[] element by element: 15
µs for 64 numbers, a tenth of a decision. Built-in PostgreSQL types have fixed ids, so they are
registered up front, and numpy writes the binary format of real[] at once. Lock files pin asyncpg;
``tests/db/test_known_types.py`` and ``tests/db/test_float_arrays.py`` check interface and ids.
"""

from __future__ import annotations

import struct
from array import array
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

ARRAYS = {
    "bool": (16, 1000),
    "bytea": (17, 1001),
    "int8": (20, 1016),
    "int4": (23, 1007),
    "float8": (701, 1022),
    "timestamptz": (1184, 1185),
    "uuid": (2950, 2951),
    "jsonb": (3802, 3807),
}
"""Type id and array type id by element name."""
_JSONB = ARRAYS["jsonb"][0]
_JSONB_VERSION = b"\x01"
_NO_OTHER_KIND = dict.fromkeys(
    ("basetype", "basetype_name", "range_subtype", "range_subtype_name", "attrtypoids", "attrnames")
)
_KNOWN = [
    _NO_OTHER_KIND
    | {"oid": array, "ns": "pg_catalog", "name": f"_{element}", "kind": b"b"}
    | {"elemtype": oid, "elemtype_name": element, "elemdelim": ","}
    for element, (oid, array) in ARRAYS.items()
]
_REALS = 1021  # real[]
_HEADER = struct.Struct(">5i")  # dimensions, has nulls, element type, length, first index
_ELEMENT = np.dtype([("length", ">i4"), ("value", ">f4")])
_FLOAT4 = 700
_FEW = 8  # up to here numpy is slower


def register(connection: Any) -> None:
    """Register the known types on a connection."""
    types = connection._protocol.get_settings()  # noqa: SLF001 (see above)
    # Binary, since composites (whole rows as arguments) cannot hold a text format.
    types.add_python_codec(
        _JSONB, "jsonb", "pg_catalog", [], "scalar", _to_jsonb, _from_jsonb, "binary"
    )
    types.add_python_codec(
        _REALS, "_float4", "pg_catalog", [], "scalar", to_bytes, from_bytes, "binary"
    )
    types.register_data_types(_KNOWN)


def _to_jsonb(value: object) -> bytes:
    return _JSONB_VERSION + msgspec.json.encode(value)


def _from_jsonb(data: bytes) -> Any:
    return msgspec.json.decode(data[1:])


def to_bytes(values: Sequence[float]) -> bytes:
    """Return the binary form of a flat array.

    Args:
        values: any number of numbers within the range of float32.

    >>> from_bytes(to_bytes([0.5, -2.0]))
    [0.5, -2.0]
    """
    count = len(values)
    if count <= _FEW:
        return _few(count).pack(*_head(count), *chain.from_iterable((4, v) for v in values))
    elements = np.empty(count, _ELEMENT)
    elements["length"] = 4
    elements["value"] = np.frombuffer(_packed(values), np.float32)
    return _HEADER.pack(*_head(count)) + elements.tobytes()


def to_bytes_of_rows(rows: Sequence[Sequence[float]]) -> list[bytes]:
    """Return the binary forms of several flat arrays; equal lengths are encoded together.

    >>> [from_bytes(data) for data in to_bytes_of_rows([[0.5, 1.0], [2.0, -2.0]])]
    [[0.5, 1.0], [2.0, -2.0]]
    """
    count = len(rows[0])
    if not count or len(set(map(len, rows))) > 1:
        return [to_bytes(values) for values in rows]
    elements = np.empty((len(rows), count), _ELEMENT)
    elements["length"] = 4
    numbers = np.frombuffer(b"".join(map(_packed, rows)), np.float32)
    elements["value"] = numbers.reshape(elements.shape)
    head, data, size = _HEADER.pack(*_head(count)), elements.tobytes(), count * _ELEMENT.itemsize
    return [head + data[start : start + size] for start in range(0, len(data), size)]


def _packed(values: Sequence[float]) -> array[float]:
    # Drawn values come as a buffer. numpy converts a buffer in a quarter of the time of a list,
    # whose elements it must inspect first.
    return values if type(values) is array else array("f", values)


def _head(count: int) -> tuple[int, ...]:
    return (1, 0, _FLOAT4, count, 1) if count else (0, 0, _FLOAT4)


@cache
def _few(count: int) -> struct.Struct:
    return struct.Struct(">5i" + "if" * count if count else ">3i")


def from_bytes(data: bytes) -> list[float]:
    """Return the numbers of a flat array without nulls, as floats.

    Args:
        data: as `to_bytes` returns it.

    >>> from_bytes(to_bytes([]))
    []
    """
    if struct.unpack_from(">i", data)[0] == 0:
        return []
    elements = np.frombuffer(data, _ELEMENT, offset=_HEADER.size)
    numbers: list[float] = elements["value"].astype(np.float64).tolist()
    return numbers
