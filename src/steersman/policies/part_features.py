"""Features of configurations: parts and pairs of parts.

Every column has a closed form, so that the sums of a state mean the same on every machine: a basis
that a factorisation finds would be another one wherever two pivots tie.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steersman.errors import InputError
from steersman.policies.space import space_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST_FEATURES = 512
"""Of a configuration, without its context: more and a decision would take too long."""
_WAVES = 4
_LEVEL, _PAIR = 25.0, 0.3


class PartFeatures(NamedTuple):
    """Rows of all configurations of a mixed action; the prior variance is in their length.

    Attributes:
        rows: (K, P); the level of all, what each part does, what each pair of parts does.
        alone: how many columns, from the second on, are of one part by itself.
    """

    rows: Floats
    alone: int


@lru_cache(maxsize=8)  # 40 MB each at the most
def part_features(key: str, pairs: bool, prior_var: float) -> PartFeatures:  # noqa: FBT001
    """Return the features of every configuration.

    A categorical part has one orthogonal contrast less than it has values, so that all values are
    alike beforehand; a number has the first four cosine waves over its scale, the shorter the less
    likely. A pair of parts has the products of their columns.

    Args:
        key: of a space, whose configurations are the rows; see `space.key_of`.
        pairs: whether there are columns of pairs.
        prior_var: variance of what one part does, > 0.

    Returns:
        Arrays that are shared: they must not be written to.

    Raises:
        InputError: no such space, or too many features.

    >>> part_features('[{"on": [false, true]}, {}, []]', True, 0.01).rows.tolist()
    [[0.5, 0.1], [0.5, -0.1]]

    Source:
        A truncated analysis-of-variance decomposition: Durrande, Ginsbourger, Roustant, Carraro
        (2013), "ANOVA kernels and RKHS of zero mean functions", section 2; contrasts of Helmert.
    """
    space = space_of(key)
    kinds = list(zip(space.grids, space.scales, strict=True))
    _check_size([_count(*kind) for kind in kinds], pairs=pairs)
    places = np.array(space.places, np.intp)
    columns = [_columns(*kind)[places[:, part]] for part, kind in enumerate(kinds)]
    scale = np.sqrt(prior_var)
    level = np.full((len(places), 1), scale * np.sqrt(_LEVEL))
    blocks = [level, *(scale * block for block in columns)]
    if pairs:
        blocks += [
            scale * np.sqrt(_PAIR) * (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)
            for one, other in combinations(columns, 2)
        ]
    rows = np.ascontiguousarray(np.concatenate(blocks, axis=1))
    rows.flags.writeable = False
    return PartFeatures(rows, sum(block.shape[1] for block in columns))


def part_columns(key: str, prior_var: float) -> list[Floats]:
    """Return what the values of each part are known by, (values, columns) of each.

    Args:
        key: of a space.
        prior_var: variance of what one part does, > 0.

    >>> part_columns('[{"on": [false, true]}, {}, []]', 0.01)[0].round(3).tolist()
    [[0.1], [-0.1]]
    """
    space = space_of(key)
    scale = np.sqrt(prior_var)
    kinds = zip(space.grids, space.scales, strict=True)
    return [scale * _columns(*kind) for kind in kinds]


def level_scale(prior_var: float) -> float:
    """Return the column of the level of all.

    Args:
        prior_var: variance of what one part does.

    >>> level_scale(0.01)
    0.5
    """
    return float(np.sqrt(prior_var * _LEVEL))


def pair_scale(prior_var: float) -> float:
    """Return what the product of two parts' columns is multiplied by.

    Args:
        prior_var: variance of what one part does, which is in both columns.

    >>> round(pair_scale(0.3), 3)
    1.0
    """
    return float(np.sqrt(_PAIR / prior_var))


def _check_size(counts: Sequence[int], *, pairs: bool) -> None:
    alone = sum(counts)
    together = (alone**2 - sum(count**2 for count in counts)) // 2 if pairs else 0
    if 1 + alone + together > MOST_FEATURES:
        raise InputError(
            f"the parts have {1 + alone + together:,} features; allowed: {MOST_FEATURES} or "
            "fewer: give fewer categorical values, or declare pairs: false"
        )


def _count(grid: Sequence[Any], scale: str) -> int:
    """Return how many columns a part has."""
    return min(_WAVES, len(grid) - 1) if scale else len(grid) - 1


def _columns(grid: Sequence[Any], scale: str) -> Floats:
    """Return (values, columns) with rows of length 1, in the mean over the values."""
    found = _waves(grid, scale) if scale else _contrasts(len(grid))
    length: float = (found**2).sum(axis=1).mean()
    return np.asarray(found / np.sqrt(length))


def _contrasts(count: int) -> Floats:
    """Return the contrasts of Helmert: each value after the first against those before it."""
    found = np.zeros((count, count - 1))
    for column in range(count - 1):
        before = column + 1
        found[:before, column] = 1.0
        found[before, column] = -float(before)
        found[:, column] /= np.sqrt(before * (before + 1.0))
    return found


def _waves(grid: Sequence[Any], scale: str) -> Floats:
    scaled = np.array([log(value) if scale == "log" else float(value) for value in grid])
    share = (scaled - scaled[0]) / (scaled[-1] - scaled[0])
    counts = np.arange(1, _count(grid, scale) + 1)
    return np.asarray(np.cos(np.pi * share[:, None] * counts) / counts)
