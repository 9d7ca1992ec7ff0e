"""Learning tasks from pools: options with features, rewards and potentials."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from steersman.policies.sequence import EXPAND, STOP
from steersman_systems.evidence_selection import features
from steersman_systems.evidence_selection.environment import (
    EXPAND_ACTION,
    STOP_ACTION,
    Environment,
    State,
)
from steersman_systems.evidence_selection.reward import RewardTerms
from steersman_systems.evidence_selection.training.task import Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.pool import Pool

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class OpenState:
    """State of the environment with its legal actions.

    Args:
        state: state of the environment.
        places: (k,) pool index, `EXPAND_ACTION` or `STOP_ACTION` of each option.
        stopped: whether stop was chosen.
    """

    state: State
    places: NDArray[np.int64]
    stopped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceTask:
    """Selection for one question, as a task of `steersman_systems.evidence_selection.training`.

    Args:
        pool: retrieved candidates.
        environment: selection rules.
        terms: reward and shaping terms.
    """

    pool: Pool
    environment: Environment = field(default_factory=Environment)
    terms: RewardTerms = field(default_factory=RewardTerms)

    @property
    def id(self) -> str:
        """Question id."""
        return self.pool.question.id

    @property
    def group(self) -> str:
        """Conversation of the question; else its id."""
        return self.pool.question.conversation or self.id

    def begin(self) -> OpenState:
        """Return the first state."""
        return self._standing(self.environment.start(self.pool))

    def options(self, standing: OpenState) -> Options | None:
        """Return the actions with their features; None at the end."""
        if standing.stopped or not len(standing.places):
            return None
        state, places = standing.state, standing.places
        count = len(state.pool)
        which = np.where(places == EXPAND_ACTION, count, np.where(places < 0, count + 1, places))
        candidates = state.pool.candidates
        names = [
            candidates[place].id if place >= 0 else EXPAND if place == EXPAND_ACTION else STOP
            for place in places.tolist()
        ]
        picks = int(np.count_nonzero(places >= 0))
        return Options(names, features.rows(state)[which], picks)

    def take(self, standing: OpenState, place: int) -> OpenState:
        """Return the state after an action."""
        action = int(standing.places[place])
        if action == STOP_ACTION:
            return OpenState(standing.state, standing.places, stopped=True)
        return self._standing(self.environment.step(standing.state, action))

    def reward(self, standing: OpenState) -> float:
        """Return the reward by the declared final terms."""
        return self.terms.final(standing.state)

    def potential(self, standing: OpenState) -> float:
        """Return Φ by the declared shaping terms; 0 after stop and at the end."""
        ended = standing.stopped or not len(standing.places)
        return 0.0 if ended else self.terms.potential(standing.state)

    def _standing(self, state: State) -> OpenState:
        legal = self.environment.legal(state)
        others = [EXPAND_ACTION] * legal.expand + [STOP_ACTION] * legal.stop
        picks = np.flatnonzero(legal.picks)
        return OpenState(state, np.concatenate([picks, np.array(others, np.int64)]))
