"""What learns from kept steps: trees on top of a policy, or trees grown anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from steersman.learn.selecting.trees import TreeSettings, grow
from steersman.policies import SummedScorer

if TYPE_CHECKING:
    from steersman.learn.selecting.examples import Examples
    from steersman.policies import Scorer


class Tuner(Protocol):
    """Makes a scorer likelier to do what was kept: trees on top, or a network trained on."""

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the scorer after it.

        Args:
            examples: kept steps of all eligible actions.
            start: what it is trained on top of.
            seed: of whatever it draws.
        """


@dataclass(frozen=True, slots=True)
class TreesOnTop:
    """Trees by the softmax loss on top of the policy that started.

    Args:
        settings: how they are grown.
    """

    settings: TreeSettings = field(
        default_factory=lambda: TreeSettings(trees=60, learning_rate=0.1, least=20, ridge=5.0)
    )

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the sum of both.

        Args:
            examples: kept steps of all eligible actions.
            start: what the trees add to.
            seed: of the columns that a tree looks at.
        """
        return SummedScorer((start, grow(examples, self.settings, start=start, loss="softmax",
                                         seed=seed)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class FreshTrees:
    """Trees grown anew from what was kept: what started decides what is tried, and no more.

    Args:
        settings: how they are grown.
    """

    settings: TreeSettings = field(default_factory=TreeSettings)

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the trees alone.

        Args:
            examples: kept steps of all eligible actions.
            start: not used.
            seed: of the columns that a tree looks at.
        """
        return grow(examples, self.settings, seed=seed)
