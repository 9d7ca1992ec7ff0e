"""Outcomes: named numbers that arrive after a decision."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from numbers import Real

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief


@dataclass(frozen=True, slots=True)
class Outcome:
    """Named number with its time.

    Attributes:
        name: name of the outcome, such as ``success`` or ``latency_ms``; not blank.
        value: any finite number; true and false count as 1 and 0.
        at: time of the outcome in seconds on the clock of the decision, not the time of arrival.
        decision: id of the decision. None: the whole episode.
    """

    name: str
    value: float
    at: float
    decision: str | None = None

    def __post_init__(self) -> None:
        """Validate and convert the fields."""
        outcome_name(self.name)
        if self.decision is not None:
            text(f"decision of outcome {self.name!r}", self.decision)
        object.__setattr__(self, "value", finite(f"outcome {self.name!r}", self.value))
        object.__setattr__(self, "at", finite(f"time of outcome {self.name!r}", self.at))


def outcome_name(value: object) -> str:
    """Return ``value`` if it is a valid outcome name.

    Args:
        value: a name.

    Raises:
        InputError: not a string, or a blank one.
    """
    name = text("outcome name", value)
    if name and not name.isspace():
        return name
    message = f"outcome name is {brief(name)}; allowed: a name that is not blank"
    raise InputError(f"{message}; name the measured quantity, such as 'success'")


def text(what: str, value: object) -> str:
    """Return ``value`` if it is a string.

    Args:
        what: name of the value in errors.
        value: a name.

    Raises:
        InputError: not a string.
    """
    if isinstance(value, str):
        return value
    message = f"{what} got {type(value).__name__} {brief(value)}; allowed: text (str)"
    raise InputError(f"{message}; send str(value) to convert it")


def finite(what: str, value: object) -> float:
    """Return ``value`` as a finite float.

    Args:
        what: name of the value in errors.
        value: a number; true and false count as 1 and 0.

    Raises:
        InputError: not a number, NaN, infinite, or too large for a float.
    """
    if type(value) is float and isfinite(value):  # nearly always
        return value
    duration = isinstance(value, np.timedelta64)  # numpy takes it for a whole number
    if duration or not isinstance(value, Real | np.bool_):
        message = f"{what} got {type(value).__name__} {brief(value)}; allowed: a finite number"
        raise InputError(f"{message}; send a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if isfinite(number):
        return number
    message = f"{what} got {type(value).__name__} {number}; allowed: a finite number"
    raise InputError(f"{message}; omit an unknown value")
