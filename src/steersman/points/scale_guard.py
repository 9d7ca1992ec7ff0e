"""Publish guard: refuses a snapshot whose size or scale changes suddenly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steersman.errors import InputError
from steersman.points.state_bytes import state_header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    State = Mapping[str, NDArray[Any]]
    from collections.abc import Mapping

    Floats = NDArray[np.float64]

_MOST_STEPS = 500
_SEED = 0


@dataclass(frozen=True)
class Spectrum:
    """Second moment of the features of a state.

    Args:
        value: largest eigenvalue; None without a matrix.
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
    header = state_header(state)
    if _has_moments(state):
        return _of_gram(state["gram"], state["count"])
    if "keys" in header and "counts" in state:
        per_key = np.asarray(state["counts"].sum(axis=(1, 2)), dtype=np.float64)
        return _of_counts(per_key)
    return Spectrum(None, 0.0, 0, f"{header.get('algorithm')} has no feature matrix to measure")


def _has_moments(state: State) -> bool:
    """Return whether a state has the arrays of linear models, not others of these names."""
    return "gram" in state and state["gram"].ndim == 2 and "count" in state


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


FACTOR = 2.0
WINDOW = 20  # number of versions in the running median
SAMPLES_PER_DIM = 10.0
SMALL = 64 * 1024  # bytes; smaller sizes are never refused


@dataclass(frozen=True)
class Measures:
    """Measures of a snapshot that the publish guard compares.

    Args:
        size: bytes of arrays and header, before compression.
        largest_eigenvalue: of the second moment of the features; None without one.
        samples: total weight of the samples, >= 0.
        dim: rows of the second moment.
        kind: algorithm and shape; only snapshots of the same kind are compared.
        unmeasured: reason for a missing eigenvalue, else empty.
    """

    size: int
    largest_eigenvalue: float | None = None
    samples: float = 0.0
    dim: int = 0
    kind: str = ""
    unmeasured: str = ""

    @property
    def enough(self) -> bool:
        """Whether there are enough samples to compare the eigenvalue: ten per dimension.

        With n samples the largest eigenvalue of a sample's second moment is up to (1 + √(dim / n))²
        above the true value: a factor of 1.7 with ten per dimension, 4 with one.
        """
        return self.largest_eigenvalue is not None and self.samples >= SAMPLES_PER_DIM * self.dim

    def to_json(self) -> dict[str, Any]:
        """Return the measures as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the measures from the ``guard`` entry of a description.

        Raises:
            InputError: an entry is missing or has a wrong type.
        """
        try:
            eigenvalue = value.get("largest_eigenvalue")
            return cls(
                int(value["size"]),
                None if eigenvalue is None else float(eigenvalue),
                float(value.get("samples", 0.0)),
                int(value.get("dim", 0)),
                str(value.get("kind", "")),
                str(value.get("unmeasured", "")),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"invalid measures of a snapshot ({error!r}): {value!r:.200}"
            raise InputError(message) from None


def measure(state: State) -> Measures:
    """Return the measures of a state for the publish guard.

    Raises:
        VerificationError: the header of the state is unreadable.

    >>> from steersman.policies import LinUCB
    >>> policy = LinUCB(["a", "b"], dim=2)
    >>> policy.learn([1.0, 1.0], "a", 0.5)
    >>> found = measure(policy.state())
    >>> found.kind, round(found.largest_eigenvalue, 6), found.enough
    ('lin_ucb 2x2', 2.0, False)
    """
    header, found = state_header(state), spectrum(state)
    rows = len(header["config"].get("actions", ()))
    shape = f" {rows}x{found.dim}" if _has_moments(state) else ""
    return Measures(
        size=sum(array.nbytes for array in state.values()),
        largest_eigenvalue=found.value,
        samples=found.samples,
        dim=found.dim,
        kind=f"{header.get('algorithm')}{shape}",
        unmeasured=found.unmeasured,
    )


def guard(new: Measures, history: Sequence[Measures]) -> list[str]:
    """Return the reasons not to publish a snapshot; empty if it passes.

    Size and largest eigenvalue must be within a factor of two of the median of the last twenty
    snapshots of the same kind. The eigenvalue is per sample, and compared only if both have ten
    samples per dimension. A size below 64 KiB is never too large, because a new policy gains keys
    quickly. The first snapshot of its kind passes.

    Assumes a constant context distribution: after a lasting traffic change the guard refuses
    versions until a person forces one, and then the median follows.

    >>> earlier = [Measures(10**6, 1.0, 5000.0, 64, "lin_ts 3x64")] * 3
    >>> guard(Measures(10**6, 1.2, 9000.0, 64, "lin_ts 3x64"), earlier)
    []
    >>> print(guard(Measures(10**6, 9.0, 9000.0, 64, "lin_ts 3x64"), earlier)[0])
    the largest eigenvalue per sample is 9; median of 3 earlier snapshots: 1; allowed: 0.5 to 2
    """
    alike = [old for old in history if old.kind == new.kind][-WINDOW:]
    sizes = [float(max(old.size, SMALL)) for old in alike]
    reasons = _outside("size in bytes", float(max(new.size, SMALL)), sizes)
    values = [old.largest_eigenvalue or 0.0 for old in alike if old.enough]
    if new.enough:
        value = new.largest_eigenvalue or 0.0
        reasons += _outside("largest eigenvalue per sample", value, values)
    return reasons


def _outside(name: str, value: float, history: Sequence[float]) -> list[str]:
    if not history:
        return []
    middle = median(history)
    low, high = middle / FACTOR, middle * FACTOR
    if low <= value <= high:
        return []
    reason = (
        f"the {name} is {value:.6g}; median of {len(history)} earlier snapshots: {middle:.6g}; "
        f"allowed: {low:.6g} to {high:.6g}"
    )
    return [reason]
