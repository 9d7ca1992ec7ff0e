"""Reward of a selection and potential-based shaping, as declared terms.

The final reward is for the whole selection. Shaping adds the change of a state potential at each
step. Over all steps this adds only the potential of the first state, which is equal for every
policy. So the optimum does not change.
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
    """Term of the final reward."""

    def __call__(self, state: State) -> float:
        """Return the term for an ended selection, in [0, 1]."""


def containment(state: State) -> float:
    """Return 1 if a picked passage contains an answer, else 0; does not read gold.

    Yes and no never count as contained.
    """
    picked = [state.pool.candidates[place] for place in state.picked]
    right = in_words(state.question.answers)
    return float(any(contains(f"{one.title} {one.text}", right) for one in picked))


def completeness(state: State) -> float:
    """Return the share of the question's terms in the picked passages, weighted by rarity."""
    return information(state)


def information(state: State) -> float:
    """Return the share of the question's terms that the picked passages mention, in [0, 1]."""
    weights = state.pool.rarity
    total = float(weights.sum())
    if total == 0.0 or not state.picked:
        return 0.0
    return float(weights[state.pool.covered[list(state.picked)].any(axis=0)].sum()) / total


def redundancy(state: State) -> float:
    """Return the mean of each pick's largest cosine with an earlier one, in [0, 1].

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
    """Declared reward terms; the weights of the final terms sum to 1, so rewards are in [0, 1].

    Args:
        finals: (weight, term) pairs; default: containment only. A judge, an answer's F1 or a reward
            model can be a term.
        information: weight of the information potential, in [0, 1].
        redundancy: weight of the redundancy penalty in the potential, in [0, 1].

    Raises:
        InputError: a weight is out of range, or the final weights do not sum to 1.
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
        """Return the reward of an ended selection, in [0, 1]."""
        return sum(weight * term(state) for weight, term in self.finals)

    def potential(self, state: State) -> float:
        """Return Φ of an unfinished state; at the end it must be 0.

        Source: Ng, Harada & Russell, Policy Invariance Under Reward Transformations (1999), theorem
        1; the final 0: Grześ, Reward Shaping in Episodic RL (2017).
        """
        if not self.information and not self.redundancy:
            return 0.0
        return self.information * information(state) - self.redundancy * redundancy(state)
