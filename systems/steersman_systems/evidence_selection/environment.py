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
    """What bounds a selection.

    Args:
        picks: passages at most, 1 to 8.
        tokens: that all passages together may have, ≥ 1, as the collection counts them.
        expanding: ``action``: the selector decides when what is selected is followed; ``always``:
            after every pick; ``never``: the pool stays as it was retrieved.
        may_stop: whether stopping is an action; without it a selection is as long as it may be.
        added: candidates that one expansion brings in at most, 1 to 100.

    Raises:
        InputError: a value out of its range.

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
    """A selection in the making.

    Args:
        pool: as it stands, with what was brought in.
        picked: places in the pool, in the order of picking.
        followed: how many of the picked ones were followed by expansion, the first first.
        tokens: of what is picked.
    """

    pool: Pool
    picked: tuple[int, ...] = ()
    followed: int = 0
    tokens: int = 0

    @property
    def question(self) -> Question:
        """What is asked."""
        return self.pool.question


@dataclass(frozen=True, slots=True)
class Legal:
    """What may be done in a state.

    Args:
        picks: (n,) of each candidate whether it may be picked.
        expand: whether there is something to follow.
        stop: whether stopping is a choice here.
        ended: why nothing may be done any more; None: it goes on.
    """

    picks: NDArray[np.bool_]
    expand: bool
    stop: bool
    ended: Stopped | None


@dataclass(frozen=True, slots=True)
class Selection:
    """What a selector made of a pool: one decision.

    Args:
        picked: ids of passages, in the order of picking.
        steps: every step that was a choice; its `p` is exact.
        propensity: of the whole selection, Π p_t; 1 for one that leaves nothing to chance.
        why: for each step the features that spoke for it, the strongest first.
        stopped: ``stop`` (chosen, or nothing was there), ``steps``, ``budget`` or ``confidence``.
        brought: ids of passages that expansion brought in.
    """

    picked: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    propensity: float = 1.0
    why: tuple[Mapping[str, float], ...] = ()
    stopped: Stopped = "steps"
    brought: tuple[str, ...] = ()


class Selector(Protocol):
    """Anything that selects passages from a pool."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return what it selects."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The rules by which states follow each other.

    Args:
        limits: what bounds a selection.
        confidence: of the answerer in a state, in [0, 1]; None: it is not asked.
        confident: a selection ends where the answerer is at least this sure, in (0, 1].

    Raises:
        InputError: ``confident`` is out of its range.
    """

    limits: Limits = field(default_factory=Limits)
    confidence: Confidence | None = None
    confident: float = 0.9

    def __post_init__(self) -> None:
        check_numbers(self, {"confident": "(0, 1]"})

    def start(self, pool: Pool) -> State:
        """Return the state before the first step."""
        return State(pool)

    def legal(self, state: State) -> Legal:
        """Return what may be done."""
        picks = state.pool.tokens <= self.limits.tokens - state.tokens
        left = picks.copy()
        left[list(state.picked)] = False
        expand = self.limits.expanding == "action" and state.pool.leads_further(
            state.picked[state.followed :]
        )
        ended = self._ended(state, left, expand=expand)
        if ended is not None:
            return Legal(np.zeros(len(left), np.bool_), expand=False, stop=False, ended=ended)
        return Legal(left, expand=expand, stop=self.limits.may_stop, ended=None)

    def step(self, state: State, action: int) -> State:
        """Return the state after an action other than stop.

        Raises:
            ActionError: no such candidate, or it was picked before.
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
    """Return how an action is logged: the passage's id, ``stop`` or ``expand``."""
    if action < 0:
        return STOP if action == STOP_ACTION else EXPAND
    return state.pool.candidates[action].id
