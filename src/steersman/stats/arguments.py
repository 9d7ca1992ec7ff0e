"""Validation of statistical arguments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


# Larger numbers, squared and summed over any sample, come near the end of float64.
LARGEST = 1e100

# Above this, float64 cannot hold every whole number.
_LARGEST_COUNT = 2**53

# What `float` would read as a number all the same.
_BYTES = (bytearray, memoryview)
_NO_NUMBERS = (str, bytes, *_BYTES, bool, np.bool_, np.timedelta64, np.complexfloating)


def open_unit(value: float, name: str) -> float:
    """Return ``value`` as a float strictly between 0 and 1.

    Args:
        value: Number to check, in (0, 1).
        name: Argument's name, for the message.

    Returns:
        The number as a float.

    Raises:
        InputError: Outside (0, 1), NaN, or not a number.

    Example:
        >>> open_unit(0.95, "level")
        0.95
    """
    number = as_number(value)
    if not 0.0 < number < 1.0:
        message = (
            f"{name} is {brief(value)}; allowed: 0 < {name} < 1; pass a share, for example 0.95"
        )
        raise InputError(message)
    return number


def finite(value: float, name: str) -> float:
    """Return ``value`` as a finite float.

    Args:
        value: Number to check.
        name: Argument's name, for the message.

    Returns:
        The number as a float.

    Raises:
        InputError: Infinite, NaN, or not a number.

    Example:
        >>> finite(-2, "low")
        -2.0
    """
    number = as_number(value)
    if not math.isfinite(number):
        message = f"{name} is {brief(value)}; allowed: a finite number; check its source"
        raise InputError(message)
    return number


def positive(value: float, name: str) -> float:
    """Return ``value`` as a finite float above zero.

    Args:
        value: Number to check, in (0, inf).
        name: Argument's name, for the message.

    Returns:
        The number as a float.

    Raises:
        InputError: Zero, negative, infinite, NaN, or not a number.

    Example:
        >>> positive(2, "sd")
        2.0
    """
    number = as_number(value)
    if not (math.isfinite(number) and number > 0.0):
        message = f"{name} is {brief(value)}; allowed: a finite number above 0; check its unit"
        raise InputError(message)
    return number


def count(value: int, name: str, *, at_least: int = 1) -> int:
    """Return ``value`` as a whole number.

    Args:
        value: Number to check, at least ``at_least`` and at most 2^53.
        name: Argument's name, for the message.
        at_least: Smallest allowed number.

    Returns:
        The number as an int.

    Raises:
        InputError: Out of range, a fraction, NaN, or not a number.

    Example:
        >>> count(20.0, "n")
        20
    """
    number = as_number(value)
    if not (at_least <= number <= _LARGEST_COUNT and number == math.floor(number)):
        message = f"{name} is {brief(value)}; allowed: a whole number from {at_least} to 2^53"
        raise InputError(message)
    return int(value)


def sample(values: ArrayLike, name: str, *, at_least: int = 2) -> NDArray[np.float64]:
    """Return ``values`` as a finite one-dimensional float64 array.

    Args:
        values: Numbers, shape (n,).
        name: Argument's name, for the message.
        at_least: Smallest allowed size.

    Returns:
        The numbers, float64 (n,); the caller's own array when it already is one.

    Raises:
        InputError: Another shape, no numbers, too few of them, or any that is NaN, infinite or
            above 1e100 in absolute value.

    Example:
        >>> sample([1, 2], "x")
        array([1., 2.])
    """
    array = numbers(values, name)
    if array.ndim != 1 or array.size < at_least:
        message = (
            f"{name} has shape {array.shape}; allowed: one dimension with at least {at_least} "
            "numbers; pass one number per unit"
        )
        raise InputError(message)
    usable = np.abs(array) <= LARGEST
    if not usable.all():
        where = int(np.argmin(usable))
        message = (
            f"{name}[{where}] is {array[where]}; allowed: finite numbers up to {LARGEST:g} in "
            "absolute value; drop or fix it"
        )
        raise InputError(message)
    return array


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return ``values`` as a float64 array of any shape.

    Args:
        values: Numbers, nested as deep as they are.
        name: Argument's name, for the message.

    Returns:
        The numbers; the caller's own array when it already is one.

    Raises:
        InputError: No numbers, or rows of different lengths.

    Example:
        >>> numbers([[1, 2], [3, 4]], "table").shape
        (2, 2)
    """
    if isinstance(values, np.ma.MaskedArray):
        message = f"{name} is a masked array; masked values are not numbers: drop these"
        raise InputError(message)
    if isinstance(values, _BYTES):  # numpy takes them for numbers
        message = f"{name} is a {type(values).__name__}; allowed: numbers; convert it"
        raise InputError(message)
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "biufO" or _holds_text(given):
            message = f"{name} has type {given.dtype}; allowed: numbers; convert the column"
            raise InputError(message)
        return given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"{name} is not an array of numbers ({error}); allowed: one number per unit"
        raise InputError(message) from error


def _holds_text(given: NDArray[Any]) -> bool:
    return given.dtype.kind == "O" and any(isinstance(one, str | bytes) for one in given.flat)


def check_truth(name: str, value: object) -> None:
    """Refuse a value other than True or False.

    Args:
        name: Argument's name, for the message.
        value: Value to check.

    Raises:
        InputError: Another value.

    >>> check_truth("adaptive", "no")
    Traceback (most recent call last):
    steersman.errors.InputError: adaptive is 'no'; allowed: True or False; pass one of them
    """
    if not isinstance(value, bool | np.bool_):
        message = f"{name} is {brief(value)}; allowed: True or False; pass one of them"
        raise InputError(message)


def as_number(value: SupportsFloat | str) -> float:
    """Return a float, or NaN for a value that is not a number, so that range checks refuse it.

    Args:
        value: Any value; text, true and false give NaN.

    Example:
        >>> as_number("0.95"), as_number(b"1"), as_number(True)
        (nan, nan, nan)
    """
    try:
        return math.nan if isinstance(value, _NO_NUMBERS) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
