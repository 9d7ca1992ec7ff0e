"""Experts for imitation: gold passages, or the picks of a strong policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.evidence_selection.environment import EXPAND_ACTION, STOP_ACTION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.environment import State
    from steersman_systems.evidence_selection.tasks import EvidenceTask, OpenState
    from steersman_systems.evidence_selection.training.task import Options

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GoldExpert:
    """Expert that picks gold, expands if that leads nearer to gold, and stops without gold left."""

    def labels(self, task: EvidenceTask, standing: OpenState, options: Options) -> Floats:
        """Return (k,) 1 for correct actions, else 0."""
        state = standing.state
        gold = np.array([one.id in state.question.gold for one in state.pool.candidates], np.bool_)
        picked = {state.pool.candidates[place].id for place in state.picked}
        missing = set(state.question.gold) - picked
        here = {one.id for one in state.pool.candidates} & missing
        brings = missing - here and self._brings(state, missing - here)
        right = np.zeros(len(standing.places))
        picks = standing.places >= 0
        right[picks] = gold[standing.places[picks]]
        right[standing.places == EXPAND_ACTION] = float(bool(brings))
        right[standing.places == STOP_ACTION] = float(not here and not brings)
        return right

    @staticmethod
    def _brings(state: State, missing: set[str]) -> bool:
        """Return whether an unfollowed pick links to a missing gold passage."""
        pool = state.pool
        led = {
            pool.collection.candidates[position].id
            for place in state.picked[state.followed :]
            for position in pool.neighbours(place).tolist()
        }
        return bool(led & missing)


@dataclass(frozen=True, slots=True)
class RankExpert:
    """Expert without gold: follows every pick, then takes the highest fused score.

    Args:
        share: share of a linking passage's score that is added to the linked passage, ≥ 0.
    """

    share: float = 0.0

    def labels(self, task: EvidenceTask, standing: OpenState, options: Options) -> Floats:
        """Return (k,) 1 for the chosen action, else 0."""
        places = standing.places
        right = np.zeros(len(places))
        if (places == EXPAND_ACTION).any() and self.share > 0.0:
            right[places == EXPAND_ACTION] = 1.0
            return right
        if not (picks := places >= 0).any():
            right[-1] = 1.0
            return right
        pool = standing.state.pool
        scores = pool.fused.copy()
        for place in standing.state.picked if self.share > 0.0 else ():
            scores = np.maximum(
                scores, pool.fused + self.share * pool.fused[place] * (pool.led[place] & 1)
            )
        right[int(np.argmax(np.where(picks, scores[np.maximum(places, 0)], -np.inf)))] = 1.0
        return right
