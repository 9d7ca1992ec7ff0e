"""Initial behaviour of a sequential policy before training: follows the posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.training.ppo.action_parts import Part
    from steersman_systems.rag_tuner.features import Features

    Floats = NDArray[np.float64]
    Guess = tuple[Floats, Floats]

_SURE = 4.0
"""Log odds of a move towards the believed best configuration."""
_TOWARDS = 0.72
"""Scale that brings the mean of an ordered part, 1.5 tanh of it, close to the step."""
_NARROW = -3.2
"""Log width of .2 of an ordered part's distribution: one or two neighbours."""


def first_guess(features: Features, parts: Sequence[Part]) -> list[Guess]:
    """Return PPO's initial linear map from scaled features, for each part.

    All parts move at once towards the best configuration: of a posterior draw during exploration
    (Thompson sampling), else of the posterior mean. Without results nothing moves. From random
    weights, most of the training went into learning this. A start that considers single parts got
    stuck where parts interact.

    Source: Silver et al., Residual Policy Learning (2018), for learning on top of a policy.
    """
    place = {name: number for number, name in enumerate(features.names)}
    found = []
    for part in parts:
        weights, biases = np.zeros((part.outputs, len(features))), np.zeros(part.outputs)
        if part.ordered:
            biases[1] = _NARROW
            weights[0, place[f"towards_{part.name}"]] = _TOWARDS
        else:
            for value, name in enumerate(_values(features, part), 1):
                weights[value, place[name]] = 2 * _SURE
                biases[value] = -_SURE
        found.append((weights, biases))
    return found


def _values(features: Features, part: Part) -> list[str]:
    """Return, for each value except the null move, the feature that marks it as the best one's."""
    named = {"variant": features.space.variants, "prompt": features.space.prompts}
    if part.name in named:
        return [f"towards_{part.name}={value}" for value in named[part.name]]
    return [f"towards_{part.name}"]  # a toggle
