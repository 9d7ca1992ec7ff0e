"""Predicted rewards of neighbouring configurations, for a policy that moves step by step.

The state of requirement 000 has the results of the last batches, but not their configurations, so
it does not show in which direction to move. This adds a posterior of every configuration's reward;
the policy reads the part around the live configuration.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from math import log1p
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steersman_systems.rag_tuner.configuration import FUSED, Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Space
    from steersman_systems.rag_tuner.strategies.belief import Belief

    Floats = NDArray[np.float64]

STEPS_K = (-16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16)
STEPS_WEIGHT = (-8, -4, -2, -1, 0, 1, 2, 4, 8)
"""Steps on the grid of weights."""
STEPS = {"k": STEPS_K, "fusion_weight": STEPS_WEIGHT}


class _Around(NamedTuple):
    """Moves of one part: indexes of the resulting configurations, and index of the null move."""

    places: NDArray[np.intp]
    still: int


class Outlook:
    """Posterior features of the live configuration's neighbours, and of the best configuration.

    For k and the fusion weight: the step with the greatest expected gain (-1 for the longest
    down to 1 for the longest up), this gain and its standard deviation. For every other value of
    the other parts: the gain and its standard deviation.

    A climb part by part stops where only a change of two parts helps. So there are also features
    of the best configuration: the step towards its k and weight, the switches to toggle, its
    variant and prompt, and its gain.

    Args:
        space: Allowed configurations.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> Outlook(load_policy_config().space).names[:4]
    ('told', 'best_step_k', 'gain_k', 'unsure_k')
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._stepped = tuple(
            name for name, of in (("k", space.ks), ("fusion_weight", space.weights)) if len(of) > 1
        )
        others: dict[str, Sequence[Any]] = {
            "variant": space.variants, "rerank": space.rerank,
            "expansion": space.expansion, "prompt": space.prompts,
        }  # fmt: skip
        self._chosen = tuple(
            (name, value) for name, of in others.items() if len(of) > 1 for value in of
        )
        self._switches = tuple(dict.fromkeys(n for n, of in self._chosen if isinstance(of, bool)))
        self._named_ones = tuple((n, of) for n, of in self._chosen if not isinstance(of, bool))
        self.names = self._named()
        self._around: dict[Configuration, list[_Around]] = {}

    def of(
        self,
        belief: Belief | None,
        running: Configuration,
        rng: np.random.Generator | None = None,
    ) -> list[float]:
        """Return the numbers of `names`; all 0 before the first result.

        Args:
            belief: Posterior; ``None`` without results.
        """
        if belief is None or not len(belief):
            return [0.0] * len(self.names)
        around = self._around.get(running)
        if around is None:
            around = self._around[running] = self._looked_at(running)
        drawn = belief.drawn(rng)
        best = belief.best(drawn)
        lead = np.concatenate([*(one.places for one in around), [best]])
        mean, deviation = belief.ahead(self._space.index[running], lead, drawn)
        found, start = [log1p(len(belief))], 0
        for one in around[: len(self._stepped)]:
            end = start + len(one.places)
            found += _best(mean[start:end], deviation[start:end], one.still)
            start = end
        found += np.stack([mean[start:], deviation[start:]], axis=1).ravel().tolist()
        return [*found, *self._towards(running, self._space.all[best])]

    def _towards(self, running: Configuration, best: Configuration) -> list[float]:
        found = []
        for name in self._stepped:
            middle, wanted = len(STEPS[name]) // 2, getattr(best, name)
            reads = name == "k" or best.variant == FUSED
            led = [stepped(self._space, name, getattr(running, name), one) for one in STEPS[name]]
            # Among steps to the same value, as at the bounds, the shortest.
            order = sorted(range(len(led)), key=lambda one: abs(one - middle))
            step = min(order, key=lambda one: abs(led[one] - wanted)) if reads else middle
            found.append((step - middle) / middle)
        found += [float(getattr(best, name) != getattr(running, name)) for name in self._switches]
        return [*found, *(float(getattr(best, name) == value) for name, value in self._named_ones)]

    def _looked_at(self, running: Configuration) -> list[_Around]:
        found = []
        for name in self._stepped:
            reads = name == "k" or running.variant == FUSED
            led = [
                replace(running, **{name: stepped(self._space, name, getattr(running, name), one)})
                if reads else running
                for one in STEPS[name]
            ]  # fmt: skip
            found.append(_Around(self._places(led), STEPS[name].index(0)))
        chosen = [replace(running, **{name: value}) for name, value in self._chosen]
        return [*found, _Around(self._places(chosen), 0)]

    def _places(self, led: Sequence[Configuration]) -> NDArray[np.intp]:
        return np.array([self._space.index[on_grid(self._space, one)] for one in led], np.intp)

    def _named(self) -> tuple[str, ...]:
        found = ["told"]
        for name in self._stepped:
            found += [f"best_step_{name}", f"gain_{name}", f"unsure_{name}"]
        for name, value in self._chosen:
            found += [f"gain_{name}={value}", f"unsure_{name}={value}"]
        found += ["gain_best", "unsure_best"]
        found += [f"towards_{name}" for name in (*self._stepped, *self._switches)]
        return (*found, *(f"towards_{name}={value}" for name, value in self._named_ones))


def stepped(space: Space, name: str, now: Any, step: int) -> Any:
    """Return a count or a weight after a step, clipped to the bounds."""
    if name == "k":
        return _nearest(space.ks, now + step)
    place = space.weights.index(_nearest(space.weights, now)) + step
    return space.weights[min(max(place, 0), len(space.weights) - 1)]


def on_grid(space: Space, configuration: Configuration) -> Configuration:
    """Return a configuration in canonical form, with its weight on the grid.

    An unused weight is .5, which may not be on the grid.
    """
    if configuration.variant == FUSED:
        weight = _nearest(space.weights, configuration.fusion_weight)
        return replace(configuration, fusion_weight=weight)
    return configuration.canonical()


def _best(mean: Floats, deviation: Floats, still: int) -> list[float]:
    best = int(mean.argmax()) if mean.max() > 0 else still
    middle = (len(mean) - 1) / 2
    return [(best - middle) / middle, float(mean[best]), float(deviation[best])]


def _nearest(grid: Sequence[float], wanted: float) -> Any:
    place = min(bisect_left(grid, wanted), len(grid) - 1)
    below = max(place - 1, 0)
    return grid[place] if abs(grid[place] - wanted) <= abs(grid[below] - wanted) else grid[below]
