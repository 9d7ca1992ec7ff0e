"""Snapshot format: a policy state in one zstd frame, with checks of untrusted bytes."""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import StateError, VerificationError
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import (
    MAX_BYTES,
    compress_state,
    decompress_state,
    pack_state,
    state_header,
    unpack_state,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    State = Mapping[str, NDArray[Any]]

MAX_NAMES = 64 * 1024  # bytes of names, types and shapes: a state has only a few arrays
_HOLLOW = 1 << 20  # maximum product of the non-zero dimensions of an empty array


def pack_snapshot(state: State) -> bytes:
    """Return a policy state as the bytes of a snapshot.

    The bytes depend only on names, shapes and values. Another version of the zstd library may
    compress differently; ``Description.state_sha256`` hashes the uncompressed state.

    Raises:
        VerificationError: NaN, infinity, a wrong shape, or an unreadable header.

    >>> from steersman.policies import LinUCB
    >>> policy = LinUCB(["small", "large"], dim=2)
    >>> policy.learn([1.0, 0.5], "small", 0.3)
    >>> data = pack_snapshot(policy.state())
    >>> data == pack_snapshot(unpack_snapshot(data))
    True

    Source:
        Collet, Kucherawy (2021), RFC 8878, "Zstandard compression", section 3.1.1.
    """
    check_state(state)
    return compress_state(pack_state(state))


def unpack_snapshot(
    data: bytes, *, state_sha256: str | None = None, max_bytes: int = MAX_BYTES
) -> dict[str, NDArray[Any]]:
    """Return the state of an untrusted snapshot, with bounded memory.

    A frame must declare its size, and no more than that is decompressed. Memory is limited to
    ``max_bytes`` for the bytes and the same again for the arrays.

    Args:
        state_sha256: SHA-256 that the uncompressed state must have; None: not compared.
        max_bytes: maximum size of the state in bytes.

    Raises:
        VerificationError: too long, truncated, damaged, several frames, another hash, or NaN or
            infinity.

    >>> unpack_snapshot(b"nonsense")
    Traceback (most recent call last):
    steersman.errors.VerificationError: the snapshot is not a zstd frame: ...
    """
    plain = decompress_state(data, max_bytes=max_bytes)
    if state_sha256 is not None:
        _refuse_other_hash(plain, state_sha256)
    _refuse_long_names(plain)
    try:
        state = unpack_state(plain, max_bytes=max_bytes)
    except StateError as error:
        raise VerificationError(str(error)) from None
    _refuse_not_finite(state)
    _refuse_hollow(state)
    state_header(state)
    return state


def check_state(state: State) -> None:
    """Raise unless this version can create a policy from a state.

    Raises:
        VerificationError: NaN, infinity, a wrong shape or type, negative counts, an unknown
            algorithm or version, or a header that asks for more memory than the arrays take.

    >>> from steersman.policies import LinUCB
    >>> state = LinUCB(["a", "b"], dim=2).state()
    >>> check_state(state)
    >>> check_state({**state, "moment": np.zeros((2, 3))})
    Traceback (most recent call last):
    steersman.errors.VerificationError: ...'moment' must have shape (2, 2); got (2, 3)...
    """
    state_header(state)
    _refuse_hollow(state)
    try:
        load_policy(state)
    except StateError as error:
        message = f"invalid policy state: {error}"
        raise VerificationError(message) from None


def _refuse_other_hash(plain: bytes, expected: str) -> None:
    found = sha256(plain).hexdigest()
    if found != expected:
        message = (
            f"the state has SHA-256 {found[:12]}, but its description names {expected[:12]}; "
            "use another version"
        )
        raise VerificationError(message)


def _refuse_long_names(plain: bytes) -> None:
    length = struct.unpack("<Q", plain[:8])[0] if len(plain) >= 8 else 0
    if length > MAX_NAMES:
        message = (
            f"the array names of the snapshot take {length:,} bytes; the maximum is {MAX_NAMES:,}; "
            "use an older snapshot"
        )
        raise VerificationError(message)


def _refuse_not_finite(state: State) -> None:
    for name, array in state.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            message = f"the snapshot's {name!r} holds NaN or infinity; use an older snapshot"
            raise VerificationError(message)


def _refuse_hollow(state: State) -> None:
    for name, array in state.items():
        # A policy allocates memory by shape, and (0, 10**9) is an empty array.
        promised = np.prod([max(1, size) for size in np.shape(array)], dtype=np.float64)
        if np.size(array) == 0 and promised > _HOLLOW:
            message = (
                f"the state's {name!r} has shape {np.shape(array)}, which is too large for its data"
            )
            raise VerificationError(message)
