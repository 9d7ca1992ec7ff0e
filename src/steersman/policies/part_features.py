"""What a model knows the configurations of a mixed action by: their parts, and pairs of parts.

Every column has a closed form, so that the sums of a state mean the same on every machine: a basis
that a factorisation finds would be another one wherever two pivots tie.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.spec import Mixed, Part

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

    No doctest: `part_features` makes it.
    """

    rows: Floats
    alone: int


@lru_cache(maxsize=32)
def part_features(key: str, pairs: bool, prior_var: float) -> PartFeatures:  # noqa: FBT001
    """Return the features of every configuration.

    A categorical part has one orthogonal contrast less than it has values, so that all values are
    alike beforehand; a number has the first four cosine waves over its scale, the shorter the less
    likely. A pair of parts has the products of their columns.

    Args:
        key: JSON of a `Mixed`, whose ``configurations`` are the rows.
        pairs: whether there are columns of pairs.
        prior_var: variance of what one part does, > 0.

    Returns:
        Arrays that are shared: they must not be written to.

    Raises:
        InputError: no such actions, or too many features.

    >>> key = '{"kind": "mixed", "parts": {"on": {"type": "boolean"}}}'
    >>> part_features(key, True, 0.01).rows.tolist()
    [[0.5, 0.1], [0.5, -0.1]]

    Source:
        A truncated analysis-of-variance decomposition: Durrande, Ginsbourger, Roustant, Carraro
        (2013), "ANOVA kernels and RKHS of zero mean functions", section 2; contrasts of Helmert.
    """
    actions = space_of(key)
    _check_size([_count(part) for part in actions.parts.values()], pairs=pairs)
    columns = [
        _columns(actions.parts[name])[_places(actions, place)]
        for place, name in enumerate(actions.order)
    ]
    scale = np.sqrt(prior_var)
    level = np.full((len(actions.configurations), 1), scale * np.sqrt(_LEVEL))
    blocks = [level, *(scale * block for block in columns)]
    if pairs:
        blocks += [
            scale * np.sqrt(_PAIR) * (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)
            for one, other in combinations(columns, 2)
        ]
    rows = np.ascontiguousarray(np.concatenate(blocks, axis=1))
    rows.flags.writeable = False
    return PartFeatures(rows, sum(block.shape[1] for block in columns))


@lru_cache(maxsize=32)
def space_of(key: str) -> Mixed:
    """Return mixed actions.

    Args:
        key: their JSON.

    Raises:
        InputError: it is none.

    >>> space_of('{"kind": "mixed", "parts": {"on": {"type": "boolean"}}}').names
    ('{"on":false}', '{"on":true}')
    """
    from steersman.spec import Mixed  # noqa: PLC0415 (its validator is needed here alone)

    try:
        return Mixed.model_validate_json(key)
    except ValueError as error:
        message = f"the space is none of mixed actions: {' '.join(str(error).split()):.300}"
        raise InputError(message) from None


def _check_size(counts: Sequence[int], *, pairs: bool) -> None:
    alone = sum(counts)
    together = (alone**2 - sum(count**2 for count in counts)) // 2 if pairs else 0
    if 1 + alone + together > MOST_FEATURES:
        raise InputError(
            f"the parts have {1 + alone + together:,} features; allowed are {MOST_FEATURES} or "
            "fewer: give fewer categorical values, or declare pairs: false"
        )


def _places(actions: Mixed, part: int) -> NDArray[np.intp]:
    """Return the place in its grid of one part's value, for every configuration."""
    grid = actions.parts[actions.order[part]].grid
    place = {value: number for number, value in enumerate(grid)}
    return np.array([place[values[part]] for values in actions.configurations], np.intp)


def _count(part: Part) -> int:
    """Return how many columns a part has."""
    return part.count - 1 if getattr(part, "scale", None) is None else min(_WAVES, part.count - 1)


def _columns(part: Part) -> Floats:
    """Return (values, columns) with rows of length 1, in the mean over the values."""
    scale = getattr(part, "scale", None)
    found = _contrasts(part.count) if scale is None else _waves(part, scale)
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


def _waves(part: Part, scale: str) -> Floats:
    grid = [float(value) for value in part.grid]
    scaled = np.array([log(value) for value in grid] if scale == "log" else grid)
    share = (scaled - scaled[0]) / (scaled[-1] - scaled[0])
    counts = np.arange(1, _count(part) + 1)
    return np.asarray(np.cos(np.pi * share[:, None] * counts) / counts)
