"""Publish guard: refuses a snapshot whose size or scale changes suddenly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Self

from steersman.errors import InputError
from steersman.points.eigenvalues import spectrum
from steersman.points.state_header import state_header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    State = Mapping[str, NDArray[Any]]

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
        unmeasured: reason why there is no eigenvalue, else empty.
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
    shape = f" {len(header['config'].get('actions', ()))}x{found.dim}" if "gram" in state else ""
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
