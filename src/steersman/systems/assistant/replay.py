"""Replaying a stream: cache, route and tool are decided for each arrival, and learned from at once.

The three distributions of an arrival are formed from the last choice to the first, so that the
expected reward of every choice is known (what an oracle sees, and what estimates are checked with);
then the choices are drawn from the first to the last. Every policy set takes the same three
uniforms per arrival, whatever it reaches, so two sets differ by their choices alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.systems.assistant.cache import LOOKUPS
from steersman.systems.assistant.choosers import Seen
from steersman.systems.assistant.log import Answered, Decision, Log
from steersman.systems.assistant.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from steersman.systems.assistant.cache import Lookup, LookupKind
    from steersman.systems.assistant.choosers import Chooser, Drawn, Policies
    from steersman.systems.assistant.consequences import Consequence, Consequences
    from steersman.systems.assistant.history import ToolHistory
    from steersman.systems.assistant.log import PointName
    from steersman.systems.assistant.stream import Stream
    from steersman.systems.assistant.world import World

_LATELY = 0.05
"""Weight of the newest request in the moving means of latency and cost."""


def replay(
    world: World,
    consequences: Consequences,
    stream: Stream,
    policies: Policies,
    rng: np.random.Generator,
    *,
    keep: bool = False,
    progress: Iterable[int] | None = None,
) -> Log:
    """Run a policy set over a stream, learning as it goes.

    Args:
        world: The requests.
        consequences: What follows from each choice.
        stream: The arrivals.
        policies: Who chooses; learned policies change.
        rng: Draws the choices.
        keep: Keep every decision, for `explain` and off-policy evaluation.
        progress: The places of the arrivals in order, wrapped for a progress bar.

    Returns:
        The log.
    """
    run = _Run(world, consequences, policies, rng, world.history(), Log(policies.name), keep=keep)
    for place in range(len(stream)) if progress is None else progress:
        run.arrive(place, stream)
    return run.log


@dataclass(slots=True)
class _Run:
    world: World
    consequences: Consequences
    policies: Policies
    rng: np.random.Generator
    history: ToolHistory
    log: Log
    keep: bool
    latency_ms: float = 0.0
    cost_usd: float = 0.0

    def arrive(self, place: int, stream: Stream) -> None:
        request, guardian = int(stream.requests[place]), stream.guardian[place]
        glance = stream.glances[place]
        tools = self.world.shortlist(request)
        tool_seen, tool = self._tool(request, guardian, tools)
        right = tools == self.world.catalogue.requests[request].tool
        chance = float(tool.distribution @ right)
        route_seen, route = self._route(request, guardian, chance)
        going_on = float(route.distribution @ self._values("cache", request, guardian, chance))
        cache_seen, cache = self._cache(
            request, guardian, glance.features, glance.lookups, going_on
        )
        lookup = glance.lookups[LOOKUPS[cache.index]]
        planned = int(tools[tool.index])
        taken, got = self._answer(request, guardian, lookup, route, planned)
        decided: list[tuple[PointName, Chooser, Seen, Drawn, float]] = [
            ("cache", self.policies.cache, cache_seen, cache, got.cache)
        ]
        if not lookup.hit:
            decided.append(("route", self.policies.route, route_seen, route, got.route))
            if taken == "planner":
                decided.append(("tool", self.policies.tool, tool_seen, tool, got.tool))
        for name, chooser, seen, drawn, reward in decided:
            chooser.learn(drawn, seen.eligible[drawn.index], reward)
            if self.keep:
                row = Decision(name, place, seen, drawn, got.outcomes, reward)
                self.log.decisions.append(row)
        self._remember(request, lookup, taken, planned, got)

    def _tool(self, request: int, guardian: str, tools: NDArray[np.int64]) -> tuple[Seen, Drawn]:
        truth = self.world.catalogue.requests[request].tool
        values = {
            right: self.consequences.routed(request, guardian, "planner", right=right).tool
            for right in (False, True)
        }
        seen = Seen(
            context=self.world.contexts[request],
            eligible=tuple(self.world.names(tools)),
            truth=np.array([values[bool(tool == truth)] for tool in tools]),
            features=self.world.tool_features(request, self.history),
        )
        return seen, self.policies.tool.choose(seen, self.rng)

    def _route(self, request: int, guardian: str, chance: float) -> tuple[Seen, Drawn]:
        lately = {"latency_ms": self.latency_ms, "cost_usd": self.cost_usd}
        context = {**self.world.contexts[request], "guardian_state": guardian, **lately}
        truth = self._values("route", request, guardian, chance)
        seen = Seen(context, ROUTES, truth)
        return seen, self.policies.route.choose(seen, self.rng)

    def _cache(
        self,
        request: int,
        guardian: str,
        features: dict[str, float],
        lookups: dict[LookupKind, Lookup],
        going_on: float,
    ) -> tuple[Seen, Drawn]:
        known = self.world.contexts[request]
        context = {name: known[name] for name in ("intent", "language", "text_len")} | features
        truth = np.array(
            [self._lookup_value(request, guardian, lookups[name], going_on) for name in LOOKUPS]
        )
        seen = Seen(context, LOOKUPS, truth)
        return seen, self.policies.cache.choose(seen, self.rng)

    def _values(
        self, point: PointName, request: int, guardian: str, chance: float
    ) -> NDArray[np.float64]:
        """(3,) expected reward of each route, by one point's declaration."""
        micro = self.world.bm25_best(request) == self.world.catalogue.requests[request].tool
        deep = self.consequences.deep_right(request)
        values = []
        for route, p in zip(ROUTES, (float(micro), chance, float(deep)), strict=True):
            wrong, right = (
                getattr(self.consequences.routed(request, guardian, route, right=ok), point)
                for ok in (False, True)
            )
            values.append(p * right + (1.0 - p) * wrong)
        return np.array(values)

    def _lookup_value(self, request: int, guardian: str, lookup: Lookup, going_on: float) -> float:
        if not lookup.hit:
            return going_on
        return self._hit(request, guardian, lookup).cache

    def _hit(self, request: int, guardian: str, lookup: Lookup) -> Consequence:
        """A stored answer is served; a remembered failure of the cheap route escalates."""
        if lookup.kind != "l3":
            return self.consequences.served(request, lookup)
        right = self.consequences.deep_right(request)
        return self.consequences.routed(request, guardian, "deep", right=right)

    def _answer(
        self, request: int, guardian: str, lookup: Lookup, route: Drawn, planned: int
    ) -> tuple[str | None, Consequence]:
        if lookup.hit:
            taken = "deep" if lookup.kind == "l3" else None
            return taken, self._hit(request, guardian, lookup)
        taken = ROUTES[route.index]
        right = {
            "micro": self.world.tool_right(request, self.world.bm25_best(request)),
            "planner": self.world.tool_right(request, planned),
            "deep": self.consequences.deep_right(request),
        }[taken]
        return taken, self.consequences.routed(request, guardian, taken, right=right)

    def _remember(
        self, request: int, lookup: Lookup, taken: str | None, planned: int, got: Consequence
    ) -> None:
        asked = self.world.catalogue.requests[request]
        tool = {"planner": planned, "micro": self.world.bm25_best(request)}.get(taken or "")
        if tool is not None:
            # Whoever picked the tool, its outcome is known.
            right = self.world.tool_right(request, tool)
            self.history.add(tool, self.world.embedding(request), right=right)
        self.latency_ms += _LATELY * (got.outcomes["latency_ms"] - self.latency_ms)
        self.cost_usd += _LATELY * (got.outcomes["cost_usd"] - self.cost_usd)
        cheap = self.world.tool_right(request, self.world.bm25_best(request))
        self.log.answered.append(
            Answered(
                request=request,
                lookup=lookup.kind,
                hit=lookup.hit,
                hit_right=lookup.right(asked.answer, cheap_ok=cheap),
                route=taken,
                tool=tool,
                cheapest=self.consequences.cheapest_route(request, planned=planned),
                outcomes=got.outcomes,
                reward=got.route,
            )
        )
