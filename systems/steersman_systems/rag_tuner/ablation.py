"""Ablation of a configuration: the best reward with one part held fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from steersman_systems.rag_tuner.reward import reward_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.recorded import Recorded

    Floats = NDArray[np.float64]

_COARSE = 0.25


@dataclass(frozen=True)
class Ablation:
    """The best configuration of a smaller space.

    Args:
        without: Label of the part that is held fixed.
        best: The best remaining configuration.
        loss: Loss of reward against the best of the whole space, on the same queries; ≥ 0.
        low: Lower end of the 95 % interval of `loss` (paired t over queries).
        high: Upper end of that interval.
    """

    without: str
    best: Configuration
    loss: float
    low: float
    high: float


def ablations(recorded: Recorded, tuned: PolicyConfig, queries: NDArray[np.intp]) -> list[Ablation]:
    """Return the loss of reward when one part of the configuration is held fixed.

    Both configurations are the best in hindsight on these queries. So the loss describes the space,
    not what a strategy finds in it.

    Args:
        queries: (n,) query indexes, n ≥ 2.
    """
    space = tuned.space.all
    rewards = np.array(
        [reward_of(recorded.evaluate(one, queries), tuned).per_query for one in space]
    )
    best = rewards[rewards.mean(axis=1).argmax()]
    found = []
    for name, keeps in _RULES.items():
        places = [place for place, one in enumerate(space) if keeps(one)]
        if 0 < len(places) < len(space):
            found.append(_ablated(name, places, rewards, best, space))
    return found


def _ablated(
    name: str, places: list[int], rewards: Floats, best: Floats, space: tuple[Configuration, ...]
) -> Ablation:
    kept = places[int(rewards[places].mean(axis=1).argmax())]
    behind = best - rewards[kept]
    half = stdtrit(len(behind) - 1, 0.975) * behind.std(ddof=1) / np.sqrt(len(behind))
    loss = float(behind.mean())
    return Ablation(name, space[kept], loss, loss - float(half), loss + float(half))


def _coarse(one: Configuration) -> bool:
    return abs(one.fusion_weight / _COARSE - round(one.fusion_weight / _COARSE)) < 1e-9


_RULES: dict[str, Callable[[Configuration], bool]] = {
    "fusion (words or meaning alone)": lambda one: one.variant in {"bm25", "dense"},
    "meaning (words alone)": lambda one: one.variant == "bm25",
    "words (meaning alone)": lambda one: one.variant == "dense",
    "a choice of k (k = 10)": lambda one: one.k == 10,
    "reranking": lambda one: not one.rerank,
    "expansion": lambda one: not one.expansion,
    "a fine fusion weight (0, .25, .5, .75, 1)": _coarse,
}
