"""Validation of log columns: numbers, labels and reward ranges."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

# Largest absolute values with whose sums of squares and products every estimator can still work.
LARGEST_REWARD = 1e100
LARGEST_WEIGHT = float(np.finfo(np.float64).max)


def array_of(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return an array, without a copy where it is one.

    Args:
        values: Anything that numpy can read as an array.
        name: Name of the column, for the error.

    Returns:
        Of any shape and type.

    Raises:
        InputError: Rows of several lengths, or a masked array.

    Example:
        >>> array_of([[1, 2], [3, 4]], "target").shape
        (2, 2)
    """
    if isinstance(values, np.ma.MaskedArray):
        message = f"{name} is a masked array; masked values are not numbers: drop these rows"
        raise InputError(message)
    try:
        return np.asarray(values)
    except ValueError as error:
        message = f"{name} is not an array ({error}); allowed: rows of equal length"
        raise InputError(message) from error


def real_numbers(values: ArrayLike, name: str) -> Floats:
    """Return float64 numbers, which need not be finite, of any shape.

    Args:
        values: Anything that numpy can read as an array.
        name: Name of the column, for the error.

    Raises:
        InputError: Rows of several lengths, a masked array, or anything but real numbers.

    Example:
        >>> real_numbers([1, 0], "rewards")
        array([1., 0.])
    """
    given = array_of(values, name)
    if given.dtype.kind not in "biuf":
        message = (
            f"{name} has type {given.dtype}; allowed: real numbers; convert the column to "
            "float64 and fix values that are not numbers"
        )
        raise InputError(message)
    with np.errstate(over="ignore"):
        return given.astype(np.float64, copy=False)


def check_finite(array: Floats, name: str, largest: float = LARGEST_REWARD) -> None:
    """Refuse non-finite or too large numbers.

    Args:
        array: Numbers of any shape.
        name: Name of the column, for the error.
        largest: Absolute value that is allowed.

    Raises:
        InputError: One is not finite, or larger.

    Example:
        >>> check_finite(np.array([1.0, -1e99]), "rewards")
    """
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        message = (
            f"{name}{where} is {array[tuple(where)]}; allowed: finite numbers; drop the row or "
            "fix its source"
        )
        raise InputError(message)
    beyond = np.abs(array) > largest
    if beyond.any():
        where = np.argwhere(beyond)[0].tolist()
        message = (
            f"{name}{where} is {array[tuple(where)]}; allowed: up to {largest:g} in absolute "
            "value; rescale the column or drop the row"
        )
        raise InputError(message)


def floats_of(
    values: ArrayLike,
    name: str,
    shape: tuple[int | None, ...],
    largest: float = math.inf,
) -> Floats:
    """Return finite float64 numbers of one shape, without a copy where they are that.

    Args:
        values: Anything that numpy can read as an array.
        name: Name of the column, for the error.
        shape: Wanted, where None stands for any size of at least 1.
        largest: Absolute value that is allowed.

    Raises:
        InputError: Another shape, no real numbers, NaN, infinity or too large ones.

    Example:
        >>> floats_of([1, 0], "rewards", (None,))
        array([1., 0.])
    """
    array = real_numbers(values, name)
    fits = array.ndim == len(shape) and all(
        size == wanted if wanted is not None else size >= 1
        for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted_text = ", ".join("any >= 1" if size is None else str(size) for size in shape)
        message = f"{name} has shape {array.shape}; allowed: ({wanted_text}); one row per decision"
        raise InputError(message)
    check_finite(array, name, largest)
    return array


def unit_labels(values: ArrayLike, rows: int, column: str = "clusters") -> NDArray[Any]:
    """Return one label for each row, checked: of its unit, or of what it drew.

    Args:
        values: One label a row.
        rows: How many there are.
        column: Name of the column, for the error.

    Returns:
        Shape (rows,), of one type.

    Raises:
        InputError: Another shape, labels of several types, NaN or infinity.

    Example:
        >>> unit_labels(["a", "b"], 2).tolist()
        ['a', 'b']
    """
    labels = array_of(values, column)
    if labels.dtype.kind in "US" and not isinstance(values, np.ndarray):
        labels = np.array(values, dtype=object)  # of a list of several types numpy makes texts
    if labels.shape != (rows,):
        message = f"{column} has shape {labels.shape}; allowed: ({rows},): one label per decision"
        raise InputError(message)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        message = f"{column} holds NaN or infinity; allowed: labels with a value"
        raise InputError(message)
    if labels.dtype.kind == "c" and np.isnan(labels).any():
        raise InputError(f"{column} holds NaN; allowed: labels with a value")
    if labels.dtype.kind in "mM" and np.isnat(labels).any():
        raise InputError(f"{column} holds NaT; allowed: labels with a value")
    if labels.dtype.kind == "O":
        if any(map(_is_none, labels.tolist())):
            raise InputError(f"{column} holds NaN; give every row its label")
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        try:
            np.unique(labels)
        except TypeError as error:
            message = f"{column} holds labels of several types ({error}); allowed: one type"
            raise InputError(message) from error
        if "str" in kinds and len(kinds) > 1:
            message = f"{column} holds labels of several types ({', '.join(kinds)}); allowed: one"
            raise InputError(message)
    return labels


def _is_none(label: object) -> bool:
    """Return whether a value is any kind of NaN."""
    try:
        return bool(label != label)  # noqa: PLR0124
    except TypeError:
        return True


def possible_rewards(declared: tuple[float, float]) -> tuple[float, float]:
    """Return the validated range of possible rewards.

    Args:
        declared: Both, the lower one first.

    Returns:
        The same two numbers.

    Raises:
        InputError: No two numbers, in another order, or beyond what estimators can work with.

    Example:
        >>> possible_rewards((0, 10))
        (0.0, 10.0)
    """
    pair = array_of(declared, "reward_range")
    usable = pair.shape == (2,) and pair.dtype.kind in "iuf"
    pair = pair.astype(np.float64) if usable else pair  # narrower ones know no limit so high
    if not (usable and pair[0] < pair[1] and (np.abs(pair) <= LARGEST_REWARD).all()):
        message = (
            f"reward_range is {brief(declared)}; allowed: two numbers, low < high, up to "
            f"{LARGEST_REWARD:g} in absolute value"
        )
        raise InputError(message)
    return float(pair[0]), float(pair[1])


def within_range(rewards: Floats, declared: tuple[float, float], *, rounding: float = 0.0) -> None:
    """Refuse rewards outside the declared range.

    Args:
        rewards: At least one.
        declared: The least and the greatest.
        rounding: How far they may lie outside, in parts of the larger end.

    Raises:
        InputError: One lies outside, or the range is none.

    Example:
        >>> within_range(np.array([0.0, 2.0]), (0.0, 2.0))
    """
    low, high = possible_rewards(declared)
    beyond = rounding * max(abs(low), abs(high))
    if rewards.min() < low - beyond or rewards.max() > high + beyond:
        message = (
            f"rewards span [{rewards.min()}, {rewards.max()}]; allowed: the declared "
            f"reward_range [{low}, {high}]; declare the full possible range"
        )
        raise InputError(message)
