"""Log of a replay: decisions with propensities, and the outcomes of every request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from steersman.ope import LoggedData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman_systems.assistant.choosers import Choice, ChooserInput

PointName = Literal["cache", "route", "tool"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision in the log.

    Args:
        point: Name of the decision point.
        arrival: Index of the arrival in the stream.
        seen: Input of the chooser, with the true rewards (``seen.truth``).
        drawn: The choice with its exact propensity.
        outcomes: Raw outcomes of the request.
        reward: Reward by the declaration of the point, in [0, 1].
    """

    point: PointName
    arrival: int
    seen: ChooserInput
    drawn: Choice
    outcomes: Mapping[str, float]
    reward: float

    @property
    def action(self) -> str:
        """Name of the chosen action."""
        return self.seen.eligible[self.drawn.index]


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """Answer to one request.

    Args:
        request: Index of the request in the world.
        lookup: Cache tier of the lookup.
        hit: True for a cache hit.
        hit_right: True for a right hit; ``None`` for a miss.
        route: Route of the request; ``None`` for a cached answer.
        tool: Index of the tool chosen by the assistant (micro, planner); ``None`` otherwise.
        cheapest: Cheapest route that answers the request; ``None`` if no route does.
        outcomes: success, tool_ok, latency_ms, cost_usd, cache_hit, guardian_flag.
        reward: Reward of the whole request, in [0, 1].
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
    """Log of a replayed stream.

    Args:
        policies: Name of the policy set.
        answered: One entry per arrival.
        decisions: The decisions in order; empty if the replay did not keep them.
    """

    policies: str
    answered: list[RequestAnswer] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.answered)

    @property
    def rewards(self) -> NDArray[np.float64]:
        """Rewards of the whole requests, (m,)."""
        return np.array([a.reward for a in self.answered])

    def outcome(self, name: str) -> NDArray[np.float64]:
        """Return one outcome of all requests.

        Args:
            name: success, tool_ok, latency_ms, cost_usd, cache_hit or guardian_flag.

        Returns:
            (m,) float64, raw.
        """
        return np.array([a.outcomes[name] for a in self.answered])

    def of(self, point: PointName) -> list[Decision]:
        """Return the kept decisions of one point, in order."""
        return [decision for decision in self.decisions if decision.point == point]

    def at(self, arrival: int) -> list[Decision]:
        """Return the one to three kept decisions about one arrival."""
        return [decision for decision in self.decisions if decision.arrival == arrival]

    def logged_data(
        self, point: Literal["cache", "route"], target: NDArray[np.float64], **options: Any
    ) -> LoggedData:
        """Return the decisions of a point with fixed actions, for off-policy evaluation."""
        rows = self.of(point)
        return LoggedData(
            actions=np.array([row.drawn.index for row in rows]),
            rewards=np.array([row.reward for row in rows]),
            propensities=np.array([row.drawn.propensity for row in rows]),
            target=target,
            **options,
        )

    def truth(self, point: Literal["cache", "route"], target: NDArray[np.float64]) -> float:
        """Return the exact value of a policy at one point, with all other points as logged."""
        truth = np.stack([row.seen.truth() for row in self.of(point)])
        return float((truth * target).sum(axis=1).mean())
