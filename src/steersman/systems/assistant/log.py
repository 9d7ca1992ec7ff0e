"""What a replay leaves behind: every decision with its propensity, and every request's outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from steersman.ope import LoggedData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.systems.assistant.choosers import Drawn, Seen

PointName = Literal["cache", "route", "tool"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One row of the log.

    Args:
        point: Name of the decision point.
        arrival: Place of the arrival in the stream.
        seen: What was known, and what the world knows of it (``seen.truth``).
        drawn: What was chosen, with its exact probability.
        outcomes: What came of the request, raw.
        reward: What the decision earned by its point's declaration, in [0, 1].
    """

    point: PointName
    arrival: int
    seen: Seen
    drawn: Drawn
    outcomes: Mapping[str, float]
    reward: float

    @property
    def action(self) -> str:
        """The action that was taken."""
        return self.seen.eligible[self.drawn.index]


@dataclass(frozen=True, slots=True)
class Answered:
    """How one request was answered.

    Args:
        request: Its index in the world.
        lookup: The cache tier that was asked.
        hit: Whether that tier had something.
        hit_right: Whether the hit was right; ``None`` for a miss.
        route: The route taken; ``None`` if a stored answer was served.
        tool: Index of the tool the assistant picked itself (micro, planner); ``None`` otherwise.
        cheapest: The cheapest route that would have answered it; ``None`` if none would.
        outcomes: success, tool_ok, latency_ms, cost_usd, cache_hit, guardian_flag.
        reward: Of the whole request, in [0, 1].
    """

    request: int
    lookup: str
    hit: bool
    hit_right: bool | None
    route: str | None
    tool: int | None
    cheapest: str | None
    outcomes: Mapping[str, float]
    reward: float


@dataclass(frozen=True, slots=True)
class Log:
    """A replayed stream.

    Args:
        policies: Name of the policy set.
        answered: One entry per arrival.
        decisions: The decisions in their order, if they were kept.
    """

    policies: str
    answered: list[Answered] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.answered)

    @property
    def rewards(self) -> NDArray[np.float64]:
        """(m,) rewards of the whole requests."""
        return np.array([a.reward for a in self.answered])

    def outcome(self, name: str) -> NDArray[np.float64]:
        """One outcome of all requests.

        Args:
            name: success, tool_ok, latency_ms, cost_usd, cache_hit or guardian_flag.

        Returns:
            (m,) float64, raw.
        """
        return np.array([a.outcomes[name] for a in self.answered])

    def of(self, point: PointName) -> list[Decision]:
        """The decisions of one point.

        Args:
            point: Which point.

        Returns:
            Its decisions in their order; none if they were not kept.
        """
        return [decision for decision in self.decisions if decision.point == point]

    def at(self, arrival: int) -> list[Decision]:
        """The decisions about one arrival, to explain them.

        Args:
            arrival: Its place in the stream.

        Returns:
            One to three decisions; none if they were not kept.
        """
        return [decision for decision in self.decisions if decision.arrival == arrival]

    def logged_data(
        self, point: Literal["cache", "route"], target: NDArray[np.float64], **options: Any
    ) -> LoggedData:
        """The decisions of a point with fixed actions, for off-policy evaluation.

        Args:
            point: Which point.
            target: (n, K) probabilities of the policy to evaluate, for each of its n decisions.
            **options: Further fields of `steersman.ope.LoggedData`, such as ``contexts``.

        Returns:
            The logged actions, rewards and propensities beside the target.
        """
        rows = self.of(point)
        return LoggedData(
            actions=np.array([row.drawn.index for row in rows]),
            rewards=np.array([row.reward for row in rows]),
            propensities=np.array([row.drawn.propensity for row in rows]),
            target=target,
            **options,
        )

    def truth(self, point: Literal["cache", "route"], target: NDArray[np.float64]) -> float:
        """The exact value of a policy at one point, all other points as they were logged.

        Args:
            point: Which point.
            target: (n, K) probabilities of the policy, for each of the point's n decisions.

        Returns:
            Its mean expected reward over the logged contexts.
        """
        truth = np.stack([row.seen.truth() for row in self.of(point)])
        return float((truth * target).sum(axis=1).mean())
