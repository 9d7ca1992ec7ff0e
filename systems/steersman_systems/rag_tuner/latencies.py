"""Latencies per episode, of a configuration and the baseline.

An episode of a run is an evaluation; the baseline has the same queries. An episode of a canary is
a number of decisions of the candidate; the baseline is the control at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.db.rollout_decisions import outcome_percentiles
from steersman.errors import DataError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.logged import World

_OUTCOME = "latency_ms"


@dataclass(frozen=True, slots=True)
class Latencies:
    """Medians and 95th percentiles of episodes, in milliseconds; NaN: unknown.

    Args:
        p50: Median of each episode.
        p95: 95th percentile of each episode.
        baseline_p50: Median of the baseline in the same episode.
        baseline_p95: 95th percentile of the baseline in the same episode.

    >>> Latencies.of([([1.0, 3.0], [2.0]), ([4.0], [])])
    Latencies(p50=(2.0, 4.0), p95=(2.9, 4.0), baseline_p50=(2.0, nan), baseline_p95=(2.0, nan))
    """

    p50: tuple[float, ...]
    p95: tuple[float, ...]
    baseline_p50: tuple[float, ...]
    baseline_p95: tuple[float, ...]

    @classmethod
    def of(cls, episodes: Iterable[tuple[Sequence[float], Sequence[float]]]) -> Latencies:
        """Return the latencies of episodes."""
        columns = [
            [_quantile(took, share) for took in episode for share in (0.5, 0.95)]
            for episode in episodes
        ]
        return cls(*(tuple(row[place] for row in columns) for place in range(4)))

    def told(self) -> dict[str, list[float | None]]:
        """Return JSON values, with None for NaN."""
        return {
            f"{name}_ms": [None if np.isnan(value) else value for value in getattr(self, name)]
            for name in ("p50", "p95", "baseline_p50", "baseline_p95")
        }


def of_run(
    lines: Sequence[Mapping[str, Any]], recorded: World, baseline: Configuration
) -> Latencies:
    """Return the latencies of a run, and of the baseline on the same queries.

    Raises:
        InputError: The baseline is not recorded.
    """

    def took(queries: Sequence[int]) -> list[float]:
        known = recorded.seen(baseline, np.sort(np.array(queries, np.intp)))
        found: list[float] = []
        if len(known):
            found = recorded.evaluate(baseline, known).latency_ms.tolist()
        return found

    return Latencies.of((line["of_query"]["latency_ms"], took(line["queries"])) for line in lines)


async def of_canary(
    connection: Any, tenant: UUID, rollout: str, *, queries: int = 100
) -> Latencies:
    """Return the latencies of a rollout: candidate, and control at the same time.

    Args:
        queries: Decisions of the candidate per episode, 10 or more; the last may have fewer.

    Raises:
        DataError: No decision of the candidate has a latency.
        InputError: `queries` is out of range.
    """
    if queries < 10:
        raise InputError(f"queries is {queries!r}; allowed: 10 or more")
    rows = await outcome_percentiles(connection, tenant, rollout, _OUTCOME, decisions=queries)
    if not rows:
        raise DataError(
            f"rollout {rollout} has no decision of the candidate with an outcome "
            f"{_OUTCOME!r}; give a rollout whose decisions report it"
        )
    nothing = (float("nan"), float("nan"))
    each = [(*own, *(others or nothing)) for own, others in rows]
    return Latencies(*(tuple(float(one[place]) for one in each) for place in range(4)))


def _quantile(took: Sequence[float], share: float) -> float:
    return float(np.quantile(took, share)) if len(took) else float("nan")
