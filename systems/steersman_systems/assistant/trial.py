"""Trial of the assistant: learned policies, rules, the best fixed choice and an oracle.

Each arrival order is one independent job; jobs run in several processes. Every policy set gets the
same arrivals and the same random numbers. The best fixed choice is the best of all twelve (lookup,
route) pairs on the first orders, in hindsight.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman_systems.assistant import choosers
from steersman_systems.assistant.cache import LOOKUPS
from steersman_systems.assistant.consequences import Consequences
from steersman_systems.assistant.points import load_points
from steersman_systems.assistant.replay import replay
from steersman_systems.assistant.routes import ROUTES, Deep
from steersman_systems.assistant.stream import draw_stream
from steersman_systems.assistant.summary import (
    BUCKETS,
    by_tool_use,
    needed_tools,
    paired_difference,
    summarise,
)
from steersman_systems.assistant.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman_systems.assistant.choosers import Policies
    from steersman_systems.assistant.log import Log
    from steersman_systems.assistant.points import Points
    from steersman_systems.assistant.stream import Stream

    Floats = NDArray[np.float64]

FIXED = tuple(f"{lookup}/{route}" for lookup, route in product(LOOKUPS, ROUTES))
"""Names of all fixed choices."""
_ALWAYS = ("learned", "rules", "oracle")
_FIGURES: tuple[str, ...] = ("success", "tool_precision", "routing_precision", "reward")
_FIGURES += ("p50_latency_ms", "p95_latency_ms", "cost_usd", "hit_rate", "wrong_hit_rate")
_FIGURES += ("escalated",)
_BEHIND = 5
"""Niceness beside a service, for a third of its processor share; at 19 a trial starves."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of one policy set on one arrival order.

    Args:
        rewards: (m,) rewards of the whole requests.
        figures: See `summarise`.
        by_use: See `by_tool_use`.
    """

    rewards: Floats
    figures: dict[str, float]
    by_use: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Job:
    """Policy sets to replay on one arrival order.

    Args:
        order: Seed of the stream and of the draws.
        sets: Names: "learned", "beta_tools", "rules", "oracle" or one of `FIXED`.
        deep: Assumption about an escalation.
        home: Directory of the caches; ``None`` for the default.
        arrivals: Length of the stream, see `draw_stream`.
    """

    order: int
    sets: tuple[str, ...]
    deep: Deep
    home: Path | None = None
    arrivals: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """Result of a job: the requests (m,) in order, their right tools, each set's replay."""

    requests: NDArray[np.int64]
    tools: NDArray[np.int64]
    sets: dict[str, ReplayResult]


@dataclass(frozen=True, slots=True)
class Trial:
    """Results of all arrival orders under one assumption about an escalation.

    Args:
        orders: One entry per order, each with learned, rules, oracle and the best fixed choice.
        best_fixed: Name of the best fixed choice.
        deep: Assumption about an escalation.
    """

    orders: tuple[Order, ...]
    best_fixed: str
    deep: Deep

    def figures(self, name: str) -> dict[str, float]:
        """Return a set's figures, averaged over the orders."""
        rows = [order.sets[name].figures for order in self.orders if name in order.sets]
        return {figure: float(np.mean([row[figure] for row in rows])) for figure in _FIGURES}

    def replaced(self, order: int, name: str, other: ReplayResult) -> Trial:
        """Return the trial with one replay replaced, for example by the one of a service."""
        before = self.orders[order]
        changed = replace(before, sets={**before.sets, name: other})
        orders = (*self.orders[:order], changed, *self.orders[order + 1 :])
        return replace(self, orders=orders)

    def by_use(self, name: str) -> dict[str, dict[str, float]]:
        """Return a set's success by use of the tools, averaged over the orders."""
        rows = [order.sets[name].by_use for order in self.orders if name in order.sets]
        return {
            bucket: {
                figure: float(np.mean([row[bucket][figure] for row in rows]))
                for figure in ("success", "requests")
            }
            for bucket in BUCKETS
        }

    def gain(self, name: str, over: str) -> dict[str, Any]:
        """Return the mean gain in reward of one set over another, with 95 % intervals.

        Requests for the same tool are similar, so they are not independent: ``low`` and ``high``
        resample tools, with all requests of each. ``same_tools`` resamples single requests, as if
        they were independent.
        """
        gains = [order.sets[name].rewards - order.sets[over].rewards for order in self.orders]
        tools = [order.tools for order in self.orders]
        requests = [order.requests for order in self.orders]
        value, low, high = paired_difference(tools, gains, np.random.default_rng(0))
        _, least, most = paired_difference(requests, gains, np.random.default_rng(0))
        alone = {"low": least, "high": most}
        return {"value": value, "low": low, "high": high, "same_tools": alone}

    def curve(self, name: str) -> Floats:
        """Return the reward at each arrival, averaged over the orders."""
        rewards: Floats = np.mean([order.sets[name].rewards for order in self.orders], axis=0)
        return rewards


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a trial: an assumption about an escalation, and the arrival orders.

    Args:
        deep: Assumption about an escalation.
        orders: Number of arrival orders, at least 1.
        scouts: Number of first orders on which the best fixed choice is chosen, at least 1.
        extra: Additional sets for the first order, such as "beta_tools".
        arrivals: Length of each order, see `draw_stream`.

    Raises:
        InputError: A number outside its range.
    """

    deep: Deep = Deep()  # noqa: RUF009 -- frozen
    orders: int = 10
    scouts: int = 2
    extra: tuple[str, ...] = ()
    arrivals: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.scouts <= self.orders:
            raise InputError(
                f"orders is {self.orders} and scouts {self.scouts}; allowed: 1 <= scouts <= orders"
            )

    def job(self, order: int, sets: Sequence[str], home: Path | None) -> Job:
        """Return the job of one order: these sets, with learned, rules and oracle."""
        return Job(order, (*_ALWAYS, *sets), self.deep, home, self.arrivals)


def run_trials(
    plans: Sequence[Plan],
    *,
    home: Path | None = None,
    processes: int = 2,
    patient: bool = False,
    done: Callable[[], None] = lambda: None,
) -> list[Trial]:
    """Replay every policy set on several arrival orders, for each plan.

    Args:
        home: Directory of the caches; ``None`` for the default.
        processes: Number of processes, at least 1; it does not change the result.

    Raises:
        DataError: The requests cannot be downloaded.
    """
    if processes == 1:
        return _run_trials(plans, home, map, done)
    # Spawned, not forked: the caller may have threads, for example of a progress bar.
    with ProcessPoolExecutor(
        processes, get_context("spawn"), os.nice, (_BEHIND if patient else 0,)
    ) as pool:
        return _run_trials(plans, home, pool.map, done)


def _run_trials(
    plans: Sequence[Plan], home: Path | None, spread: Any, done: Callable[[], None]
) -> list[Trial]:
    scouts = [
        plan.job(order, (*FIXED, *(plan.extra if order == 0 else ())), home)
        for plan in plans
        for order in range(plan.scouts)
    ]
    scouted = _told(spread(run_job, scouts), done)
    found = [tuple(next(scouted) for _ in range(plan.scouts)) for plan in plans]
    best = [_best_fixed(orders) for orders in found]
    rest = [
        plan.job(order, (name,), home)
        for plan, name in zip(plans, best, strict=True)
        for order in range(plan.scouts, plan.orders)
    ]
    more = _told(spread(run_job, rest), done)
    return [
        Trial((*first, *(next(more) for _ in range(plan.orders - plan.scouts))), name, plan.deep)
        for plan, first, name in zip(plans, found, best, strict=True)
    ]


def _best_fixed(orders: Sequence[Order]) -> str:
    return max(FIXED, key=lambda name: sum(o.sets[name].figures["reward"] for o in orders))


def _told(orders: Iterable[Order], done: Callable[[], None]) -> Iterator[Order]:
    for order in orders:
        done()
        yield order


def run_job(job: Job) -> Order:
    """Replay the policy sets of one job."""
    world = _world(job.home)
    stream = stream_of(job.order, job.home, job.arrivals)
    points, consequences = _consequences(job.home, job.deep)
    sets = {}
    for name in job.sets:
        log = replay_set(world, stream, name, job, points=points, consequences=consequences)
        sets[name] = figures_of(world, stream, log)
    return Order(stream.requests, needed_tools(world, stream), sets)


@lru_cache(maxsize=16)
def stream_of(order: int, home: Path | None = None, arrivals: int | None = None) -> Stream:
    """Return the arrivals of an order, cached: drawing them takes seconds.

    Args:
        home: Directory of the caches; ``None`` for the default.

    Raises:
        InputError: Fewer arrivals than requests.
    """
    return draw_stream(_world(home), np.random.default_rng([order, 0]), n_arrivals=arrivals)


def figures_of(world: World, stream: Stream, log: Log) -> ReplayResult:
    """Return the rewards and figures of a replayed stream."""
    return ReplayResult(log.rewards, summarise(log), by_tool_use(world, stream, log))


def replay_set(
    world: World,
    stream: Stream,
    name: str,
    job: Job,
    *,
    points: Points | None = None,
    consequences: Consequences | None = None,
    keep: bool = False,
    progress: Iterable[int] | None = None,
) -> Log:
    """Replay one policy set on one stream.

    Args:
        points: Decision points; default: the shipped ones.

    Raises:
        InputError: Unknown set.
    """
    declared = load_points() if points is None else points
    if consequences is None:
        consequences = Consequences(world, declared, job.deep)
    rng = np.random.default_rng([job.order, 1])
    policies = _policies(name, world, declared)
    return replay(world, consequences, stream, policies, rng, keep=keep, progress=progress)


def _policies(name: str, world: World, points: Points) -> Policies:
    makers: dict[str, Callable[[], Policies]] = {
        "learned": lambda: choosers.learned(points),
        "beta_tools": lambda: choosers.beta_tools(points, world),
        "rules": lambda: choosers.rules(points),
        "oracle": choosers.oracle,
    }
    if name in makers:
        return makers[name]()
    if name in FIXED:
        lookup, route = name.split("/")
        return choosers.fixed(lookup, route)
    raise InputError(f"unknown policy set {name!r}; allowed: {', '.join([*makers, *FIXED])}")


@cache
def _consequences(home: Path | None, deep: Deep) -> tuple[Points, Consequences]:
    """Return the consequences; they are equal for all arrival orders."""
    points = load_points()
    return points, Consequences(_world(home), points, deep)


@cache
def _world(home: Path | None) -> World:
    return World.load(home)
