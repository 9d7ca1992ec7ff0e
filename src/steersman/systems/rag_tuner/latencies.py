"""How long queries took, episode by episode: what was tried beside the baseline, on the same ones.

An episode of a run is an evaluation: the baseline is looked up on its very queries. An episode of a
canary is so many decisions of the candidate: the baseline is what the control decided meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from steersman.systems.rag_tuner.configuration import Configuration
    from steersman.systems.rag_tuner.recorded import Recorded

_MOST_ROWS = 40_000
_OUTCOME = "latency_ms"
_TOLD = (
    "SELECT d.arm, (SELECT o.value FROM outcome AS o WHERE o.tenant = $1 AND o.decision = d.id "
    "AND o.name = $3 ORDER BY o.at DESC, o.event DESC LIMIT 1) AS value "
    "FROM decision AS d WHERE d.tenant = $1 AND d.rollout = $2 AND d.arm = ANY($4) "
    "AND NOT d.degraded ORDER BY d.id LIMIT $5"
)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Medians and 95th percentiles of episodes, in milliseconds; NaN: nothing is known.

    Args:
        p50: Of each episode.
        p95: Likewise.
        baseline_p50: Of the baseline in the same episode.
        baseline_p95: Likewise.

    >>> Latencies.of([([1.0, 3.0], [2.0]), ([4.0], [])])
    Latencies(p50=(2.0, 4.0), p95=(2.9, 4.0), baseline_p50=(2.0, nan), baseline_p95=(2.0, nan))
    """

    p50: tuple[float, ...]
    p95: tuple[float, ...]
    baseline_p50: tuple[float, ...]
    baseline_p95: tuple[float, ...]

    @classmethod
    def of(cls, episodes: Iterable[tuple[Sequence[float], Sequence[float]]]) -> Latencies:
        """Return those of episodes.

        Args:
            episodes: Of each what queries took, and what they took under the baseline.
        """
        columns = [
            [_quantile(took, share) for took in episode for share in (0.5, 0.95)]
            for episode in episodes
        ]
        return cls(*(tuple(row[place] for row in columns) for place in range(4)))

    def told(self) -> dict[str, list[float | None]]:
        """Return them for JSON, which has no NaN."""
        return {
            f"{name}_ms": [None if np.isnan(value) else value for value in getattr(self, name)]
            for name in ("p50", "p95", "baseline_p50", "baseline_p95")
        }


def of_run(
    lines: Sequence[Mapping[str, Any]], recorded: Recorded, baseline: Configuration
) -> Latencies:
    """Return what the evaluations of a run took, and the baseline on the same queries.

    Args:
        lines: Of `RunFolder.episodes`.
        recorded: Every configuration on every query.
        baseline: What serves.

    Raises:
        InputError: The baseline was not recorded.

    No doctest: ``tests/systems/rag_tuner/test_latencies.py`` shows it.
    """
    return Latencies.of(
        (
            line["of_query"]["latency_ms"],
            recorded.evaluate(baseline, np.array(line["queries"], np.intp)).latency_ms.tolist(),
        )
        for line in lines
    )


async def of_canary(
    connection: Any, tenant: UUID, rollout: str, *, queries: int = 100
) -> Latencies:
    """Return what the decisions of a rollout took: its candidate, and its control meanwhile.

    Args:
        connection: Within a transaction of the tenant.
        tenant: Whose.
        rollout: Its id.
        queries: Decisions of the candidate that make an episode, 10 or more; the last may be fewer.

    Returns:
        By what was reported as ``latency_ms``; the first 40,000 decisions.

    Raises:
        DataError: Nobody reported how long the candidate took.
        InputError: `queries` is out of its range.

    No doctest: it needs a server; ``tests/systems/rag_tuner/test_latencies.py`` shows it.
    """
    if queries < 10:
        raise InputError(f"queries is {queries!r}; allowed are 10 or more")
    arms = ["candidate", "control"]
    rows = await connection.fetch(_TOLD, tenant, rollout, _OUTCOME, arms, _MOST_ROWS)
    episodes: list[tuple[list[float], list[float]]] = [([], [])]
    known = 0
    for row in rows:
        own = row["arm"] == "candidate"
        if row["value"] is None:
            continue
        if own and len(episodes[-1][0]) == queries:
            episodes.append(([], []))
        episodes[-1][0 if own else 1].append(float(row["value"]))
        known += own
    if not known:
        raise DataError(
            f"of {len(rows)} decisions of rollout {rollout} none of the candidate's has an outcome "
            f"{_OUTCOME!r}; name a rollout whose decisions report it"
        )
    return Latencies.of(episodes)


def _quantile(took: Sequence[float], share: float) -> float:
    return float(np.quantile(took, share)) if len(took) else float("nan")
