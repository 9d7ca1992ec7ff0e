"""Retry timing: exponential backoff with jitter, and the server's Retry-After."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

RETRIED = frozenset({408, 429, *range(500, 600)})
"""Statuses after which the same request may succeed. Proxies use their own numbers from 500 on,
such as 521 and 530, for a service that they cannot reach.
"""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double up to a maximum, each drawn uniformly between its half and itself.

    The jitter spreads clients that failed together.

    Attributes:
        first_s: maximum of the first pause in seconds.
        longest_s: maximum pause in seconds.
        rng: random generator of the jitter.
    """

    first_s: float
    longest_s: float
    rng: random.Random

    def pause(self, attempt: int, retry_after_s: float = 0.0) -> float:
        """Return the seconds to wait.

        Args:
            attempt: number of earlier failures.
            retry_after_s: minimum in seconds, requested by the server.
        """
        whole = min(self.first_s * 2.0 ** min(attempt, 30), self.longest_s)
        return max(whole * (0.5 + 0.5 * self.rng.random()), retry_after_s)


def retry_after_s(header: str, now: float) -> float:
    """Return the seconds that a Retry-After header requests; 0 for an invalid header.

    Args:
        header: seconds or an HTTP date.
        now: seconds since 1970, for a date.

    >>> retry_after_s("7", now=0.0), retry_after_s("soon", now=0.0)
    (7.0, 0.0)
    >>> retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", now=20.0)
    40.0
    """
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
        # Dates of HTTP are UTC, also in the form that does not say so (RFC 9110, 5.6.7).
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0
