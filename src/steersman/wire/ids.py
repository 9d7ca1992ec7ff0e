"""UUIDv7: 48 bits of milliseconds, then random bits, made by whoever makes the thing (RFC 9562).

They sort by time of making, so an index over them grows at its end, and a table can be partitioned
by them: the id alone tells the partition.
"""

from __future__ import annotations

import os
import time
from uuid import UUID

_FIXED = 7 << 76 | 0b10 << 62  # version and variant, among the 80 bits after the time
_RANDOM = (1 << 80) - 1 - (0b1111 << 76) - (0b11 << 62)  # the other 74 of them
_BYTES = 10
_AT_ONCE = 256  # ids whose randomness is asked for in one system call
_randomness: list[bytes] = []  # pop and extend are atomic, so threads may share it
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_randomness.clear)  # two processes must not share any


def new_id(at: float | None = None) -> UUID:
    """Return a new UUIDv7.

    Args:
        at: seconds since 1970; default: now.

    Returns:
        An id whose first 48 bits are the milliseconds of ``at`` and 74 of the others random.

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
    """Return when a UUIDv7 was made, in seconds since 1970.

    Args:
        identifier: made by `new_id`; the time of any other UUID has no meaning.

    Returns:
        Seconds, to the millisecond.

    >>> id_time(new_id(1_700_000_000.25))
    1700000000.25
    """
    return (identifier.int >> 80) / 1000
