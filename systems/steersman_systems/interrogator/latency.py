"""Number of questions until a similarity, with censored sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.stats import kaplan_meier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.interrogator.measures import Course

    Floats = NDArray[np.float64]

_RESAMPLES = 2_000


def timed(
    runs: Sequence[Sequence[Course]], levels: Floats, limit: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return each session's questions to its target's level, and whether it reached it.

    Returns:
        (seeds, targets) float64, the restricted times; and bool.
    """
    pairs = [[c.steps_to(w) for c, w in zip(run, levels, strict=True)] for run in runs]
    steps, solved = np.moveaxis(np.array(pairs, np.float64), 2, 0)
    return np.where(solved > 0, steps, float(limit)), solved > 0


def steps_until(
    runs: Sequence[Sequence[Course]], levels: Floats, limit: int, *, level: float = 0.95
) -> dict[str, float | None]:
    """Return the number of questions until a similarity; unsolved sessions are censored.

    The median is the Kaplan-Meier median over the sessions of all seeds. Sessions of one target or
    of one run are not independent: the interval resamples seeds and targets independently (Owen
    2007, The pigeonhole bootstrap).

    Args:
        level: Confidence level, in (0, 1).

    Returns:
        ``median``, ``low``, ``high`` (None: beyond the limit), ``solved`` (share of all sessions)
        and
        ``restricted_mean`` of questions up to the limit.
    """
    steps, solved = timed(runs, levels, limit)
    everything = kaplan_meier(steps.ravel(), solved.ravel(), level=level)
    low, high = _median_ends(steps, solved, level)
    return {
        "median": _finite(everything.median.value),
        "low": _finite(low),
        "high": _finite(high),
        "solved": float(solved.mean()),
        "restricted_mean": everything.restricted_mean(limit).value,
    }


def _median_ends(steps: Floats, solved: NDArray[np.bool_], level: float) -> tuple[float, float]:
    """Return the ends of the median's interval.

    Unsolved sessions are observed up to the limit. So the Kaplan-Meier curve is the share of
    unsolved sessions, and a resample is a weighted mean of these shares.
    """
    times = np.unique(steps[solved])
    if not times.size:
        return np.inf, np.inf
    there = (steps[..., np.newaxis] <= times) & solved[..., np.newaxis]
    seeds, targets = steps.shape
    rng = np.random.default_rng(0)
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), _RESAMPLES) / seeds
    by_target = rng.multinomial(targets, np.full(targets, 1 / targets), _RESAMPLES) / targets
    shares = sum(
        by_seed[:, s, np.newaxis] * (by_target @ there[s].astype(np.float64)) for s in range(seeds)
    )
    # Within rounding of the sum of the weights.
    halves = np.asarray(shares) >= 0.5 - 1e-12
    medians = np.where(halves.any(axis=1), times[halves.argmax(axis=1)], np.inf)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(medians, (tail, 1.0 - tail), method="inverted_cdf")
    return float(low), float(high)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
