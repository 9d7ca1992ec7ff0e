"""Refit of the reward model on each bootstrap sample, from sums over blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.ope.reward_models import Sums, fit, group_sums, passes_are_quicker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Refit:
    """The direct method's value as a function of how often each block was drawn.

    Args:
        data: The log.
    """

    data: LoggedData

    @property
    def columns(self) -> int:
        """Sums that one block has to keep."""
        width = 1 if self.data.contexts is None else self.data.contexts.shape[1] + 1
        return int(self.data.target.shape[1]) * width * (width + 2) + 1

    def block_sums(self, blocks: NDArray[np.int64], count: int) -> Floats:
        """Return everything that the value needs of each block.

        Args:
            blocks: Block of each row, in [0, count), shape (n,).
            count: Number of blocks.

        Returns:
            Gram matrices, moments and target sums of all actions, and rows: (count, columns).
        """
        sums = group_sums(self.data, blocks, count)
        parts = [sums.gram.reshape(count, -1), sums.moment.reshape(count, -1)]
        rows = np.bincount(blocks, minlength=count).astype(np.float64)
        return np.column_stack([*parts, self._target_sums(blocks, count), rows])

    def values(self, totals: Floats) -> Floats:
        """Return the refitted value of each bootstrap sample.

        Args:
            totals: Summed block sums of each sample, shape (samples, columns).

        Returns:
            Values, shape (samples,).
        """
        actions = self.data.target.shape[1]
        width = 1 if self.data.contexts is None else self.data.contexts.shape[1] + 1
        cuts = np.cumsum([actions * width * width, actions * width, actions * width])
        gram, moment, target, rows = np.split(totals, cuts, axis=1)
        theta = fit(
            Sums(
                gram.reshape(-1, actions, width, width),
                moment.reshape(-1, actions, width),
            )
        )
        summed = (theta * target.reshape(theta.shape)).sum(axis=(1, 2))
        return np.asarray(summed / rows[:, 0])

    def _target_sums(self, blocks: NDArray[np.int64], count: int) -> Floats:
        """Return the sums of pi(a|x) (1, x) over each block: (count, K * width)."""
        target, features = self.data.target, np.ones((len(blocks), 1))
        if self.data.contexts is not None:
            features = np.column_stack([features, self.data.contexts])
        summed = np.empty((count, target.shape[1], features.shape[1]))
        if passes_are_quicker(summed[0].size, len(blocks), count):
            for at in np.ndindex(summed[0].shape):
                products = target[:, at[0]] * features[:, at[1]]
                summed[:, *at] = np.bincount(blocks, weights=products, minlength=count)
            return summed.reshape(count, -1)
        order = np.argsort(blocks, kind="stable")
        edges = np.searchsorted(blocks[order], np.arange(count + 1))
        target, features = target[order], features[order]
        for block in range(count):
            rows = slice(edges[block], edges[block + 1])
            summed[block] = target[rows].T @ features[rows]
        return summed.reshape(count, -1)
