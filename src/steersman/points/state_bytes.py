"""State format: deterministic safetensors, plain or in one zstd frame, with checks on reading.

Policies already pack symmetric matrices, so light compression is enough: level 1, one thread, no
dictionary, declared size.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from steersman.errors import StateError, VerificationError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MAX_HEADER = 8 * 1024 * 1024
MAX_CONTAINERS = 100_000  # a few bytes each in JSON, hundreds in memory


def state_header(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON header (``"meta"``) of an untrusted policy state.

    Length and number of containers are checked first, so that parsing cannot use a hundred times
    the memory of the input.

    Raises:
        VerificationError: it is missing, too large, too deeply nested, or not a JSON object.

    >>> from steersman.policies import LinUCB
    >>> state_header(LinUCB(["a", "b"], dim=2).state())["algorithm"]
    'lin_ucb'
    """
    raw = state.get("meta")
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8 or raw.ndim != 1:
        message = "the state has no header: 'meta' must be a (n,) uint8 array; publish it again"
        raise VerificationError(message)
    text = raw.tobytes() if raw.size <= MAX_HEADER else b""
    if not text or text.count(b"[") + text.count(b"{") > MAX_CONTAINERS:
        message = (
            f"the state's header has {raw.size:,} bytes; allowed are 1 to {MAX_HEADER:,} with at "
            f"most {MAX_CONTAINERS:,} lists and objects; fewer keys or merged ids make it shorter"
        )
        raise VerificationError(message)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"the state's header is not JSON ({error}); use an older snapshot or relearn it"
        raise VerificationError(message) from None
    if not isinstance(header, dict) or not isinstance(header.get("config"), dict):
        message = "the state's header must be an object with a 'config'; use an older snapshot"
        raise VerificationError(message)
    return header


MAX_BYTES = 256 * 1024 * 1024
_KINDS = (np.dtype(np.float64), np.dtype(np.uint8))
_MAGIC = b"\x28\xb5\x2f\xfd"
_WRITE: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.content_size_flag: 1,
    zstd.CompressionParameter.checksum_flag: 1,
    zstd.CompressionParameter.dict_id_flag: 0,
    zstd.CompressionParameter.nb_workers: 0,
}
# Level 1 uses a window of at most 512 KiB; our frames never need a window of 2 GiB.
_READ: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 20}


def pack_state(state: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a policy state as bytes that depend only on names, shapes and values.

    Args:
        state: float64 sums and the uint8 ``meta``, from ``policy.state()``.

    Raises:
        StateError: an array has another type.

    >>> state = {"meta": np.frombuffer(b"{}", dtype=np.uint8), "sums": np.arange(3.0)}
    >>> unpack_state(pack_state(state))["sums"]
    array([0., 1., 2.])
    """
    # safetensors ignores strides: a view would be written wrongly.
    arrays = {name: np.asarray(state[name], order="C") for name in sorted(state)}
    _check_kinds(arrays)
    return save(arrays)


def state_sha256(state: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of a state's bytes: equal for bitwise equal states.

    Returns:
        64 hexadecimal digits.

    Raises:
        StateError: an array has another type.

    >>> one = {"meta": np.frombuffer(b"{}", dtype=np.uint8), "sums": np.arange(3.0)}
    >>> state_sha256(one)[:8], state_sha256({**one, "sums": np.arange(3.0) + 1e-15})[:8]
    ('f14dadcc', '7deeef4a')
    """
    return hashlib.sha256(pack_state(state)).hexdigest()


def unpack_state(data: bytes, *, max_bytes: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """Return the state packed by `pack_state`, also if `compress_state` compressed it.

    Sizes are checked before memory is allocated: the arrays are not larger than the plain bytes.

    Args:
        max_bytes: maximum size of the plain bytes.

    Raises:
        StateError: too long, damaged, or an array is neither float64 nor uint8.
        VerificationError: the compressed bytes are damaged or too long.

    >>> unpack_state(b"nonsense")
    Traceback (most recent call last):
    steersman.errors.StateError: the state is damaged: ...; use an older snapshot or relearn it
    """
    if is_compressed(data):
        data = decompress_state(data, max_bytes=max_bytes)
    if len(data) > max_bytes:
        message = (
            f"the state has {len(data):,} bytes, the maximum is {max_bytes:,}; it was not read"
        )
        raise StateError(message)
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        message = f"the state is damaged: {error}; use an older snapshot or relearn it"
        raise StateError(message) from None
    _check_kinds(arrays)
    return arrays


def is_compressed(data: bytes) -> bool:
    """Return whether bytes are a zstd frame; a plain state never begins like one."""
    return data[:4] == _MAGIC


def compress_state(plain: bytes) -> bytes:
    """Return the bytes from `pack_state` in one zstd frame.

    Source:
        Collet, Kucherawy (2021), RFC 8878, "Zstandard compression", section 3.1.1.
    """
    return zstd.compress(plain, options=_WRITE)


def decompress_state(data: bytes, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of one frame: exactly its declared size, at most ``max_bytes``.

    Raises:
        VerificationError: not one frame, damaged, or too long.
    """
    size = _declared(data, max_bytes)
    reader = zstd.ZstdDecompressor(options=_READ)
    try:
        plain = reader.decompress(data, max_length=size + 1)
    except zstd.ZstdError as error:
        message = f"the snapshot is damaged: {error}; fetch it again or use an older snapshot"
        raise VerificationError(message) from None
    if not reader.eof or len(plain) != size or reader.unused_data:
        message = (
            f"the snapshot declares {size:,} bytes and holds "
            f"{'more' if len(plain) > size or reader.unused_data else 'fewer'}; "
            "fetch it again or use an older snapshot"
        )
        raise VerificationError(message)
    return plain


def _declared(data: bytes, max_bytes: int) -> int:
    if not is_compressed(data):
        message = (
            f"the snapshot is not a zstd frame: it begins with {data[:4]!r}; fetch it again or use "
            "an older snapshot"
        )
        raise VerificationError(message)
    try:
        # The library returns None for an undeclared size; its type hints are wrong.
        size: int | None = zstd.get_frame_info(data[:18]).decompressed_size
    except zstd.ZstdError as error:
        message = f"the snapshot header is incomplete: {error}; fetch it again"
        raise VerificationError(message) from None
    if size is None or size > max_bytes or len(data) > max_bytes + max_bytes // 256 + 64:
        message = (
            f"the snapshot has {len(data):,} bytes and declares {size or 0:,}; it must declare 1 "
            f"to {max_bytes:,}; nothing was decompressed"
        )
        raise VerificationError(message)
    return size


def _check_kinds(arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, array in arrays.items():
        if array.dtype not in _KINDS:
            message = f"the state's {name!r} is {array.dtype}; allowed: float64, uint8"
            raise StateError(message)
