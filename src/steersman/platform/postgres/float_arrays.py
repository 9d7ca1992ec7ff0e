"""Fast codec for columns of type real[].

asyncpg encodes arrays element by element: 15 µs for 64 numbers, a tenth of a decision. numpy writes
PostgreSQL's binary format at once. asyncpg offers codecs for scalar types only, so this one uses a
private interface. Lock files pin its version and ``tests/db/test_float_arrays.py`` checks it.
"""

from __future__ import annotations

import struct
from array import array
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_OID = 1021  # real[]
_HEADER = struct.Struct(">5i")  # dimensions, has nulls, element type, length, first index
_ELEMENT = np.dtype([("length", ">i4"), ("value", ">f4")])
_FLOAT4 = 700
_FEW = 8  # up to here numpy is slower


def register(connection: Any) -> None:
    """Use this codec for real[] on a connection."""
    connection._protocol.get_settings().add_python_codec(  # noqa: SLF001
        _OID, "_float4", "pg_catalog", [], "scalar", to_bytes, from_bytes, "binary"
    )


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
