"""Labelled rows for supervised training of a scorer."""

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
    """Actions of consecutive steps with labels.

    Args:
        rows: (m, columns) action features.
        targets: (m,) label of each action, in [0, 1].
        weights: (m,) sample weights, ≥ 0.
        sizes: (steps,) number of actions per step, summing to m.

    Raises:
        InputError: shapes do not match, or targets or weights are out of range.
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
        return len(self.sizes)

    @classmethod
    def joined(cls, parts: Sequence[Examples]) -> Examples:
        """Return the concatenation of examples."""
        return cls(
            np.concatenate([one.rows for one in parts]),
            np.concatenate([one.targets for one in parts]),
            np.concatenate([one.weights for one in parts]),
            np.concatenate([one.sizes for one in parts]),
        )

    @classmethod
    def step(cls, rows: Floats, targets: Floats, weight: float = 1.0) -> Examples:
        """Return the actions of one step with equal weights."""
        return cls(rows, targets, np.full(len(rows), weight), np.array([len(rows)], np.int64))
