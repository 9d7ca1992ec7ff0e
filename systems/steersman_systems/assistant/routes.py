"""Routes of a request: micro, planner and deep, with cost, latency and success.

micro answers with BM25's best tool. planner lets the tool policy choose from the shortlist. deep
escalates: it asks the user or a strong model, and waits.

The times of the engines are measured (see ``recording.json``). `Deep` and `CORE_HOUR_USD` are
**assumptions, not measurements**: nothing is escalated. Reports show the results under several
assumptions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

from steersman.errors import InputError

__all__ = ["CORE_HOUR_USD", "ROUTES", "Deep", "compute_cost_usd", "guardian_flag"]

ROUTES = ("micro", "planner", "deep")
"""Routes in order of cost, the cheapest first."""
CORE_HOUR_USD = 0.04
"""Price of one processor core for an hour, about the on-demand price of public clouds."""


@dataclass(frozen=True, slots=True)
class Deep:
    """Assumption about an escalation.

    Args:
        worth: Probability of a right answer, in [0, 1].
        low_ms: Shortest latency, ≥ 0.
        high_ms: Longest latency, ≥ ``low_ms``; latencies are uniform between the two. The defaults
            are a call of 25 to 75 tokens at 20 ms each, plus half a second.
        cost_usd: Price of one escalation, ≥ 0. The default is the mean cost of one short prompt to
            GPT-4-1106 in RouterBench (5.03 USD for 1,000 prompts).
        seed: Seed of the simulated answers.

    Raises:
        InputError: A number outside its range.

    >>> Deep(worth=0.5).right("live_simple_0-0-0"), Deep(worth=1.0).right("live_simple_0-0-0")
    (False, True)

    Source: Hu et al., RouterBench (2024), table of costs recomputed on the rows that
    `steersman_systems.assistant.routers` reads.
    """

    worth: float = 0.7
    low_ms: float = 1_000.0
    high_ms: float = 2_000.0
    cost_usd: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.worth <= 1:
            message = f"worth is {self.worth}; allowed: 0 to 1, the probability of a right answer"
            raise InputError(message)
        if not (0 <= self.low_ms <= self.high_ms and self.cost_usd >= 0):
            message = (
                f"low_ms {self.low_ms}, high_ms {self.high_ms}, cost_usd {self.cost_usd}; "
                "allowed: 0 ≤ low_ms ≤ high_ms and cost_usd ≥ 0"
            )
            raise InputError(message)

    @classmethod
    def ask(cls, worth: float, *, seed: int = 0) -> Self:
        """Return the assumption for asking the user: no latency, no price.

        Args:
            worth: Value of an answer after asking, relative to a right answer at once, in [0, 1].
        """
        return cls(worth, low_ms=0.0, high_ms=0.0, cost_usd=0.0, seed=seed)

    def right(self, request: str) -> bool:
        """Return whether escalating this request answers it; the same at every call.

        A hash of the request decides, so a request right at one worth is right at any larger one.
        """
        return self._uniform("right", request) < self.worth

    def latency_ms(self, request: str) -> float:
        """Return the latency of escalating this request.

        Returns:
            Milliseconds, uniform between ``low_ms`` and ``high_ms`` over requests.
        """
        return self.low_ms + (self.high_ms - self.low_ms) * self._uniform("latency", request)

    def _uniform(self, what: str, request: str) -> float:
        text = f"{self.seed}/{what}/{request}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) / 2.0**64


def guardian_flag(state: str, route: str) -> bool:
    """Return whether the load guardian flags a route.

    >>> [guardian_flag("brownout", route) for route in ROUTES]
    [False, False, True]
    """
    heaviest = {"normal": "deep", "brownout": "planner", "emergency": "micro"}
    return ROUTES.index(route) > ROUTES.index(heaviest[state])


def compute_cost_usd(latency_ms: float) -> float:
    """Return the price of one core for a time, at `CORE_HOUR_USD`.

    Args:
        latency_ms: Time in milliseconds, ≥ 0.

    Returns:
        US dollars.

    >>> compute_cost_usd(3_600_000.0)
    0.04
    """
    return CORE_HOUR_USD * latency_ms / 3_600_000.0
