"""Replay of a stream: decide cache, route and tool for each arrival, and learn at once.

The replay computes the three distributions of an arrival from the last choice to the first. So the
expected reward of every choice is known, for the oracle and for checking estimates. Then the
choices take effect from the first to the last. Every policy set uses the same three uniforms per
arrival, so two sets differ only by their choices.

Each used tool trains the tool policy and its history, on every route: BM25's best, the planner's,
or the tool of a successful escalation. The log, and so the evidence, has the policy's decisions
only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.assistant.cache import LOOKUPS
from steersman_systems.assistant.choosers import ChooserInput
from steersman_systems.assistant.log import Decision, Log, RequestAnswer
from steersman_systems.assistant.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from steersman_systems.assistant.cache import Lookup
    from steersman_systems.assistant.choosers import Choice, Chooser, Policies
    from steersman_systems.assistant.consequences import Consequence, Consequences
    from steersman_systems.assistant.history import ToolHistory
    from steersman_systems.assistant.log import PointName
    from steersman_systems.assistant.stream import Glance, Stream
    from steersman_systems.assistant.world import World

    Floats = NDArray[np.float64]

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
    """Run a policy set over a stream while it learns.

    Args:
        consequences: Outcomes and rewards of the choices.
    """
    run = _Run(world, consequences, policies, rng, world.history(), Log(policies.name), keep=keep)
    for place in range(len(stream)) if progress is None else progress:
        run.answer(_Arrival.of(world, stream, place))
    return run.log


@dataclass(frozen=True, slots=True)
class _Arrival:
    """One arrival, with its candidate tools and its right tool."""

    place: int
    request: int
    guardian: str
    glance: Glance
    shortlist: NDArray[np.int64]
    needed: int
    cheap: int

    @classmethod
    def of(cls, world: World, stream: Stream, place: int) -> _Arrival:
        request = int(stream.requests[place])
        return cls(
            place,
            request,
            stream.guardian[place],
            stream.glances[place],
            world.shortlist(request),
            needed=world.catalogue.requests[request].tool,
            cheap=world.bm25_best(request),
        )


@dataclass(slots=True)
class _Run:
    """State of a replay."""

    world: World
    consequences: Consequences
    policies: Policies
    rng: np.random.Generator
    history: ToolHistory
    log: Log
    keep: bool
    latency_ms: float = 0.0
    cost_usd: float = 0.0

    def answer(self, at: _Arrival) -> None:
        tool_seen = self._tool(at)
        tool = self.policies.tool.choose(tool_seen, self.rng)
        route_seen = self._route(at, tool)
        route = self.policies.route.choose(route_seen, self.rng)
        cache_seen = self._cache(at, tool, route)
        cache = self.policies.cache.choose(cache_seen, self.rng)

        lookup = at.glance.lookups[LOOKUPS[cache.index]]
        planned = int(at.shortlist[tool.index])
        taken = self._taken(lookup, ROUTES[route.index])
        used = self._used(at, taken, planned)
        got = self._got(at, lookup, taken, right=used == at.needed)

        self._learn("cache", self.policies.cache, at, cache_seen, cache, got.cache, got)
        if not lookup.hit:
            self._learn("route", self.policies.route, at, route_seen, route, got.route, got)
        if taken == "planner":
            self._learn("tool", self.policies.tool, at, tool_seen, tool, got.tool, got)
        elif used is not None and used in at.shortlist:
            index = int(np.flatnonzero(at.shortlist == used)[0])
            told = self.consequences.routed(
                at.request, at.guardian, "planner", right=used == at.needed
            )
            self.policies.tool.learn(tool_seen, tool, index, told.tool, told.outcomes)
        self._remember(at, lookup, taken, used, planned, got)

    # -- input of each decision ------------------------------------------------------------------

    def _tool(self, at: _Arrival) -> ChooserInput:
        features = None
        if self.policies.tool.reads_features:
            features = self.world.tool_features(at.request, self.history)
        return ChooserInput(
            context=self.world.contexts[at.request],
            eligible=tuple(self.world.names(at.shortlist)),
            truth=lambda: self._tool_values(at),
            features=features,
        )

    def _route(self, at: _Arrival, tool: Choice) -> ChooserInput:
        now = {
            "guardian_state": at.guardian,
            "tool_score": float(tool.scores.max()),
            "latency_ms": self.latency_ms,
            "cost_usd": self.cost_usd,
        }
        known = self.world.contexts[at.request]
        context = {name: value for name, value in known.items() if name != "text"} | now
        return ChooserInput(context, ROUTES, lambda: self._route_values("route", at, tool))

    def _cache(self, at: _Arrival, tool: Choice, route: Choice) -> ChooserInput:
        known = self.world.contexts[at.request]
        context = {name: known[name] for name in ("intent", "language", "text_len")}
        features = at.glance.features
        return ChooserInput(
            context | features, LOOKUPS, lambda: self._cache_values(at, tool, route)
        )

    # -- true reward of each choice ---------------------------------------------------------------

    def _cache_values(self, at: _Arrival, tool: Choice, route: Choice) -> Floats:
        """Return the expected reward of each lookup, (4,)."""
        going_on = float(route.distribution @ self._route_values("cache", at, tool))
        values = []
        for name in LOOKUPS:
            lookup = at.glance.lookups[name]
            taken = self._taken(lookup, ROUTES[0])
            right = self._used(at, taken, at.cheap) == at.needed
            hit = self._got(at, lookup, taken, right=right).cache
            values.append(hit if lookup.hit else going_on)
        return np.array(values)

    def _route_values(self, point: PointName, at: _Arrival, tool: Choice) -> Floats:
        """Return the expected reward of each route by the declaration of a point, (3,)."""
        chance = float(tool.distribution @ (at.shortlist == at.needed))
        deep = self.consequences.deep_right(at.request)
        chances = (float(at.cheap == at.needed), chance, float(deep))
        values = []
        for route, p in zip(ROUTES, chances, strict=True):
            wrong, right = (
                getattr(
                    self.consequences.routed(at.request, at.guardian, route, right=right), point
                )
                for right in (False, True)
            )
            values.append((1.0 - p) * wrong + p * right)
        return np.array(values)

    def _tool_values(self, at: _Arrival) -> Floats:
        """Return the expected reward of each tool of the shortlist, (n,)."""
        wrong, right = (
            self.consequences.routed(at.request, at.guardian, "planner", right=right).tool
            for right in (False, True)
        )
        return np.where(at.shortlist == at.needed, right, wrong)

    # -- consequences ----------------------------------------------------------------------------

    def _taken(self, lookup: Lookup, route: str) -> str | None:
        """Return the route: None for a cached answer, deep for a hit of l3."""
        if not lookup.hit:
            return route
        return "deep" if lookup.kind == "l3" else None

    def _used(self, at: _Arrival, taken: str | None, planned: int) -> int | None:
        """Return the used tool; None if it does not become known."""
        if taken == "deep":
            return at.needed if self.consequences.deep_right(at.request) else None
        return {"micro": at.cheap, "planner": planned}.get(taken or "")

    def _got(self, at: _Arrival, lookup: Lookup, taken: str | None, *, right: bool) -> Consequence:
        if taken is None:
            return self.consequences.served(at.request, lookup)
        return self.consequences.routed(at.request, at.guardian, taken, right=right)

    def _learn(
        self,
        point: PointName,
        chooser: Chooser,
        at: _Arrival,
        seen: ChooserInput,
        drawn: Choice,
        reward: float,
        got: Consequence,
    ) -> None:
        chooser.learn(seen, drawn, drawn.index, reward, got.outcomes)
        if self.keep:
            row = Decision(point, at.place, seen, drawn, got.outcomes, reward)
            self.log.decisions.append(row)

    def _remember(
        self,
        at: _Arrival,
        lookup: Lookup,
        taken: str | None,
        used: int | None,
        planned: int,
        got: Consequence,
    ) -> None:
        if used is not None:
            embedding = self.world.embedding(at.request)
            self.history.add(used, embedding, right=used == at.needed)
        self.latency_ms += _LATELY * (got.outcomes["latency_ms"] - self.latency_ms)
        self.cost_usd += _LATELY * (got.outcomes["cost_usd"] - self.cost_usd)
        answer = self.world.catalogue.requests[at.request].answer
        self.log.answered.append(
            RequestAnswer(
                request=at.request,
                lookup=lookup.kind,
                hit=lookup.hit,
                hit_right=lookup.right(answer, cheap_ok=at.cheap == at.needed),
                route=taken,
                tool=used if taken in {"micro", "planner"} else None,
                cheapest=self.consequences.cheapest_route(at.request, planned=planned),
                outcomes=got.outcomes,
                reward=got.route,
            )
        )
