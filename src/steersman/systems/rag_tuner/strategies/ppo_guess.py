"""What a sequential policy does before it has learned anything: it follows what is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.learn.ppo import Part
    from steersman.systems.rag_tuner.features import Features, Scaling

    Floats = NDArray[np.float64]
    Guess = tuple[Floats, Floats]

_TEMPERATURE = 0.01
"""A gain of so much makes a move e times as likely as standing still."""
_STILL = 2.0
_TOWARDS = 0.72
"""Takes the mean of an ordered part's distribution, 1.5 tanh of it, about to the step itself."""
_NARROW = -3.2
"""Gives an ordered part's distribution a width of .2: one or two neighbours."""


def first_guess(features: Features, scaling: Scaling, parts: Sequence[Part]) -> list[Guess]:
    """Return, for each part, the linear map from scaled features that PPO starts from.

    Steps go where the gain is believed to be the greatest, other moves are as likely as the gain
    of each says, and standing still is likelier where nothing is known. From a random start, most
    of the training went into learning that much.

    Args:
        features: What is seen; without the group ``belief`` there is nothing to follow.
        scaling: Of them.
        parts: Of the moves of the same space.

    Returns:
        (outputs, features) weights and (outputs,) biases.

    No doctest: ``tests/systems/rag_tuner/strategies/test_ppo_sequential.py`` shows it.

    Source: Silver et al., Residual Policy Learning (2018), for learning on top of a policy.
    """
    place = {name: number for number, name in enumerate(features.names)}
    found = []
    for part in parts:
        weights, biases = np.zeros((part.outputs, len(features))), np.zeros(part.outputs)
        if part.ordered:
            biases[1] = _NARROW
            weights[0, place[f"best_step_{part.name}"]] = _TOWARDS
        else:
            biases[0] = _STILL
            for value, names in enumerate(_gains(features, part), 1):
                for name in names:
                    column = place[name]
                    weights[value, column] = scaling.spread[column] / _TEMPERATURE
                    biases[value] += scaling.median[column] / _TEMPERATURE
        found.append((weights, biases))
    return found


def _gains(features: Features, part: Part) -> list[list[str]]:
    """Of each value but standing still, the features that add up to its gain."""
    named = {"variant": features.space.variants, "prompt": features.space.prompts}
    if part.name in named:
        return [[f"gain_{part.name}={value}"] for value in named[part.name]]
    # A switch is turned: one of the two is as it is, with no gain.
    return [[f"gain_{part.name}={value}" for value in (False, True)]]
