"""Selection environment: states, actions and transitions.

An action is the index of a candidate in the pool, `STOP_ACTION` or `EXPAND_ACTION`. Transitions are
deterministic: only the selector is random, so the propensity of a selection is the product over its
steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.errors.format import check_numbers
from steersman.policies.sequence import EXPAND, STOP, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.pool import Pool
    from steersman_systems.evidence_selection.question import Question

    Confidence = Callable[["State"], float]

STOP_ACTION, EXPAND_ACTION = -1, -2
Expanding = Literal["action", "always", "never"]
Stopped = Literal["stop", "steps", "budget", "confidence"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a selection.

    Args:
        picks: maximum passages, 1 to 8.
        tokens: maximum total tokens of the passages, ≥ 1, as the collection counts them.
        expanding: ``action``: the selector decides when to follow links; ``always``: after every
            pick; ``never``: the pool does not grow.
        may_stop: whether stop is an action; otherwise a selection ends at a limit.
        added: maximum candidates per expansion, 1 to 100.

    Raises:
        InputError: a value is out of range.

    >>> Limits().picks
    5
    """

    picks: int = 5
    tokens: int = 4_000
    expanding: Expanding = "action"
    may_stop: bool = True
    added: int = 20

    def __post_init__(self) -> None:
        check_numbers(self, {"picks": "[1, 8]", "tokens": ">= 1", "added": "[1, 100]"})
        if self.expanding not in {"action", "always", "never"}:
            raise InputError(f"expanding is {self.expanding!r}; allowed: action, always, never")


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """State of an unfinished selection.

    Args:
        pool: current candidates.
        picked: pool indices in the order of picking.
        followed: number of picks that were expanded, from the first.
        tokens: total tokens of the picks.
    """

    pool: Pool
    picked: tuple[int, ...] = ()
    followed: int = 0
    tokens: int = 0

    @property
    def question(self) -> Question:
        """Question of the pool."""
        return self.pool.question


@dataclass(frozen=True, slots=True)
class LegalActions:
    """Legal actions of a state.

    Args:
        picks: (n,) whether each candidate may be picked.
        expand: whether expand is legal.
        stop: whether stop is legal.
        ended: why the selection ended; None if it continues.
    """

    picks: NDArray[np.bool_]
    expand: bool
    stop: bool
    ended: Stopped | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Finished selection: one decision.

    Args:
        picked: passage ids in the order of picking.
        steps: all steps with a choice, with exact propensities.
        propensity: Π p_t of the whole selection; 1 for a deterministic selector.
        why: reasons of each step, strongest first.
        stopped: ``stop`` (chosen, or no action left), ``steps``, ``budget`` or ``confidence``.
        brought: ids of passages added by expansion.
    """

    picked: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    propensity: float = 1.0
    why: tuple[Mapping[str, float], ...] = ()
    stopped: Stopped = "steps"
    brought: tuple[str, ...] = ()


class Selector(Protocol):
    """Selects passages from a pool."""

    @property
    def name(self) -> str:
        """Name in reports."""

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return a selection."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Transition rules of a selection.

    Args:
        limits: limits of a selection.
        confidence: confidence of the answerer in a state, in [0, 1]; None: not used.
        confident: confidence at which a selection ends, in (0, 1].

    Raises:
        InputError: ``confident`` is out of range.
    """

    limits: Limits = field(default_factory=Limits)
    confidence: Confidence | None = None
    confident: float = 0.9

    def __post_init__(self) -> None:
        check_numbers(self, {"confident": "(0, 1]"})

    def start(self, pool: Pool) -> State:
        """Return the first state."""
        return State(pool)

    def legal(self, state: State) -> LegalActions:
        """Return the legal actions."""
        picks = state.pool.tokens <= self.limits.tokens - state.tokens
        left = picks.copy()
        left[list(state.picked)] = False
        expand = self.limits.expanding == "action" and state.pool.leads_further(
            state.picked[state.followed :]
        )
        ended = self._ended(state, left, expand=expand)
        if ended is not None:
            return LegalActions(
                np.zeros(len(left), np.bool_), expand=False, stop=False, ended=ended
            )
        return LegalActions(left, expand=expand, stop=self.limits.may_stop, ended=None)

    def step(self, state: State, action: int) -> State:
        """Return the state after a pick or an expansion.

        Raises:
            ActionError: the candidate does not exist, or was picked before.
        """
        if action == EXPAND_ACTION:
            return self._followed(state)
        if action in state.picked or not 0 <= action < len(state.pool):
            raise ActionError(
                f"action {action!r} cannot be picked; allowed: 0 to {len(state.pool) - 1} "
                f"but {list(state.picked)}, and {EXPAND_ACTION} to expand"
            )
        after = replace(
            state,
            picked=(*state.picked, action),
            tokens=state.tokens + int(state.pool.tokens[action]),
        )
        return self._followed(after) if self.limits.expanding == "always" else after

    def _followed(self, state: State) -> State:
        pool = state.pool
        for place in state.picked[state.followed :]:
            pool = pool.expanded(place, most=self.limits.added)
        return replace(state, pool=pool, followed=len(state.picked))

    def _ended(self, state: State, left: NDArray[np.bool_], *, expand: bool) -> Stopped | None:
        if len(state.picked) >= self.limits.picks:
            return "steps"
        if not left.any() and not expand:
            return "budget" if len(state.pool) > len(state.picked) else "stop"
        sure = self.confidence is not None and bool(state.picked)
        if sure and self.confidence is not None and self.confidence(state) >= self.confident:
            return "confidence"
        return None


def name_of(state: State, action: int) -> str:
    """Return the logged name of an action: the passage id, ``stop`` or ``expand``."""
    if action < 0:
        return STOP if action == STOP_ACTION else EXPAND
    return state.pool.candidates[action].id
