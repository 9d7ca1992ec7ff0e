"""Pauses between attempts: they double up to a maximum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double up to a maximum.

    Attributes:
        first_s: first pause in seconds, > 0.
        longest_s: longest pause in seconds, ≥ `first_s`.

    >>> [Backoff(first_s=1.0, longest_s=3.0).pause_s(failures) for failures in (1, 2, 3, 9999)]
    [1.0, 2.0, 3.0, 3.0]
    """

    first_s: float
    longest_s: float

    def pause_s(self, failures: int) -> float:
        """Return the pause in seconds after some failures in a row, ≥ 1."""
        return min(self.first_s * 2.0 ** min(failures - 1, 64), self.longest_s)
