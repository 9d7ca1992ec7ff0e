"""Logged distribution of a decision row.

For named arms the row has every probability. A mixed action has thousands of configurations, so the
row has the marginal of every value of every part and the exact propensity of the drawn
configuration. The rest can be recomputed from the row's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.spec.actions import Mixed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.spec.actions import Actions

    Floats = NDArray[np.float64]


class LoggedDistribution:
    """Encoder of the column ``distribution``.

    Args:
        actions: declared actions.

    >>> from steersman.spec.actions import Mixed
    >>> parts = {"k": {"type": "integer", "low": 1, "high": 2}, "on": {"type": "boolean"}}
    >>> mixed = Mixed.model_validate({"kind": "mixed", "parts": parts})
    >>> LoggedDistribution(mixed).of(np.array([0.5, 0.25, 0.125, 0.125])).tolist()
    [0.75, 0.25, 0.625, 0.375]
    >>> mixed.marginals
    ('k=1', 'k=2', 'on=false', 'on=true')
    """

    def __init__(self, actions: Actions) -> None:
        self._columns: tuple[NDArray[np.intp], ...] = ()
        self._count = 0
        if isinstance(actions, Mixed):
            columns = []
            for part, name in enumerate(actions.order):
                grid = actions.parts[name].grid
                place = {value: self._count + number for number, value in enumerate(grid)}
                columns.append([place[values[part]] for values in actions.configurations])
                self._count += len(grid)
            self._columns = tuple(np.array(column, np.intp) for column in columns)

    def of(self, distribution: Floats) -> NDArray[np.float32]:
        """Return the logged form of a distribution.

        Returns:
            float32 marginals as in `Mixed.marginals`; for other actions, all probabilities.
        """
        if not self._columns:
            return distribution.astype(np.float32)
        found = np.zeros(self._count)
        for column in self._columns:
            found += np.bincount(column, weights=distribution, minlength=self._count)
        return found.astype(np.float32)

    def of_many(self, distributions: Sequence[Floats]) -> list[list[float]]:
        """Return the logged form of several distributions over the same actions."""
        if not self._columns:
            every: list[list[float]] = np.array(distributions, dtype=np.float32).tolist()
            return every
        return [self.of(one).tolist() for one in distributions]
