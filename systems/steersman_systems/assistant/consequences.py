"""Outcomes and rewards of the choices for one request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.rewards import evaluate
from steersman_systems.assistant.routes import ROUTES, compute_cost_usd, guardian_flag

if TYPE_CHECKING:
    from steersman_systems.assistant.cache import Lookup
    from steersman_systems.assistant.points import Points
    from steersman_systems.assistant.routes import Deep
    from steersman_systems.assistant.world import World


@dataclass(frozen=True, slots=True)
class Consequence:
    """Outcomes and rewards of one way to answer a request.

    Args:
        outcomes: success, tool_ok, latency_ms, cost_usd, cache_hit, guardian_flag.
        cache: Reward of the cache decision, in [0, 1].
        route: Reward of the route decision, in [0, 1]; also the reward of the whole request.
        tool: Reward of the tool decision, in [0, 1].
    """

    outcomes: dict[str, float]
    cache: float
    route: float
    tool: float


class Consequences:
    """Outcomes and rewards of every way to answer a request, cached.

    Args:
        world: The requests.
        points: The declared rewards.
        deep: Assumption about an escalation.
    """

    def __init__(self, world: World, points: Points, deep: Deep) -> None:
        self._world, self._points, self._deep = world, points, deep
        self._routed: dict[tuple[int, bool, str, bool], Consequence] = {}
        self._served: dict[tuple[int, str, bool], Consequence] = {}

    def routed(self, request: int, guardian: str, route: str, *, right: bool) -> Consequence:
        """Return the consequence of a route, with the time of the engines.

        A missed lookup adds no cost: the engines need the same embedding, and the rest takes less
        than a millisecond.
        """
        flag = guardian_flag(guardian, route)
        key = (request, flag, route, right)
        if key not in self._routed:
            outcomes = {
                "success": float(right),
                "tool_ok": float(right),
                "latency_ms": self._world.latency_ms(request, route, deep=self._deep),
                "cost_usd": self._world.cost_usd(request, route, deep=self._deep),
                "cache_hit": 0.0,
                "guardian_flag": float(flag),
            }
            self._routed[key] = self._valued(outcomes)
        return self._routed[key]

    def served(self, request: int, lookup: Lookup) -> Consequence:
        """Return the consequence of a cached answer; success if it answers this request.

        The lookup of the same text takes no time; the lookup of a similar text takes an embedding.
        """
        embedded = lookup.similarity < 1.0
        key = (request, str(lookup.answer), embedded)
        if key not in self._served:
            asked = self._world.catalogue.requests[request]
            latency = float(self._world.recording.latency_ms[request, 1]) if embedded else 0.0
            same_tool = _tool(str(lookup.answer)) == self._world.names([asked.tool])[0]
            outcomes = {
                "success": float(lookup.answer == asked.answer),
                "tool_ok": float(same_tool),
                "latency_ms": latency,
                "cost_usd": compute_cost_usd(latency),
                "cache_hit": 1.0,
                "guardian_flag": 0.0,
            }
            self._served[key] = self._valued(outcomes)
        return self._served[key]

    def reward(self, request: int, guardian: str, route: str, *, planned: int) -> float:
        """Return the reward of the whole request for a route.

        Returns:
            The reward, in [0, 1].
        """
        right = self._world.route_right(request, route, planned=planned, deep=self._deep)
        return self.routed(request, guardian, route, right=right).route

    def deep_right(self, request: int) -> bool:
        """Return whether escalating this request answers it, see `routes.Deep.right`."""
        return self._deep.right(self._world.catalogue.requests[request].id)

    def cheapest_route(self, request: int, *, planned: int) -> str | None:
        """Return the cheapest route that answers the request, or ``None``.

        Returns:
            "micro", "planner", "deep" or ``None``.
        """
        for route in ROUTES:
            if self._world.route_right(request, route, planned=planned, deep=self._deep):
                return route
        return None

    def _valued(self, outcomes: dict[str, float]) -> Consequence:
        rewards = []
        for point in (self._points.cache, self._points.route, self._points.tool):
            value = evaluate(point.reward, outcomes).value
            # All terms are known, so None would be an error in the declarations.
            assert value is not None, point.decision  # noqa: S101
            rewards.append(value)
        return Consequence(outcomes, *rewards)


def _tool(answer: str) -> str:
    (name,) = json.loads(answer)
    return str(name)
