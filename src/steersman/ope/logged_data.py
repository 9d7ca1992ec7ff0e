"""Input of off-policy evaluation: a log and the distribution of the target policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.ope.columns import (
    LARGEST_REWARD,
    LARGEST_WEIGHT,
    array_of,
    check_finite,
    floats_of,
    unit_labels,
    within_range,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

# Largest allowed distance of a target row's sum from 1.
_SUM_TOLERANCE = 1e-6

_EXPECTED = 5.0  # draws of an action, of which a log that draws it hardly shows none

_LARGEST_CONTEXT = 1e6  # with whose squares every reward model can still work


@dataclass(frozen=True, eq=False)
class LoggedData:
    """Log of decisions with exact propensities, and a target policy on the same contexts.

    Accepts anything that numpy can convert to an array. Arrays of the right type are not copied.

    Args:
        actions: Index of the logged action, integers in [0, K), shape (n,), n >= 1, in the order
            in which they were logged (adaptive logs need the order).
        rewards: Rewards up to 1e100 in absolute value, shape (n,); higher is better.
        propensities: Probability with which each action was drawn, in (0, 1], shape (n,).
        target: Distribution of the target policy in each context, shape (n, K), rows sum to 1.
        q_hat: Predicted reward of every action from a model trained on *other* data, shape (n, K);
            up to 1e100 in absolute value.
        contexts: Contexts for reward models that are fitted here, shape (n, d), up to 1e6 in
            absolute value: scale larger ones.
        clusters: Label of the unit (user, session, episode) of each row, shape (n,); rows of one
            unit may depend on each other, units may not.
        missing: Mass of the target on actions that could not be drawn when a row was logged, at
            least 0, shape (n,); of rows that are several draws an unbiased estimate, which may
            pass 1. None where every action of a positive target could be drawn, but for rows
            without a choice.
        reward_range: Smallest and largest reward that can ever occur, on which the Bernstein
            interval rests; (0, 1) when not declared, as rewards of decision points are.
        names: Name of the drawn action of each row, shape (n,), if the columns of the target mean
            another action in every row (candidates per request). None if columns are actions.

    Raises:
        InputError: Propensities not in (0, 1], target rows that do not sum to 1 (to 1e-6) or hold
            negatives, NaN, infinity, too large numbers or no numbers anywhere, action indexes out
            of range, shapes that differ, rewards outside a declared range.

    Example:
        >>> data = LoggedData([0, 1], [1.0, 0.0], [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        >>> len(data), data.weights.tolist()
        (2, [1.8, 1.6])
    """

    actions: NDArray[np.int64]
    rewards: Floats
    propensities: Floats
    target: Floats
    q_hat: Floats | None = None
    contexts: Floats | None = None
    clusters: NDArray[Any] | None = None
    reward_range: tuple[float, float] | None = None
    missing: Floats | None = None
    names: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        """Convert and validate every field."""
        rewards = floats_of(self.rewards, "rewards", (None,), LARGEST_REWARD)
        rows = rewards.shape[0]
        target = floats_of(self.target, "target", (rows, None))
        checked = {
            "rewards": rewards,
            "target": _distributions(target),
            "propensities": _propensities(floats_of(self.propensities, "propensities", (rows,))),
            "actions": _actions(self.actions, rows, target.shape[1]),
            "q_hat": _optional(self.q_hat, "q_hat", target.shape, LARGEST_REWARD),
            "contexts": _optional(self.contexts, "contexts", (rows, None), _LARGEST_CONTEXT),
            "missing": _optional(self.missing, "missing", (rows,), LARGEST_WEIGHT),
            "clusters": None if self.clusters is None else unit_labels(self.clusters, rows),
            "names": None if self.names is None else unit_labels(self.names, rows, "names"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.missing is not None and (self.missing < 0.0).any():
            raise InputError("missing has a mass below 0; allowed: numbers of at least 0")
        if self.reward_range is not None:
            within_range(rewards, self.reward_range)

    def __len__(self) -> int:
        return int(self.rewards.shape[0])

    @cached_property
    def chosen_target(self) -> Floats:
        """Probability that the target policy gives to each logged action, shape (n,)."""
        return np.take_along_axis(self.target, self.actions[:, None], axis=1)[:, 0]

    @cached_property
    def weights(self) -> Floats:
        """Importance weights, target over logged probability of each logged action, shape (n,).

        Those beyond float64 (propensities near 1e-308) are its largest number.
        """
        with np.errstate(over="ignore"):
            return np.minimum(self.chosen_target / self.propensities, LARGEST_WEIGHT)

    @cached_property
    def units(self) -> NDArray[np.int64] | None:
        """Number of each row's unit in [0, units), or None where every row is its own unit."""
        if self.clusters is None:
            return None
        return np.unique(self.clusters, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def arms(self) -> NDArray[np.int64]:
        """Number of what each row drew, shape (n,): of its name where rows have one."""
        if self.names is None:
            return self.actions
        return np.unique(self.names, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def has_columns(self) -> bool:
        """Whether a column of the target is one action in every row.

        It is not where rows have names, nor where all drew one column: that stands for whatever
        was drawn (`drawn_or_another`).
        """
        return self.names is None and bool((self.actions != self.actions[0]).any())


def drawn_or_another(masses: ArrayLike) -> Floats:
    """Return target rows over two columns: what was drawn, and anything else.

    For actions of which there are thousands, such as mixed ones. Each logged action is then the
    first column. Importance weights are those of all columns; a reward model knows no more than
    the mean of all rewards, so give no contexts.

    Args:
        masses: Probability that the target policy gives to each logged action, shape (n,).

    Returns:
        Shape (n, 2).

    Raises:
        InputError: Values that are not probabilities.

    Example:
        >>> drawn_or_another([0.25]).tolist()
        [[0.25, 0.75]]

    Source:
        Horvitz, Thompson (1952): the weight of a draw depends on its own two probabilities alone.
    """
    drawn = floats_of(masses, "masses", (None,))
    if not ((drawn >= 0.0) & (drawn <= 1.0 + _SUM_TOLERANCE)).all():
        raise InputError(
            "masses must be in [0, 1]; pass the target probability of each logged action"
        )
    drawn = np.minimum(drawn, 1.0)
    return np.stack([drawn, 1.0 - drawn], axis=1)


def never_drawn(actions: ArrayLike, target: ArrayLike) -> Floats | None:
    """Return the target's mass on actions that the log never drew, for ``missing`` of its rows.

    Weights cannot show such an action: no row has one. Normalised weights and reward models hide
    it, and only a mean weight far below 1 shows it. What the target itself would have
    drawn less than five times in so many rows is left to chance.

    Args:
        actions: Index of the logged action in columns that are the same actions in every row, as
            named actions are (candidates per request are not); shape (n,).
        target: Distribution of the target policy, shape (n, K).

    Returns:
        Shape (n,); None if the log drew every action.

    Raises:
        InputError: An action outside the target's columns, or lengths that differ.

    Example:
        >>> target = np.tile([0.5, 0.3, 0.2], (100, 1))
        >>> never_drawn(np.arange(100) % 2, target)[:2].tolist()
        [0.2, 0.2]
        >>> never_drawn(np.arange(100) % 3, target) is None
        True

    Source:
        Positivity: Horvitz, Thompson (1952). Five: of a log that draws an action as often as the
        target does, one in 150 shows none where five are expected.
    """
    masses, named = array_of(target, "target"), array_of(actions, "actions")
    fit = named.dtype.kind in "iu" and masses.ndim == 2 and named.shape == masses.shape[:1]
    if not (fit and masses.dtype.kind in "biuf" and _are_columns(named, masses)):
        message = f"actions must be one column index per row of a target of shape {masses.shape}"
        raise InputError(message)
    check_finite(masses, "target")
    drawn = np.bincount(named, minlength=masses.shape[1])
    lost = (drawn == 0) & (masses.sum(axis=0) >= _EXPECTED)
    return np.asarray(masses[:, lost].sum(axis=1)) if lost.any() else None


def _are_columns(places: NDArray[np.int64], table: NDArray[Any]) -> bool:
    return bool(((places >= 0) & (places < table.shape[1])).all())


def _optional(
    values: ArrayLike | None, name: str, shape: tuple[int | None, ...], largest: float
) -> Floats | None:
    return None if values is None else floats_of(values, name, shape, largest)


def _distributions(target: Floats) -> Floats:
    sums = target.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > _SUM_TOLERANCE:
        message = (
            f"target row {worst} sums to {sums[worst]:.9g}; allowed: 1 to within "
            f"{_SUM_TOLERANCE:g}; pass the policy's whole distribution, 0 where ineligible"
        )
        raise InputError(message)
    if target.min() < 0.0:
        row, action = np.argwhere(target < 0.0)[0].tolist()
        message = f"target[{row}, {action}] is {target[row, action]}; allowed: 0 to 1; "
        message += "pass the policy's probability of that action, 0 where ineligible"
        raise InputError(message)
    return target


def _propensities(propensities: Floats) -> Floats:
    wrong = (propensities <= 0.0) | (propensities > 1.0)
    if wrong.any():
        row = int(np.argmax(wrong))
        message = (
            f"propensities[{row}] is {propensities[row]}; allowed: 0 < p <= 1; log the exact "
            "probability of the drawn action"
        )
        raise InputError(message)
    return propensities


def _actions(values: ArrayLike, rows: int, count: int) -> NDArray[np.int64]:
    actions = array_of(values, "actions")
    if actions.shape != (rows,) or actions.dtype.kind not in "iu":
        message = (
            f"actions has shape {actions.shape} and type {actions.dtype}; allowed: integers of "
            f"shape ({rows},): the index of each logged action"
        )
        raise InputError(message)
    wrong = (actions < 0) | (actions >= count)
    if wrong.any():
        row = int(np.argmax(wrong))
        message = (
            f"actions[{row}] is {actions[row]}; allowed: 0 to {count - 1}, the columns of target"
        )
        raise InputError(message)
    return actions.astype(np.int64, copy=False)
