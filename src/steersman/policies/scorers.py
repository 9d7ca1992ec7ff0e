"""Scorer protocol, sums of scorers, and their states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steersman.errors import InputError, StateError
from steersman.policies import states
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.tree_scorer import TreeScorer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.policies.states import State

    Floats = NDArray[np.float64]


class Scorer(Protocol):
    """Protocol of scorers of the actions of one step."""

    def scores(self, rows: Floats) -> Floats:
        """Return a score for each row; larger is better.

        Args:
            rows: (n, columns) float64 finite.
        """


@dataclass(frozen=True, slots=True, eq=False)
class SummedScorer:
    """Sum of several scorers, for example a cloned scorer plus a learned correction.

    Args:
        parts: one or more scorers with equal numbers of columns. Nested sums are flattened.

    >>> line = NetworkScorer.linear(np.array([2.0]))
    >>> SummedScorer((line, line)).scores(np.array([[1.0]])).tolist()
    [4.0]
    """

    parts: tuple[Scorer, ...]

    def __post_init__(self) -> None:
        # What was learned on top of a sum is one more part of it, and can be kept like any other.
        flat = tuple(
            inner
            for part in self.parts
            for inner in (part.parts if isinstance(part, SummedScorer) else (part,))
        )
        object.__setattr__(self, "parts", flat)

    def scores(self, rows: Floats) -> Floats:
        """Return the sum of the parts' scores.

        Args:
            rows: (n, columns) float64 finite.
        """
        total: Floats = np.sum([part.scores(rows) for part in self.parts], axis=0)
        return total


def scorer_state(scorer: Scorer) -> State:
    """Return the state of a scorer as arrays, without pickle.

    Args:
        scorer: trees, a network, or a sum of these.

    Returns:
        Arrays by part number and name.

    Raises:
        InputError: another kind of scorer.

    >>> line = NetworkScorer.linear(np.array([2.0]))
    >>> sorted(scorer_state(line))
    ['0.biases.0', '0.mean', '0.meta', '0.scale', '0.weights.0']
    """
    parts = scorer.parts if isinstance(scorer, SummedScorer) else (scorer,)
    found: State = {}
    for number, part in enumerate(parts):
        if not isinstance(part, TreeScorer | NetworkScorer):
            raise InputError(f"cannot save a {type(part).__name__}; allowed: trees and networks")
        found |= {f"{number}.{name}": array for name, array in part.state().items()}
    return found


def scorer_from_state(state: Mapping[str, Any]) -> Scorer:
    """Return the scorer of a state.

    Args:
        state: result of `scorer_state`.

    Returns:
        The scorer; a sum for several parts.

    Raises:
        StateError: not a state of a scorer, or damaged.

    >>> line = NetworkScorer.linear(np.array([2.0]))
    >>> scorer_from_state(scorer_state(line)).scores(np.array([[1.0]])).tolist()
    [2.0]
    """
    if not all(isinstance(name, str) for name in states.mapping(state)):
        raise StateError("array names of the state must be text; pass the result of scorer_state")
    parts: list[Scorer] = []
    while own := {
        name.partition(".")[2]: array
        for name, array in state.items()
        if name.partition(".")[0] == str(len(parts))
    }:
        kind = states.algorithm_of(own, known=("NetworkScorer", "TreeScorer"))
        home = TreeScorer if kind == "TreeScorer" else NetworkScorer
        parts.append(home.from_state(own))
    if not parts:
        raise StateError("the state has no scorer; pass the result of scorer_state")
    return parts[0] if len(parts) == 1 else SummedScorer(tuple(parts))
