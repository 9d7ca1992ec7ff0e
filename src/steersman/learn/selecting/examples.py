"""Rows with what is right about them: what supervised learning of a scorer takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """The actions of some steps, one step after the other.

    Args:
        rows: (m, columns) of the actions.
        targets: (m,) how right each is, in [0, 1].
        weights: (m,) how much each counts, ≥ 0.
        sizes: (steps,) actions of each step; they sum to m.

    Raises:
        InputError: shapes that do not fit, targets or weights out of their range.
    """

    rows: Floats
    targets: Floats
    weights: Floats
    sizes: NDArray[np.int64]

    def __post_init__(self) -> None:
        count = len(self.rows)
        if (self.sizes < 1).any():
            message = f"a step has {int(self.sizes.min())} actions; leave out steps without actions"
            raise InputError(message)
        if not len(self.targets) == len(self.weights) == count == int(self.sizes.sum()):
            raise InputError(
                f"{count} rows, {len(self.targets)} targets, {len(self.weights)} weights, "
                f"{int(self.sizes.sum())} in steps; the counts must be equal"
            )
        if count and not (0.0 <= self.targets.min() <= self.targets.max() <= 1.0):
            raise InputError("a target is outside [0, 1] or not a number")
        if count and not (self.weights.min() >= 0.0 and np.isfinite(self.weights).all()):
            raise InputError("a weight is below 0 or not finite")

    def __len__(self) -> int:
        """Return how many steps there are."""
        return len(self.sizes)

    @classmethod
    def joined(cls, parts: Sequence[Examples]) -> Examples:
        """Return all of some examples.

        Args:
            parts: one or more.
        """
        return cls(
            np.concatenate([one.rows for one in parts]),
            np.concatenate([one.targets for one in parts]),
            np.concatenate([one.weights for one in parts]),
            np.concatenate([one.sizes for one in parts]),
        )

    @classmethod
    def step(cls, rows: Floats, targets: Floats, weight: float = 1.0) -> Examples:
        """Return the actions of one step, all of one weight.

        Args:
            rows: (k, columns).
            targets: (k,).
            weight: of each.
        """
        return cls(rows, targets, np.full(len(rows), weight), np.array([len(rows)], np.int64))
