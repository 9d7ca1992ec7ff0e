"""Inverses of λI + G for the Gram matrices of arms: whole, and of few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import blas, lapack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LEFT_OUT = 1e-9  # of the prior's precision: what thin rows may miss
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a trace: what is left of nothing


def inverse_of_upper(precision: Floats, smallest: float) -> tuple[Floats, Floats]:
    """Return the inverse of a symmetric matrix given by its upper triangle, and of its known part.

    Upper triangles are valid. Eigenvalues are at least ``smallest`` by construction. Where rounding
    is larger than that (nearly collinear features with huge norms), eigenvalues that are only
    rounding noise, on either side of zero, become ``smallest`` again: such directions count as
    unexplored. The known part leaves them out, since what the moment holds of them is noise too.
    """
    noise = len(precision) * np.finfo(np.float64).eps * float(np.trace(precision))
    factor, failed = lapack.dpotrf(precision, lower=0, overwrite_a=0)
    if not failed and float(np.diagonal(factor).min()) ** 2 > noise:
        inverse, failed = lapack.dpotri(factor, lower=0)
        if not failed and np.isfinite(inverse).all():
            return inverse, inverse
    values, vectors = np.linalg.eigh(precision, UPLO="U")
    kept = values > noise
    shares = 1.0 / np.where(kept, values, smallest)
    return (vectors * shares) @ vectors.T, (vectors * (shares * kept)) @ vectors.T


def thin_rows(gram: Floats, prior_precision: float, most: int) -> Floats | None:
    """Return the rows W with (λI + G)⁻¹ = I/λ - WᵀW of a Gram matrix of low rank.

    Args:
        gram: (d, d), its upper triangle is looked at.
        prior_precision: λ > 0.
        most: rows that are allowed.

    Returns:
        (r, d) rows; None: the rank is larger, or rounding of so large entries hides it.

    Source: pivoted Cholesky G = RᵀR (LAPACK dpstrf), and Woodbury's identity:
    (λI + RᵀR)⁻¹ = I/λ - Rᵀ(λ(λI + RRᵀ))⁻¹R.
    """
    dim = len(gram)
    least = _least(dim, prior_precision)
    if float(np.trace(gram)) > largest_trace(dim, prior_precision):
        return None
    factor, pivots, rank, failed = lapack.dpstrf(gram, tol=least, lower=0)
    if failed < 0 or rank > most:
        return None
    rows = np.zeros((rank, dim))
    rows[:, pivots - 1] = np.triu(factor[:rank])
    inner = prior_precision * (prior_precision * np.eye(rank) + rows @ rows.T)
    lower, failed = lapack.dpotrf(inner, lower=1)
    if failed:
        return None
    found: Floats = blas.dtrsm(1.0, lower, rows, lower=1)
    return found


def largest_trace(dim: int, prior_precision: float) -> float:
    """Return the trace up to which rounding hides nothing of the rank of a Gram matrix."""
    return _least(dim, prior_precision) / _ROUNDING


def _least(dim: int, prior_precision: float) -> float:
    """Return the pivot below which nothing is left of a Gram matrix that would show."""
    return _LEFT_OUT * prior_precision / dim
