"""Short text of values in error messages."""

from __future__ import annotations

from dataclasses import fields
from math import isfinite
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_numbers(settings: Any, ranges: Mapping[str, str]) -> None:
    """Raise an error for settings of a wrong type or out of range.

    `ranges`: allowed range by field: ``">= 1"``, ``"[0, 1]"``, ``"(0, 0.5]"``.

    Raises:
        InputError: lists every wrong field, its value and its range.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Walk:
    ...     steps: int
    ...     slope: float
    >>> check_numbers(Walk(3, 0.5), {"steps": ">= 1", "slope": "[0, 1)"})
    >>> check_numbers(Walk(2.5, 1.0), {"steps": ">= 1", "slope": "[0, 1)"})
    Traceback (most recent call last):
        ...
    steersman.errors.InputError: steps is 2.5; allowed are whole numbers >= 1; slope is 1.0; ...
    """
    wrong = []
    for one in fields(settings):
        value: Any = getattr(settings, one.name)
        whole = one.type in {"int", int}
        if not whole and one.type not in {"float", float}:
            continue
        wanted = ranges.get(one.name, "")
        number = not isinstance(value, bool) and isinstance(value, Integral if whole else Real)
        if not (number and isfinite(value) and _within(value, wanted)):
            allowed = f"{'whole' if whole else 'finite'} numbers {wanted}".rstrip()
            wrong.append(f"{one.name} is {value!r}; allowed are {allowed}")
    if wrong:
        raise InputError("; ".join(wrong))


def _within(value: float, wanted: str) -> bool:
    if not wanted:
        return True
    if wanted.startswith(">"):
        sign, _, end = wanted.partition(" ")
        return value >= float(end) if sign == ">=" else value > float(end)
    low, high = (float(end) for end in wanted[1:-1].split(","))
    above = value >= low if wanted[0] == "[" else value > low
    return above and (value <= high if wanted[-1] == "]" else value < high)


__all__ = ["brief"]

_MOST = 80


def brief(value: object) -> str:
    """Return the repr of any value, cut to 80 characters. Never raises an error.

    >>> brief([0.5, None])
    '[0.5, None]'
    >>> len(brief("x" * 1_000_000))
    80
    >>> brief(10**5000)
    'int with too many digits'
    """
    try:
        text = repr(value)
    except RecursionError:
        text = f"{type(value).__name__} nested too deeply"
    except Exception as error:  # noqa: BLE001 - a user's repr may raise anything
        long = isinstance(error, ValueError) and "digits" in str(error)  # more than 4,300
        text = (
            f"{type(value).__name__} {'with too many digits' if long else 'that cannot be shown'}"
        )
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
