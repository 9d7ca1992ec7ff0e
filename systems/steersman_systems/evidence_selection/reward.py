"""Reward of a selection and potential-based shaping, as declared terms.

The final reward is for the whole selection. Shaping adds, at each step, the change of a potential
of the state. The sum over all steps then differs only by the potential of the first state, which is
equal for every policy, so the optimum does not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.errors import InputError
from steersman_systems.evidence_selection.answers import contains, in_words

if TYPE_CHECKING:
    from steersman_systems.evidence_selection.environment import State


class Final(Protocol):
    """A term of the final reward."""

    def __call__(self, state: State) -> float:
        """Return the term of an ended selection, in [0, 1]."""


def containment(state: State) -> float:
    """Return 1 where a picked passage contains an answer, else 0; no gold passage is looked at.

    A yes or a no stands in no passage, whatever its words.
    """
    picked = [state.pool.candidates[place] for place in state.picked]
    right = in_words(state.question.answers)
    return float(any(contains(f"{one.title} {one.text}", right) for one in picked))


def completeness(state: State) -> float:
    """Return the share of the question's terms, by rarity, that the picked passages have."""
    return information(state)


def information(state: State) -> float:
    """Return how much of what is asked about the picked passages speak of, in [0, 1]."""
    weights = state.pool.rarity
    total = float(weights.sum())
    if total == 0.0 or not state.picked:
        return 0.0
    return float(weights[state.pool.covered[list(state.picked)].any(axis=0)].sum()) / total


def redundancy(state: State) -> float:
    """Return the mean of each picked passage's largest cosine with an earlier one, in [0, 1].

    Args:
        state: any; 0 with fewer than two passages, or without vectors.

    Source: Carbonell & Goldstein, The Use of MMR (1998): the second term of maximal marginal
    relevance.
    """
    vectors = state.pool.vectors
    if vectors is None or len(state.picked) < 2:
        return 0.0
    picked = vectors[list(state.picked)]
    near = np.tril(picked @ picked.T, -1)[1:]
    return float(np.clip(near.max(axis=1), 0.0, 1.0).mean())


@dataclass(frozen=True, slots=True)
class RewardTerms:
    """The declared terms; weights of the final ones sum to 1, so that a reward is in [0, 1].

    Args:
        finals: (weight, term) pairs; containment alone by default. A judge, an
            answerer's F1 or a reward model is a term like any other.
        information: weight of the potential of information gained, in [0, 1].
        redundancy: weight of the potential lost by repeating, in [0, 1].

    Raises:
        InputError: a weight out of its range, or final weights that do not sum to 1.
    """

    finals: tuple[tuple[float, Final], ...] = ((1.0, containment),)
    information: float = 0.0
    redundancy: float = 0.0

    def __post_init__(self) -> None:
        weights = [weight for weight, _ in self.finals]
        allowed = bool(weights) and all(weight >= 0 for weight in weights)
        if not allowed or not abs(sum(weights) - 1.0) <= 1e-9:
            raise InputError(f"final weights are {weights}; they must be ≥ 0 and sum to 1")
        for name, value in (("information", self.information), ("redundancy", self.redundancy)):
            if not 0.0 <= value <= 1.0:
                raise InputError(f"{name} is {value!r}; allowed: 0 to 1")

    def final(self, state: State) -> float:
        """Return what an ended selection is worth, in [0, 1]."""
        return sum(weight * term(state) for weight, term in self.finals)

    def potential(self, state: State) -> float:
        """Return Φ of a state that goes on; it must be 0 where a selection has ended.

        Source: Ng, Harada & Russell, Policy Invariance Under Reward Transformations (1999),
        theorem 1; the end as Grześ, Reward Shaping in Episodic RL (2017) demands.
        """
        if not self.information and not self.redundancy:
            return 0.0
        return self.information * information(state) - self.redundancy * redundancy(state)
