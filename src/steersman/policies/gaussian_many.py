"""The integrals of ``gaussian_choice`` for many arms that are alike, by interpolation.

All that an arm adds to the integrals is smooth in its mean and in the logarithm of its spread, so
polynomials through a grid of p·q made-up arms say it for all K of them: every real arm is a
weighted sum of these. The integral is then over p·q arms, whose number does not grow with K.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, cos, log2, pi
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integral = Callable[[Floats, Floats, Floats], Floats]

_SMALLEST_SPAN = 1e-6  # of the spread; a grid over less would only show rounding


def grid_size(means: Floats, sds: Floats) -> tuple[int, int]:
    """Return how many grid means and grid spreads give every probability to 1e-10.

    Found by comparing with the direct integral for up to 3,000 arms, spreads up to four times each
    other, and means up to ten of the smallest spread apart.
    """
    smallest = float(sds.min())
    apart = float(means.max() - means.min()) / smallest
    return 10 + int(2.6 * apart), 9 + ceil(6.0 * log2(float(sds.max()) / smallest))


def integrate_alike(
    means: Floats, sds: Floats, size: tuple[int, int], integral: Integral
) -> Floats:
    """Return the K integrals, from those of a grid of made-up arms.

    Args:
        means: (K,).
        sds: (K,), > 0.
        size: numbers of means and of spreads in the grid, p and q.
        integral: given (p·q,) means, sds and counts, returns the (p·q,) integrals among that many
            arms of each kind; counts need be neither whole nor positive.
    """
    p, q = size
    smallest = float(sds.min())
    grid_means, of_means = _polynomials(means, p, _SMALLEST_SPAN * smallest)
    grid_logs, of_logs = _polynomials(np.log(sds), q, _SMALLEST_SPAN)
    to_means, to_logs = _values_to_coefficients(p), _values_to_coefficients(q)
    counts = to_means.T @ (of_means @ of_logs.T) @ to_logs
    grid = np.repeat(grid_means, q), np.tile(np.exp(grid_logs), p)
    mass = integral(*grid, counts.ravel()).reshape(p, q)
    coefficients = to_means @ mass @ to_logs.T
    # Polynomials may end a rounding error below zero.
    result: Floats = np.maximum(((coefficients.T @ of_means) * of_logs).sum(0), 0.0)
    return result


def _polynomials(values: Floats, n: int, smallest: float) -> tuple[Floats, Floats]:
    """Return n Chebyshev nodes (n,) around ``values``, and T_0 .. T_n-1 at the values, (n, K)."""
    low, high = float(values.min()), float(values.max())
    half = max(0.5 * (high - low), smallest)
    x = (values - 0.5 * (low + high)) / half
    table: Floats = np.empty((n, len(values)))
    table[0] = 1.0
    table[1] = x
    x += x
    for k in range(2, n):
        np.multiply(x, table[k - 1], out=table[k])
        table[k] -= table[k - 2]
    nodes = np.array([cos(pi * (j + 0.5) / n) for j in range(n)])
    return 0.5 * (low + high) + half * nodes, table


@lru_cache(maxsize=64)
def _values_to_coefficients(n: int) -> Floats:
    """Return the (n, n) matrix that turns values at the nodes into Chebyshev coefficients."""
    k = np.arange(n)
    matrix: Floats = np.cos(np.outer(k, pi * (k + 0.5) / n)) * (2.0 / n)
    matrix[0] *= 0.5
    return matrix
