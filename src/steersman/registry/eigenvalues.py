"""The largest eigenvalue of what a policy summed, per sample, from packed triangles.

Per arm a policy sums G_a = Σ w x xᵀ and n_a = Σ w. G_a itself grows with every sample, so its
eigenvalue would tell the time, not the health. What is measured is the largest eigenvalue of
Σ_a G_a / Σ_a n_a, the second moment of the features over all arms: it does not depend on rewards,
nor on which arm was tried how often, and stays where it is for as long as contexts do. A feature
that is suddenly a hundred times larger in one request out of a hundred moves it a hundredfold.
Counts per key are the same thing for features that are one key each: the matrix is diagonal, and
its largest eigenvalue is the share of the commonest key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.registry.headers import state_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    State = Mapping[str, NDArray[Any]]

_MOST_STEPS = 500
_SEED = 0


@dataclass(frozen=True)
class Spectrum:
    """The second moment of the features of a state, as far as it can be measured.

    Args:
        value: its largest eigenvalue; None where there is no such matrix.
        samples: weight of all samples in it, >= 0.
        dim: its rows.
        unmeasured: why ``value`` is None, else empty.
    """

    value: float | None
    samples: float
    dim: int
    unmeasured: str = ""


def largest_eigenvalue(state: State) -> float | None:
    """Return the largest eigenvalue of the second moment of the features that a state has summed.

    Args:
        state: of any policy, as ``policy.state()`` returns it.

    Returns:
        A number >= 0; None for a policy that learns nothing, and for one that has learned nothing.

    Raises:
        VerificationError: the state has no readable header.

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
    """Return the largest eigenvalue of a state with what it rests on.

    Args:
        state: of any policy.

    Raises:
        VerificationError: the state has no readable header.

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

    Every step multiplies the packed triangle with a vector, so nothing is unpacked. It ends when
    the residual |Av - ρv| is small, ρ being the Rayleigh quotient: some eigenvalue is that near,
    and from a drawn start it is the largest one but for chance. Where the first two eigenvalues
    nearly agree it ends after 500 steps, between them.

    Args:
        packed: upper triangle, column by column, shape (dim·(dim + 1) / 2,).
        dim: rows of the matrix, at least 1.
        tolerance: residual over eigenvalue at which it ends.

    Raises:
        InputError: another number of entries.

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
