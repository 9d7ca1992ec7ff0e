"""Shares with a bootstrap interval over independent units: pairs, requests, utterances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Figure
from steersman.stats import all_alike_interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_RESAMPLES = 2000
_SEED = 20_240_501


def share(
    name: str,
    counted: NDArray[np.bool_],
    among: NDArray[np.bool_] | None = None,
    *,
    clusters: NDArray[np.int64] | None = None,
    peers: Mapping[str, float] | None = None,
    goal: str | None = None,
) -> Figure:
    """Return the share of ``counted`` among ``among``, with a 95 % percentile-bootstrap interval.

    For a share of 0 or 1 the interval is that of `steersman.stats.all_alike_interval`, because
    resamples have no spread.

    Args:
        name: Name of the figure.
        counted: (n,) bool, counted rows.
        among: (n,) bool, rows of the denominator; default: all.
        clusters: (n,) int, rows of a cluster are drawn together; default: independent rows.
        peers: Values of rivals.
        goal: Goal as text.

    Returns:
            A figure; its value is NaN if the denominator is 0.
    """
    base = np.ones(len(counted), dtype=bool) if among is None else among
    groups = (
        np.arange(len(counted)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    )
    tops = np.bincount(groups, weights=counted & base)
    bases = np.bincount(groups, weights=base)
    rng = np.random.default_rng(_SEED)
    draws = np.full(_RESAMPLES, np.nan)
    for k in range(_RESAMPLES):
        drawn = rng.integers(len(bases), size=len(bases))
        total = bases[drawn].sum()
        draws[k] = tops[drawn].sum() / total if total else np.nan
    value = tops.sum() / bases.sum() if bases.sum() else np.nan
    low, high = np.nanquantile(draws, [0.025, 0.975]) if bases.sum() else (np.nan, np.nan)
    if value in {0.0, 1.0}:  # resamples do not differ, but the share is still uncertain
        clusters_seen = int(np.count_nonzero(bases))
        low, high = all_alike_interval(float(value), clusters_seen, low=0.0, high=1.0)
    return Figure(name, float(value), float(low), float(high), goal=goal, peers=peers or {})
