"""Validation of the arguments of off-policy evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.ope.logged_data import LoggedData


def check_log_and_seed(data: object, seed: object) -> None:
    """Refuse an invalid log or seed.

    Args:
        data: a `LoggedData`.
        seed: a whole number of at least 0.

    Raises:
        InputError: invalid value.

    >>> check_log_and_seed(None, 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    steersman.errors.InputError: data is NoneType; allowed: a log: pass LoggedData(actions, ...)
    """
    check_log(data)
    check_whole("seed", seed, 0)


def check_log(data: object) -> None:
    """Refuse an invalid log.

    Args:
        data: a `LoggedData`.

    Raises:
        InputError: invalid value.

    >>> check_log(LoggedData([0], [1.0], [0.5], [[1.0]]))
    """
    if not isinstance(data, LoggedData):
        message = (
            f"data is {type(data).__name__}; allowed: a log: pass LoggedData(actions, rewards, "
            "propensities, target)"
        )
        raise InputError(message)


def one_or_more(given: Any) -> tuple[Any, ...]:
    """Return one value or several values as a tuple.

    Args:
        given: one thing, of which a text is one, or several of them.

    >>> one_or_more("dr"), one_or_more(["ips", "dr"]), one_or_more(None)
    (('dr',), ('ips', 'dr'), (None,))
    """
    alone = isinstance(given, str) or not isinstance(given, Iterable)
    if alone or (isinstance(given, np.ndarray) and given.ndim == 0):
        return (given,)
    return tuple(given)


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse a value that is not a whole number within the limits.

    Args:
        name: of the argument.
        value: the given value; booleans are refused.
        least: that is allowed.
        most: that is allowed; None: there is none.

    Raises:
        InputError: invalid value.

    >>> check_whole("seed", -1, 0)
    Traceback (most recent call last):
    steersman.errors.InputError: seed is -1; allowed: a whole number of at least 0; pass one
    """
    number = least - 1  # other types fail the check below
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
        number = int(value)
    if number < least or (most is not None and number > most):
        bounds = f"of at least {least}" if most is None else f"from {least:,} to {most:,}"
        message = f"{name} is {brief(value)}; allowed: a whole number {bounds}; pass one"
        raise InputError(message)
