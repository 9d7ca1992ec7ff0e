"""What off-policy evaluation accepts beside the log itself."""

from __future__ import annotations

import numpy as np

from steersman.errors import InputError
from steersman.ope.logged_data import LoggedData


def check_log_and_seed(data: object, seed: object) -> None:
    """Refuse what is no log, or no seed.

    Args:
        data: a `LoggedData`.
        seed: a whole number of at least 0.

    Raises:
        InputError: it is something else.

    >>> check_log_and_seed(None, 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    steersman.errors.InputError: data is NoneType; allowed is a log: pass LoggedData(actions, ...)
    """
    if not isinstance(data, LoggedData):
        message = (
            f"data is {type(data).__name__}; allowed is a log: pass "
            "LoggedData(actions, rewards, propensities, target)"
        )
        raise InputError(message)
    check_whole("seed", seed, 0)


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number, or less than the least.

    Args:
        name: of the argument.
        value: what was given.
        least: that is allowed.

    Raises:
        InputError: it is something else.

    >>> check_whole("seed", -1, 0)
    Traceback (most recent call last):
    steersman.errors.InputError: seed is -1; allowed is a whole number of at least 0
    """
    if not (isinstance(value, int | np.integer) and value >= least):
        message = f"{name} is {value!r}; allowed is a whole number of at least {least}"
        raise InputError(message)
