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
    from steersman_systems.rag_tuner.policy_config import Tuned
    from steersman_systems.rag_tuner.recorded import Recorded

    Floats = NDArray[np.float64]

_COARSE = 0.25


@dataclass(frozen=True)
class Ablated:
    """The best configuration of a smaller space.

    Args:
        without: What is left out, for people.
        best: The best of the others.
        loss: By how much it is worse than the best of all, on the same queries; ≥ 0.
        low: Lower end of the 95 % interval of that (paired t, over queries).
        high: Upper end.
    """

    without: str
    best: Configuration
    loss: float
    low: float
    high: float


def ablations(recorded: Recorded, tuned: Tuned, queries: NDArray[np.intp]) -> list[Ablated]:
    """Return what is lost when a part of the configuration may not vary.

    Both are the best in hindsight on these queries, so this says what a space can hold, and not
    what a strategy would find in it.

    Args:
        queries: (n,) places, n ≥ 2.
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
) -> Ablated:
    kept = places[int(rewards[places].mean(axis=1).argmax())]
    behind = best - rewards[kept]
    half = stdtrit(len(behind) - 1, 0.975) * behind.std(ddof=1) / np.sqrt(len(behind))
    loss = float(behind.mean())
    return Ablated(name, space[kept], loss, loss - float(half), loss + float(half))


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
