"""Largest eigenvalue of the second moment of the features, from packed triangles.

Per arm a policy sums G_a = Σ w x xᵀ and n_a = Σ w. G_a grows with every sample, so its eigenvalue
measures time. This module measures the largest eigenvalue of Σ_a G_a / Σ_a n_a, the second moment
of the features over all arms. It does not depend on rewards or on the choice of arms, and is
constant while the context distribution is. If a feature is a hundred times larger in one request
out of a hundred, it grows about a hundredfold. For counts per key, the matrix is diagonal, and its
largest eigenvalue is the share of the most frequent key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.points.state_header import state_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    State = Mapping[str, NDArray[Any]]

_MOST_STEPS = 500
_SEED = 0


@dataclass(frozen=True)
class Spectrum:
    """Second moment of the features of a state.

    Args:
        value: largest eigenvalue; None if there is no matrix.
        samples: total weight of its samples, >= 0.
        dim: number of rows.
        unmeasured: reason why ``value`` is None, else empty.
    """

    value: float | None
    samples: float
    dim: int
    unmeasured: str = ""


def largest_eigenvalue(state: State) -> float | None:
    """Return the largest eigenvalue of the second moment of a state's features.

    Returns:
        A number >= 0; None for a policy that does not learn, or has no samples yet.

    Raises:
        VerificationError: the header of the state is unreadable.

    >>> from steersman.policies import Fixed, LinTS
    >>> policy = LinTS(["a", "b"], dim=2)
    >>> policy.learn([2.0, 0.0], "a", 1.0)
    >>> policy.learn([0.0, 1.0], "b", 1.0)
    >>> largest_eigenvalue(policy.state())  # of diag(4, 1) / 2
    2.0
    >>> largest_eigenvalue(Fixed(["a", "b"], "a").state()) is None
    True
    """
    return spectrum(state).value


def spectrum(state: State) -> Spectrum:
    """Return the largest eigenvalue of a state with samples and dimension.

    Raises:
        VerificationError: the header of the state is unreadable.

    >>> from steersman.policies import BetaThompson
    >>> policy = BetaThompson(["a", "b"])
    >>> policy.learn_batch(["faq", "faq", "faq", "refund"], ["a", "b", "a", "a"], [1, 0, 1, 1])
    >>> spectrum(policy.state())
    Spectrum(value=0.75, samples=4.0, dim=2, unmeasured='')
    """
    algorithm = state_header(state).get("algorithm")
    if "gram" in state:
        return _of_gram(state["gram"], state["count"])
    if "counts" in state:
        per_key = np.asarray(state["counts"].sum(axis=(1, 2)), dtype=np.float64)
        return _of_counts(per_key)
    return Spectrum(None, 0.0, 0, f"{algorithm} learns nothing, so it has no matrix to measure")


def power_iteration(packed: Floats, dim: int, *, tolerance: float = 1e-9) -> float:
    """Return the largest eigenvalue of a positive semidefinite matrix.

    Every step multiplies the packed triangle by a vector, without unpacking it. The iteration
    stops when the residual |Av - ρv| is small, ρ being the Rayleigh quotient. From a random start
    this is almost surely the largest eigenvalue. If the first two eigenvalues nearly agree, it
    stops after 500 steps, between them.

    Args:
        packed: upper triangle, by columns, shape (dim·(dim + 1) / 2,).
        dim: number of rows, at least 1.

    Raises:
        InputError: the number of entries does not match ``dim``.

    >>> float(round(power_iteration(np.array([2.0, 1.0, 2.0]), 2), 9))
    3.0

    Source:
        Golub, Van Loan (2013), "Matrix Computations", section 8.2.1. Error after k steps without
        any gap, at most .871·ln(dim) / (k - 1) in the mean: Kuczyński, Woźniakowski (1992),
        theorem 3.1.
    """
    from scipy.linalg import blas  # noqa: PLC0415 (slow; most who import this measure nothing)

    if packed.shape != (dim * (dim + 1) // 2,):
        message = f"shape {packed.shape} does not match a packed triangle of {dim} rows"
        raise InputError(message)
    scale = float(np.abs(packed).max())
    if scale == 0.0:
        return 0.0
    scaled = packed / scale
    v = np.random.default_rng(_SEED).standard_normal(dim)
    v /= blas.dnrm2(v)
    value = 0.0
    for _ in range(_MOST_STEPS):
        product = blas.dspmv(dim, 1.0, scaled, v)
        value = float(blas.ddot(v, product))
        if blas.dnrm2(product - value * v) <= tolerance * value:
            break
        length = blas.dnrm2(product)
        if length == 0.0:
            break
        v = product / length
    return value * scale


def _of_gram(gram: Floats, count: Floats) -> Spectrum:
    dim = round((np.sqrt(8.0 * gram.shape[1] + 1.0) - 1.0) / 2.0)
    samples = float(count.sum())
    if not samples > 0.0:
        return Spectrum(None, 0.0, dim, "no rewards learned yet")
    return Spectrum(power_iteration(gram.sum(axis=0) / samples, dim), samples, dim)


def _of_counts(per_key: Floats) -> Spectrum:
    samples = float(per_key.sum())
    if not samples > 0.0:
        return Spectrum(None, 0.0, len(per_key), "no rewards learned yet")
    return Spectrum(float(per_key.max()) / samples, samples, len(per_key))
