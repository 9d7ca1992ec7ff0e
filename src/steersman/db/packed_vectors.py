"""Cache encoding of vectors: shape, checksum and float16 values."""

from __future__ import annotations

import re
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PACKED_BYTES = 1 << 20
"""Maximum bytes of one value: 1,365 vectors of 384 numbers."""
_HEAD = struct.Struct("<BIII")  # format, rows, columns, CRC-32 of the numbers
_FORMAT = 1
_KEY = re.compile(r"(?:[0-9a-f]{2}){1,64}")


def pack_vectors(vectors: NDArray[np.float16]) -> bytes:
    """Return vectors as bytes.

    Args:
        vectors: (rows, columns) float16, all finite, both 1 or more, together at most 1 MiB.

    Raises:
        InputError: wrong type or shape, too large, or not finite.

    >>> len(pack_vectors(np.zeros((2, 3), np.float16)))
    25
    """
    if vectors.dtype != np.float16 or vectors.ndim != 2 or 0 in vectors.shape:
        raise InputError(
            f"vectors are {vectors.dtype} of shape {vectors.shape}; "
            "they must be float16 of shape (rows, columns) with at least one of each"
        )
    if _HEAD.size + vectors.nbytes > MAX_PACKED_BYTES:
        raise InputError(
            f"vectors of shape {vectors.shape} take {vectors.nbytes:,} bytes; "
            f"the maximum is {MAX_PACKED_BYTES:,}; use fewer options"
        )
    if not np.isfinite(vectors).all():
        raise InputError("vectors have a number that is not finite; nothing was cached")
    numbers = vectors.astype("<f2").tobytes()
    return _HEAD.pack(_FORMAT, *vectors.shape, zlib.crc32(numbers)) + numbers


def unpack_vectors(packed: bytes) -> NDArray[np.float16]:
    """Return the vectors in bytes: (rows, columns) float16, all finite.

    Raises:
        DataError: the bytes are damaged.

    >>> unpack_vectors(pack_vectors(np.ones((1, 2), np.float16)))
    array([[1., 1.]], dtype=float16)
    """
    if not _HEAD.size <= len(packed) <= MAX_PACKED_BYTES:
        raise _damaged(f"it has {len(packed):,} bytes")
    kind, rows, columns, crc = _HEAD.unpack_from(packed)
    if kind != _FORMAT or 2 * rows * columns != len(packed) - _HEAD.size or not rows * columns:
        raise _damaged(f"{len(packed):,} bytes of format {kind} and shape ({rows}, {columns})")
    if zlib.crc32(packed[_HEAD.size :]) != crc:
        raise _damaged("its checksum differs")
    vectors = np.frombuffer(packed, "<f2", offset=_HEAD.size).reshape(rows, columns)
    if not np.isfinite(vectors).all():
        raise _damaged("a number is not finite")
    return vectors.astype(np.float16)


def cache_key_bytes(key: str) -> bytes:
    r"""Return the bytes of a hexadecimal key of 2 to 128 digits.

    Raises:
        InputError: the key is invalid.

    >>> cache_key_bytes("00ff")
    b'\x00\xff'
    """
    if not _KEY.fullmatch(key):
        raise InputError(f"key is {key[:140]!r}; it must have 2 to 128 hex digits")
    return bytes.fromhex(key)


def _damaged(why: str) -> DataError:
    return DataError(
        f"a cached answer is damaged: {why}; embedding it again. If this repeats, check whether "
        "another program writes to this cache"
    )
