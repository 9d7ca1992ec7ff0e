"""Tuners that train a scorer on kept steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from steersman.policies.scorers import SummedScorer
from steersman.training.selection.tree_growth import TreeSettings, grow

if TYPE_CHECKING:
    from steersman.policies.scorers import Scorer
    from steersman.training.selection.examples import Examples


class Tuner(Protocol):
    """Trains a scorer on kept steps."""

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the trained scorer."""


@dataclass(frozen=True, slots=True)
class TreesOnTop:
    """Tuner that trains trees with the softmax loss on top of the start policy.

    Args:
        settings: settings of the trees.
    """

    settings: TreeSettings = field(
        default_factory=lambda: TreeSettings(trees=60, learning_rate=0.1, least=20, ridge=5.0)
    )

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the sum of the start policy and the trees."""
        return SummedScorer((start, grow(examples, self.settings, start=start, loss="softmax",
                                         seed=seed)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class FreshTrees:
    """Tuner that trains new trees; the start policy only selects what is tried.

    Args:
        settings: settings of the trees.
    """

    settings: TreeSettings = field(default_factory=TreeSettings)

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the new trees."""
        return grow(examples, self.settings, seed=seed)
