"""Checks of arguments that every statistical function shares."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def open_unit(value: float, name: str) -> float:
    """Return ``value`` as a float strictly between 0 and 1.

    Args:
        value: Number to check, in (0, 1).
        name: Argument's name, for the message.

    Returns:
        The number as a float.

    Raises:
        InputError: Outside (0, 1), or NaN.

    Example:
        >>> open_unit(0.95, "level")
        0.95
    """
    number = float(value)
    if not 0.0 < number < 1.0:
        message = f"{name} is {value!r}; allowed is 0 < {name} < 1; give it as a share, e.g. 0.95"
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
        InputError: Zero, negative, infinite or NaN.

    Example:
        >>> positive(2, "sd")
        2.0
    """
    number = float(value)
    if not (math.isfinite(number) and number > 0.0):
        message = f"{name} is {value!r}; allowed is a finite number above 0; check its unit"
        raise InputError(message)
    return number


def sample(values: ArrayLike, name: str, *, at_least: int = 2) -> NDArray[np.float64]:
    """Return ``values`` as a finite one-dimensional float64 array.

    Args:
        values: Numbers, shape (n,).
        name: Argument's name, for the message.
        at_least: Smallest size that the caller can work with.

    Returns:
        The numbers, float64 (n,); the caller's own array when it already is one.

    Raises:
        InputError: Another shape, too few numbers, or any that is NaN or infinite.

    Example:
        >>> sample([1, 2], "x")
        array([1., 2.])
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size < at_least:
        message = (
            f"{name} has shape {array.shape}; allowed is one dimension with at least "
            f"{at_least} numbers; pass one number per unit"
        )
        raise InputError(message)
    finite = np.isfinite(array)
    if not finite.all():
        where = int(np.argmin(finite))
        message = f"{name}[{where}] is {array[where]}; allowed are finite numbers; drop or mend it"
        raise InputError(message)
    return array
