"""The three routes of a request: what each costs, how long it takes and how often it is right.

micro answers with BM25's best tool. planner lets the tool policy pick from the shortlist. deep
escalates: it asks the user or a strong model, and waits.

Times of the engines are measured (see ``recording.json``). What `Deep` and `CORE_HOUR_USD` hold is
**declared, not measured**: nothing here escalates anything. Every figure that depends on them is
reported for more than one worth.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

from steersman.errors import InputError

__all__ = ["CORE_HOUR_USD", "ROUTES", "Deep", "compute_cost_usd", "guardian_flag"]

ROUTES = ("micro", "planner", "deep")
"""From the cheapest to the dearest."""
CORE_HOUR_USD = 0.04
"""Price of one processor core for an hour: the order of what public clouds charge on demand."""


@dataclass(frozen=True, slots=True)
class Deep:
    """What an escalation is assumed to be.

    Args:
        worth: Chance that its answer is right, in [0, 1].
        low_ms: Shortest time it takes, ≥ 0.
        high_ms: Longest time it takes, ≥ ``low_ms``; times are uniform between the two. The
            defaults are a call of 25 to 75 tokens at 20 ms each, half a second after it was sent.
        cost_usd: Price of one, ≥ 0. The default is what one short prompt to GPT-4-1106 costs on
            average in RouterBench (5.03 USD for 1,000 prompts).
        seed: Which draw of the world this is.

    Raises:
        InputError: A number outside its range.

    >>> Deep(worth=0.5).right("live_simple_0-0-0"), Deep(worth=1.0).right("live_simple_0-0-0")
    (False, True)

    Source: Hu et al., RouterBench (2024), table of costs recomputed on the rows that
    `steersman.systems.assistant.routers` reads.
    """

    worth: float = 0.7
    low_ms: float = 1_000.0
    high_ms: float = 2_000.0
    cost_usd: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.worth <= 1:
            message = f"worth is {self.worth}; allowed: 0..1, the chance of a right answer"
            raise InputError(message)
        if not (0 <= self.low_ms <= self.high_ms and self.cost_usd >= 0):
            message = (
                f"low_ms {self.low_ms}, high_ms {self.high_ms}, cost_usd {self.cost_usd}; "
                "allowed: 0 ≤ low_ms ≤ high_ms and cost_usd ≥ 0"
            )
            raise InputError(message)

    @classmethod
    def ask(cls, worth: float, *, seed: int = 0) -> Self:
        """Asking the user back: no machine time, no price; what it costs the user is in the worth.

        Args:
            worth: What an answer after asking is worth of a right answer at once, in [0, 1].
            seed: Which draw of the world this is.

        Returns:
            The assumption.
        """
        return cls(worth, low_ms=0.0, high_ms=0.0, cost_usd=0.0, seed=seed)

    def right(self, request: str) -> bool:
        """Whether escalating this request answers it; the same every time it is asked.

        A hash of the request decides, so what is right at one worth is right at any larger one.

        Args:
            request: Id of the request.

        Returns:
            True for a share ``worth`` of all requests.
        """
        return self._uniform("right", request) < self.worth

    def latency_ms(self, request: str) -> float:
        """How long escalating this request takes.

        Args:
            request: Id of the request.

        Returns:
            Milliseconds, uniform between ``low_ms`` and ``high_ms`` over requests.
        """
        return self.low_ms + (self.high_ms - self.low_ms) * self._uniform("latency", request)

    def _uniform(self, what: str, request: str) -> float:
        text = f"{self.seed}/{what}/{request}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) / 2.0**64


def guardian_flag(state: str, route: str) -> bool:
    """Whether the load guardian objects to a route.

    Args:
        state: "normal", "brownout" (no escalation wanted) or "emergency" (the cheapest route only).
        route: The route that is taken.

    Returns:
        True for a route heavier than the state wants.

    >>> [guardian_flag("brownout", route) for route in ROUTES]
    [False, False, True]
    """
    heaviest = {"normal": "deep", "brownout": "planner", "emergency": "micro"}
    return ROUTES.index(route) > ROUTES.index(heaviest[state])


def compute_cost_usd(latency_ms: float) -> float:
    """Price of one core for a time, at `CORE_HOUR_USD`.

    Args:
        latency_ms: Time in milliseconds, ≥ 0.

    Returns:
        US dollars.

    >>> compute_cost_usd(3_600_000.0)
    0.04
    """
    return CORE_HOUR_USD * latency_ms / 3_600_000.0
