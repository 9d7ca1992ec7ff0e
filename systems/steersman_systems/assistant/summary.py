"""Figures of a replayed stream for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.assistant.log import Log
    from steersman_systems.assistant.stream import Stream
    from steersman_systems.assistant.world import World

    Floats = NDArray[np.float64]

HEAD_USES, TAIL_USES = 20, 3
"""Uses in a stream from which a tool is head, and up to which it is tail."""
BUCKETS = ("first_seen", "tail", "middle", "head")


def summarise(log: Log) -> dict[str, float]:
    """Return the figures of one policy set on one stream.

    Returns:
        success, reward, tool_precision (share of right tools among the tools that the assistant
        chose), routing_precision (share of requests on the cheapest route that answers them, among
        routed requests with such a route), p50 and p95 latency in ms, mean cost in USD, cache
        hit_rate (share of requests with a cached answer) and wrong_hit_rate (share of wrong ones
        among these), escalated (share of requests on route deep).
    """
    latency = log.outcome("latency_ms")
    served = log.outcome("cache_hit") == 1.0
    wrong = served & (log.outcome("success") == 0.0)
    picked = [row.outcomes["tool_ok"] for row in log.answered if row.tool is not None]
    routed = [
        row.route == row.cheapest
        for row in log.answered
        if row.route is not None and row.cheapest is not None
    ]
    return {
        "success": float(log.outcome("success").mean()),
        "tool_precision": _mean(picked),
        "routing_precision": _mean(routed),
        "reward": float(log.rewards.mean()),
        "p50_latency_ms": float(np.percentile(latency, 50)),
        "p95_latency_ms": float(np.percentile(latency, 95)),
        "cost_usd": float(log.outcome("cost_usd").mean()),
        "hit_rate": float(served.mean()),
        "wrong_hit_rate": float(wrong.sum() / max(1, served.sum())),
        "escalated": _mean([row.route == "deep" for row in log.answered]),
    }


def needed_tools(world: World, stream: Stream) -> NDArray[np.int64]:
    """Return the right tool of each arrival of a stream, (m,)."""
    return np.array([world.catalogue.requests[i].tool for i in stream.requests.tolist()])


def by_tool_use(world: World, stream: Stream, log: Log) -> dict[str, dict[str, float]]:
    """Return success by how often the stream needs the right tool of a request.

    Returns:
        Success and number of requests for ``first_seen`` (first use of the tool), ``tail`` (tool
        needed at most 3 times), ``middle`` and ``head`` (at least 20 times).
    """
    needed = needed_tools(world, stream)
    uses = np.bincount(needed)[needed]
    first = np.zeros(len(needed), np.bool_)
    first[np.unique(needed, return_index=True)[1]] = True
    success = log.outcome("success")
    masks = {
        "first_seen": first,
        "tail": uses <= TAIL_USES,
        "middle": (uses > TAIL_USES) & (uses < HEAD_USES),
        "head": uses >= HEAD_USES,
    }
    return {
        name: {"success": _mean(success[mask]), "requests": float(mask.sum())}
        for name, mask in masks.items()
    }


def paired_difference(
    groups: Sequence[NDArray[np.int64]],
    gains: Sequence[Floats],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = 4000,
) -> tuple[float, float, float]:
    """Return a mean gain with a bootstrap interval over groups of requests and stream orders.

    Both are resampled independently, so the interval covers other groups and other arrival orders.
    Assumption: groups are independent.

    Args:
        level: Confidence level, in (0, 1).
        resamples: Number of resamples, at least 100.

    Source: Owen (2007), "The pigeonhole bootstrap", for crossed random effects; it is
        conservative when both effects are present.
    """
    count = 1 + max(int(rows.max()) for rows in groups)
    sums = np.stack([np.bincount(r, g, count) for r, g in zip(groups, gains, strict=True)])
    sizes = np.stack([np.bincount(r, minlength=count) for r in groups]).astype(np.float64)
    there = sizes.any(axis=0)
    sums, sizes = sums[:, there], sizes[:, there]
    count = int(there.sum())
    value = float(sums.sum() / sizes.sum())
    orders = rng.multinomial(len(sums), np.full(len(sums), 1.0 / len(sums)), resamples)
    rows = rng.multinomial(count, np.full(count, 1.0 / count), resamples)
    totals = np.einsum("bo,or,br->b", orders, sums, rows, optimize=True)
    weights = np.einsum("bo,or,br->b", orders, sizes, rows, optimize=True)
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(totals / weights, [tail, 100.0 - tail])
    return value, float(low), float(high)


def _mean(values: Sequence[float] | Sequence[bool] | Floats) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
