"""What a replayed stream is judged by, and the best fixed choice to judge it against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.systems.assistant.cache import LOOKUPS
from steersman.systems.assistant.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.systems.assistant.consequences import Consequences
    from steersman.systems.assistant.log import Log
    from steersman.systems.assistant.stream import Stream
    from steersman.systems.assistant.world import World

HEAD_USES, TAIL_USES = 20, 3
"""A head tool is the right one of at least 20 requests, a tail tool of at most 3."""


def measure(log: Log) -> dict[str, float]:
    """The figures of one policy set on one stream.

    Args:
        log: A replayed stream.

    Returns:
        ``success``; ``tool_precision``, share of right tools among those the assistant picked
        itself (micro, planner); ``routing_precision``, share of requests not served from the cache
        that took the cheapest route that answers them (the cheapest of all where none does);
        ``reward``; ``p50_latency_ms``; ``p95_latency_ms``; ``cost_usd`` per request;
        ``cache_hit_rate``; ``cache_wrong_hit_rate``, wrong ones among the answers served from the
        cache. A share of nothing is NaN.

    No doctest: it needs the requests; ``tests/systems/assistant/test_replay.py`` shows it.
    """
    picked = [a.outcomes["tool_ok"] for a in log.answered if a.tool is not None]
    routed = [a.route == (a.cheapest or ROUTES[0]) for a in log.answered if a.route is not None]
    served = [a.hit_right is False for a in log.answered if a.route is None]
    latency = log.outcome("latency_ms")
    return {
        "success": float(log.outcome("success").mean()),
        "tool_precision": _share(picked),
        "routing_precision": _share(routed),
        "reward": float(log.rewards.mean()),
        "p50_latency_ms": float(np.quantile(latency, 0.5)),
        "p95_latency_ms": float(np.quantile(latency, 0.95)),
        "cost_usd": float(log.outcome("cost_usd").mean()),
        "cache_hit_rate": len(served) / len(log),
        "cache_wrong_hit_rate": _share(served),
    }


def by_familiarity(world: World, log: Log) -> dict[str, float]:
    """Success on the first arrival of each request, by how common its right tool is.

    Repeats are left out: they would count what the cache remembers, not what was learned.

    Args:
        world: The requests.
        log: A replayed stream.

    Returns:
        ``first_seen``, where the right tool is needed for the first time in the stream; ``tail``,
        ``middle`` and ``head`` by the number of requests that need the tool, see `HEAD_USES`.

    No doctest: it needs the requests; ``tests/systems/assistant/test_replay.py`` shows it.
    """
    needed = world.recording.truth.astype(np.int64)
    uses = np.bincount(needed)[needed]
    requests = np.array([a.request for a in log.answered])
    tools = needed[requests]
    success = log.outcome("success")
    first_request, first_tool = _first(requests), _first(tools)
    groups = {
        "first_seen": first_tool,
        "tail": first_request & (uses[requests] <= TAIL_USES),
        "middle": first_request & (uses[requests] > TAIL_USES) & (uses[requests] < HEAD_USES),
        "head": first_request & (uses[requests] >= HEAD_USES),
    }
    return {name: _share(success[group]) for name, group in groups.items()}


def fixed_rewards(
    world: World, consequences: Consequences, stream: Stream
) -> dict[tuple[str, str], NDArray[np.float64]]:
    """What every fixed choice of lookup and route earns, with the default tool.

    Args:
        world: The requests.
        consequences: What follows from each choice.
        stream: The arrivals.

    Returns:
        (lookup, route) -> (m,) rewards of the whole requests; the same as replaying each, in a
        twelfth of the time.

    No doctest: it needs the requests; ``tests/systems/assistant/test_replay.py`` shows it.
    """
    rewards: dict[tuple[str, str], NDArray[np.float64]] = {
        (lookup, route): np.empty(len(stream)) for lookup in LOOKUPS for route in ROUTES
    }
    for place, request in enumerate(stream.requests.tolist()):
        guardian, lookups = stream.guardian[place], stream.glances[place].lookups
        planned = int(world.shortlist(request)[0])
        routed = {
            route: consequences.reward(request, guardian, route, planned=planned)
            for route in ROUTES
        }
        for (kind, route), row in rewards.items():
            lookup = lookups[kind]
            if not lookup.hit:
                row[place] = routed[route]
            elif kind == "l3":
                row[place] = routed["deep"]
            else:
                row[place] = consequences.served(request, lookup).route
    return rewards


def best_fixed(
    world: World, consequences: Consequences, streams: Sequence[Stream]
) -> tuple[str, str]:
    """The lookup and the route that earn most if they are taken always, known by hindsight.

    Args:
        world: The requests.
        consequences: What follows from each choice.
        streams: The streams it is judged on, at least one.

    Returns:
        (lookup, route), for `choosers.fixed`.

    No doctest: it needs the requests; ``tests/systems/assistant/test_replay.py`` shows it.
    """
    totals: dict[tuple[str, str], float] = {}
    for stream in streams:
        for choice, rewards in fixed_rewards(world, consequences, stream).items():
            totals[choice] = totals.get(choice, 0.0) + float(rewards.sum())
    return max(totals, key=totals.__getitem__)


def _first(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    first = np.zeros(len(values), np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def _share(flags: Sequence[float] | NDArray[np.float64]) -> float:
    return float(np.mean(flags)) if len(flags) else float("nan")
