"""Cache encoding of vectors: round trip and rejection of damage."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from steersman.db.answer_cache import (
    MAX_PACKED_BYTES,
    cache_key_bytes,
    pack_vectors,
    unpack_vectors,
)
from steersman.errors import DataError, InputError

FINITE = st.floats(width=16, allow_nan=False, allow_infinity=False)


@pytest.mark.slow
@given(arrays(np.float16, array_shapes(min_dims=2, max_dims=2, max_side=20), elements=FINITE))
def test_every_finite_matrix_survives_to_the_bit(vectors):
    back = unpack_vectors(pack_vectors(vectors))
    assert (back.dtype, back.shape) == (np.float16, vectors.shape)
    assert back.tobytes() == vectors.tobytes()


@pytest.mark.parametrize(
    "vectors",
    [
        np.zeros(3, np.float16),
        np.zeros((1, 3), np.float32),
        np.zeros((0, 3), np.float16),
        np.zeros((3, 0), np.float16),
        np.zeros((1, 1, 1), np.float16),
        np.full((1, 2), np.nan, np.float16),
        np.full((1, 2), np.inf, np.float16),
        np.zeros((1, MAX_PACKED_BYTES // 2), np.float16),
    ],
)
def test_what_is_no_matrix_of_finite_numbers_is_not_kept(vectors):
    with pytest.raises(InputError):
        pack_vectors(vectors)


@given(st.data())
def test_a_changed_byte_is_noticed(data):
    packed = bytearray(pack_vectors(np.arange(12, dtype=np.float16).reshape(3, 4)))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DataError, match="damaged"):
        unpack_vectors(bytes(packed))


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x01",
        pack_vectors(np.ones((2, 2), np.float16))[:-1],
        pack_vectors(np.ones((2, 2), np.float16)) + b"\x00",
        bytes(MAX_PACKED_BYTES + 1),
        struct.pack("<BIII", 1, 0, 0, 0),
        struct.pack("<BIII", 1, 2**31, 2**31, 0),
        struct.pack("<BIII", 1, 1, 1, zlib.crc32(b"\x00\x7e")) + b"\x00\x7e",  # not a number
    ],
)
def test_bytes_of_somebody_else_are_refused(packed):
    with pytest.raises(DataError, match="embedding it again"):
        unpack_vectors(packed)


@pytest.mark.parametrize("key", ["", "0", "0g", "AB", "00 ff", "00" * 65, "é0", "00\n"])
def test_what_is_no_hash_is_no_key(key):
    with pytest.raises(InputError, match="hex digits"):
        cache_key_bytes(key)
