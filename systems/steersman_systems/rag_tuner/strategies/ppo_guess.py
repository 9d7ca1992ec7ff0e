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
"""Log odds of making, or not making, a move that leads towards what is believed to be the best."""
_TOWARDS = 0.72
"""Takes the mean of an ordered part's distribution, 1.5 tanh of it, about to the step itself."""
_NARROW = -3.2
"""Gives an ordered part's distribution a width of .2: one or two neighbours."""


def first_guess(features: Features, parts: Sequence[Part]) -> list[Guess]:
    """Return, for each part, the linear map from scaled features that PPO starts from.

    All parts move at once towards what is believed to be the best of all configurations: in a drawn
    world while it explores, which is Thompson sampling, in the expected one otherwise. Where
    nothing is known, it stands still. From a random start, most of the training went into learning
    that much; from one that looked part by part, policies stuck where parts depend on each other.

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
    """Of each value but standing still, the feature that says whether the best has it."""
    named = {"variant": features.space.variants, "prompt": features.space.prompts}
    if part.name in named:
        return [f"towards_{part.name}={value}" for value in named[part.name]]
    return [f"towards_{part.name}"]  # a switch is turned
