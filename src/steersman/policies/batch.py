"""Batch decisions, bit-identical to single decisions.

Batch operations work element by element, or sum in the same order, so rounding is equal. BLAS
products stay one call per row (`ArmSums`), because a matrix product sums in another order. The
batch saves call overhead: four fifths of a decision at d = 64 and K = 4.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from steersman.policies import inputs
from steersman.policies.choice import Choice, all_of, mix_reserved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_MODULE: type = ModuleType  # `random` and `numpy.random` are modules, not generators


def share_ties_of_rows(scores: Floats, *, tolerance: float) -> Floats:
    """Return the greedy distributions (n, K) of scores (n, K): `choice.share_ties` for each row."""
    best = scores.max(axis=1)
    tied = scores >= (best - tolerance * np.maximum(1.0, np.abs(best)))[:, None]
    shared: Floats = tied / np.count_nonzero(tied, axis=1)[:, None]
    return shared


def choices(
    actions: Sequence[str],
    scores: Floats,
    distributions: Floats,
    *,
    floor: float,
    reserved: Floats | None,
    rng: np.random.Generator,
) -> list[Choice]:
    """Return the choices that `ChoicePolicy.decide` would make of these scores, row by row.

    Args:
        actions: K names.
        scores: (n, K).
        distributions: (n, K), before the floor.
        floor: total mass spread evenly.
        reserved: (K,) shares of new actions, or None.
        rng: gives one uniform for each row.
    """
    mixed = distributions
    if reserved is not None:
        mixed = np.array([mix_reserved(row, reserved) for row in mixed])
    if floor:
        mixed = (1.0 - floor) * mixed + floor / len(actions)
    try:
        uniforms = rng.random(len(mixed))
    except (AttributeError, TypeError):  # the module `random` takes no number
        raise inputs.no_generator(rng) from None
    if type(rng) is _MODULE:
        raise inputs.no_generator(rng)
    cumulative = mixed.cumsum(axis=1)
    below = cumulative <= (uniforms * cumulative[:, -1])[:, None]
    places = np.count_nonzero(below, axis=1)
    eligible = all_of(len(actions))
    indexes, propensities = _drawn(mixed, places)
    return [
        Choice(actions[index], p, row, row_scores, eligible, u)
        for index, p, row, row_scores, u in zip(
            indexes, propensities, mixed, scores, uniforms.tolist(), strict=True
        )
    ]


def _drawn(mixed: Floats, places: NDArray[np.intp]) -> tuple[list[int], list[float]]:
    """Return the places that were drawn, and their probabilities."""
    count = mixed.shape[1]
    for row in (places == count).nonzero()[0]:  # rounding left the uniform above the last sum
        places[row] = np.flatnonzero(mixed[row])[-1]
    return places.tolist(), mixed[np.arange(len(mixed)), places].tolist()
