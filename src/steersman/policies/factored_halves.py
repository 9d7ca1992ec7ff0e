"""Fast scores of all configurations for all posterior draws.

The parts form two groups, so each configuration has two halves. Its score is the sum of the left
half, the right half, and the pairs across the halves. A context changes only the few dozen halves.
The pairs are computed once per state, so a decision needs few multiplications.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.policies.part_features import level_scale, pair_scale, part_columns
from steersman.policies.space import space_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TIE = 1e-12
"""Worths that differ by no more are a tie."""
_AT_ONCE = 8  # draws whose sums stay in the processor's cache


class _Half(NamedTuple):
    """A group of parts.

    Attributes:
        rows: (N, P) features of its combinations within the group.
        at: (P,) indices of the weights of these columns.
        across: (N, C) features for pairs with the other group.
    """

    rows: Floats
    at: NDArray[np.intp]
    across: Floats

    def worth(self, weights: Floats) -> Floats:
        """Return (M, N) what each combination does by itself, by (·, M) weights."""
        found: Floats = weights[self.at].T @ self.rows.T
        return found


class Halves:
    """Configurations of a space, split into halves.

    Args:
        key: of the space; see `space.key_of`.
        pairs: whether pairs of parts have weights.
        prior_var: as for `part_features`, whose columns these weights are of.

    >>> from steersman.policies.part_features import part_features
    >>> key = '[{"a": [1, 2], "b": ["x", "y", "z"]}, {}, []]'
    >>> halves, rows = Halves(key, True, 0.01), part_features(key, True, 0.01).rows
    >>> weights = np.arange(float(rows.shape[1]))[:, None]
    >>> found = halves.worth(halves.across(weights), weights)
    >>> bool(np.allclose(found[0], rows @ weights[:, 0]))
    True
    """

    def __init__(self, key: str, pairs: bool, prior_var: float) -> None:  # noqa: FBT001 (as part_features)
        space = space_of(key)
        sizes = [len(grid) for grid in space.grids]
        columns = part_columns(key, prior_var)
        counts = [each.shape[1] for each in columns]
        ends = np.cumsum([1, *counts])
        alone = [np.arange(end - count, end) for end, count in zip(ends[1:], counts, strict=True)]
        places: dict[tuple[int, int], NDArray[np.intp]] = {}
        if pairs:
            begin = int(ends[-1])
            for one, other in combinations(range(len(sizes)), 2):
                shape = counts[one], counts[other]
                places[one, other] = begin + np.arange(prod(shape)).reshape(shape)
                begin += prod(shape)
        cut = _cut(sizes)
        scale = pair_scale(prior_var)
        groups = range(cut), range(cut, len(sizes))
        self._left, self._right = (_half(g, sizes, columns, alone, places, scale) for g in groups)
        # The level of all is the left half's.
        level = np.full((len(self._left.rows), 1), level_scale(prior_var))
        self._left = self._left._replace(
            rows=np.concatenate([level, self._left.rows], axis=1),
            at=np.concatenate([[0], self._left.at]),
        )
        self._pairs_at = np.zeros((sum(counts[:cut]), sum(counts[cut:])), np.intp)
        offsets = np.cumsum([0, *counts])
        for (one, other), block in places.items():
            if one < cut <= other:
                down, along = offsets[one], offsets[other] - offsets[cut]
                self._pairs_at[down : down + block.shape[0], along : along + block.shape[1]] = block
        self._scale = scale if pairs else 0.0
        shape = len(self._left.rows), len(self._right.rows)
        at = np.array(space.places, np.intp).T
        self.places: NDArray[np.intp] = np.ravel_multi_index(tuple(at), sizes)
        """(K,) of each configuration among all combinations, left halves first."""
        self._barred = np.full(prod(sizes), -np.inf)
        self._barred[self.places] = 0.0
        self._barred = self._barred.reshape(shape)
        self._none_barred = len(self.places) == prod(sizes)

    @property
    def work(self) -> int:
        """How many multiplications, or sums where pairs have no weights, `across` takes a draw."""
        columns = self._pairs_at.shape if self._scale else (0, 0)
        left, right = len(self._left.rows), len(self._right.rows)
        return left * columns[1] * (columns[0] + right) + left * right

    def across(self, weights: Floats) -> Floats:
        """Return what pairs across do, for each draw: what no context changes.

        Args:
            weights: (P, M) of the features of configurations.

        Returns:
            (M, left halves, right halves); minus infinity where a combination is barred.
        """
        draws = weights.shape[1]
        shape = draws, len(self._left.rows), len(self._right.rows)
        if not self._scale or not self._pairs_at.size:
            found = np.zeros(shape)
        else:
            own = self._scale * weights[self._pairs_at]
            given = np.tensordot(self._left.across, own, axes=1)  # (left, C, M)
            flat = given.transpose(2, 0, 1).reshape(-1, self._pairs_at.shape[1])
            found = (flat @ self._right.across.T).reshape(shape)
        if not self._none_barred:
            found += self._barred
        return found

    def worth(self, across: Floats, weights: Floats) -> Floats:
        """Return (M, K) what each configuration is worth.

        Args:
            across: of the same weights, but for those that a context changes.
            weights: (P, M) in this context.
        """
        found = across + self._right.worth(weights)[:, None, :]
        found += self._left.worth(weights)[:, :, None]
        chosen: Floats = found.reshape(len(found), -1)[:, self.places]
        return chosen

    def shares(self, across: Floats, weights: Floats, eligible: NDArray[np.bool_] | None) -> Floats:
        """Return how often each configuration is a draw's best, (K,) of sum M; ties share a draw.

        Args:
            across: of the same weights, but for those that a context changes.
            weights: (P, M) in this context.
            eligible: (K,) which may be chosen; None: all.
        """
        left, right = self._left.worth(weights), self._right.worth(weights)
        away = None if eligible is None else self._away(eligible)
        found = np.zeros(self._barred.size)
        for begin in range(0, len(across), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            draw, place = _best(across[some], left[some], right[some], away)
            found += np.bincount(place, 1.0 / np.bincount(draw)[draw], len(found))
        chosen: Floats = found[self.places]
        return chosen

    def _away(self, eligible: NDArray[np.bool_]) -> Floats:
        away: Floats = np.full(self._barred.size, -np.inf)
        away[self.places[eligible]] = 0.0
        return away.reshape(self._barred.shape)


@lru_cache(maxsize=8)
def halves_of(key: str, pairs: bool, prior_var: float) -> Halves:  # noqa: FBT001 (as part_features)
    """Return the halves of a space, made once.

    Args:
        key: as for `Halves`.
        pairs: likewise.
        prior_var: likewise.
    """
    return Halves(key, pairs, prior_var)


def _best(
    across: Floats, left: Floats, right: Floats, away: Floats | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    total = across + right[:, None, :]
    if away is not None:
        total += away
    tops = total.max(axis=2) + left
    best = tops.max(axis=1) - TIE
    draw, half = np.nonzero(tops >= best[:, None])
    rows = total[draw, half] + left[draw, half][:, None]
    which, other = np.nonzero(rows >= best[draw][:, None])
    return draw[which], half[which] * total.shape[2] + other


def _cut(sizes: Sequence[int]) -> int:
    """Return how many parts are left ones: halves of about the same number are the fewest."""
    return min(range(len(sizes)), key=lambda cut: prod(sizes[:cut]) + prod(sizes[cut:]))


def _half(
    group: range,
    sizes: Sequence[int],
    columns: Sequence[Floats],
    alone: Sequence[NDArray[np.intp]],
    places: dict[tuple[int, int], NDArray[np.intp]],
    scale: float,
) -> _Half:
    count = prod(sizes[part] for part in group)
    grid = np.indices([sizes[part] for part in group]).reshape(len(group), count)
    own = {part: columns[part][grid[n]] for n, part in enumerate(group)}
    across = np.concatenate([np.zeros((count, 0)), *own.values()], axis=1)
    rows, at = [across], [np.zeros(0, np.intp), *(alone[part] for part in group)]
    for one, other in combinations(group, 2):
        if (one, other) in places:
            both = own[one][:, :, None] * own[other][:, None, :]
            rows.append(scale * both.reshape(count, -1))
            at.append(places[one, other].ravel())
    return _Half(np.concatenate(rows, axis=1), np.concatenate(at), across)
