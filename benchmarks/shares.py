"""Shares with an interval that resamples what is independent: pairs, requests, utterances."""

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

    Of none and of all it is that of `steersman.stats.all_alike_interval`, since resampling sees no
    spread there.

    Args:
        name: Name of the figure.
        counted: (n,) bool, what is counted.
        among: (n,) bool, what it is a share of; all rows by default.
        clusters: (n,) int, rows of one cluster are drawn together; by default every row is its own.
        peers: Values of rivals.
        goal: The bar, in words.

    Returns:
        A figure; its value is NaN when there is nothing to be a share of.
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
    if value in {0.0, 1.0}:  # no resample differs, which makes nothing certain
        clusters_seen = int(np.count_nonzero(bases))
        low, high = all_alike_interval(float(value), clusters_seen, low=0.0, high=1.0)
    return Figure(name, float(value), float(low), float(high), goal=goal, peers=peers or {})
