"""UUIDv7 identifiers: 48 bits of milliseconds, then random bits (RFC 9562).

They sort by creation time, so an index grows at its end, and the id determines the partition.
"""

from __future__ import annotations

import os
import time
from uuid import UUID

_FIXED = 7 << 76 | 0b10 << 62  # version and variant, among the 80 bits after the time
_RANDOM = (1 << 80) - 1 - (0b1111 << 76) - (0b11 << 62)  # the other 74 bits
_BYTES = 10
_AT_ONCE = 256  # ids per system call for random bytes
_randomness: list[bytes] = []  # pop and extend are atomic, so threads may share it
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_randomness.clear)  # two processes must not share any


def new_id(at: float | None = None) -> UUID:
    """Return a new UUIDv7.

    Args:
        at: seconds since 1970. Default: now.

    Returns:
        An id with the milliseconds of ``at`` in its first 48 bits, and 74 random bits.

    >>> new_id(1_700_000_000.0).version
    7
    >>> new_id(1.0) < new_id(2.0)
    True

    Source:
        RFC 9562, section 5.7.
    """
    milliseconds = time.time_ns() // 1_000_000 if at is None else int(at * 1000)
    random = int.from_bytes(_random_bytes()) & _RANDOM
    return UUID(int=milliseconds << 80 | random | _FIXED)


def _random_bytes() -> bytes:
    try:
        return _randomness.pop()
    except IndexError:
        block = os.urandom(_BYTES * _AT_ONCE)
        _randomness.extend(block[i : i + _BYTES] for i in range(_BYTES, len(block), _BYTES))
        return block[:_BYTES]


def id_time(identifier: UUID) -> float:
    """Return the creation time of a UUIDv7, in seconds since 1970.

    Args:
        identifier: id from `new_id`. Other UUIDs have no time.

    Returns:
        Seconds with millisecond resolution.

    >>> id_time(new_id(1_700_000_000.25))
    1700000000.25
    """
    return (identifier.int >> 80) / 1000
