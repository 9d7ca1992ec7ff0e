"""Validation of context values.

Absent, ``None`` and NaN are all *missing*; each field declares how to handle it.
"""

from __future__ import annotations

from math import isfinite, isnan
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_CATEGORY_CHARS = 500
_TRUTHS = frozenset({bool, np.bool_})


def is_missing(value: object) -> bool:
    """Return whether ``value`` is None or NaN."""
    if value is None:
        return True
    if type(value) is str:
        return False
    return isinstance(value, float | np.floating) and isnan(value)


def refuse_missing(name: str) -> InputError:
    """Return the error for a missing required field."""
    return InputError(
        f"context field {name!r} is missing and declared `missing: refuse`; send it, or change "
        "`missing`"
    )


def as_text(name: str, value: object, max_chars: int, *, truncate: bool) -> str:
    """Return a text of at most ``max_chars`` characters.

    Raises:
        InputError: not a string, or too long and not to be truncated.
    """
    if not isinstance(value, str):
        raise _wrong_type(name, value, "text (str)", "send str(value) to convert it")
    if len(value) <= max_chars:
        return value
    if truncate:
        return value[:max_chars]
    message = (
        f"context field {name!r} has {len(value):,} characters; allowed at most {max_chars:,}; "
        "shorten it, or declare `too_long: truncate`"
    )
    raise InputError(message)


def as_category(name: str, value: object) -> str:
    """Return the name of a category.

    Raises:
        InputError: not a string, or longer than 500 characters.
    """
    if not isinstance(value, str):
        raise _wrong_type(name, value, "a name (str)", "send str(value) to convert it")
    if len(value) > MAX_CATEGORY_CHARS:
        message = (
            f"context field {name!r} has a name of {len(value):,} characters; allowed at most "
            f"{MAX_CATEGORY_CHARS}; declare the field as text"
        )
        raise InputError(message)
    return value


def as_number(name: str, value: object) -> float:
    """Return a finite number.

    Raises:
        InputError: not a number (true and false are none), infinite, or too large for a float.
    """
    if type(value) is float and isfinite(value):
        return value  # what nearly every number is, without asking the abstract classes
    # numpy takes a duration for a whole number, of whatever unit.
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, int | Real):
        advice = "send a number, or declare the field as a category"
        raise _wrong_type(name, value, "a number", advice)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if isfinite(number):
        return number
    message = (
        f"context field {name!r} is not finite (got {shown(value)}); allowed: any finite "
        "number; send None for an unknown value"
    )
    raise InputError(message)


def as_vector(name: str, value: object, size: int) -> NDArray[np.float64]:
    """Return a vector of ``size`` finite numbers, float64.

    Raises:
        InputError: not a flat list or array of ``size`` finite numbers.
    """
    wanted = f"a flat list or array of {size} numbers"
    masked = isinstance(value, np.ma.MaskedArray)  # a masked entry has no value
    if masked or not isinstance(value, list | tuple | np.ndarray):
        raise _wrong_type(name, value, wanted, "send its numbers")
    array = _as_array(value, size)
    if array.shape != (size,):
        shape = "×".join(map(str, array.shape)) or "no"
        message = f"context field {name!r} got {shape} entries; allowed: {wanted}"
        raise InputError(f"{message}; send a vector of the declared size")
    if array.dtype.kind not in "fiu":
        raise _wrong_type(name, value, wanted, "send numbers only")
    vector = array.astype(np.float64)
    # In a list true and false became 1 and 0; who holds neither, as embeddings do, is not asked.
    listed = not isinstance(value, np.ndarray) and ((vector == 0.0) | (vector == 1.0)).any()
    if listed and not _TRUTHS.isdisjoint(map(type, value)):
        place = next(place for place, one in enumerate(value) if type(one) in _TRUTHS)
        got = f"context field {name!r} got {shown(value[place])} at entry {place}"
        raise InputError(f"{got}; allowed: {wanted}; send numbers only")
    if np.isfinite(vector).all():
        return vector
    place = int(np.flatnonzero(~np.isfinite(vector))[0])
    message = (
        f"context field {name!r} is not finite at entry {place} (got {vector[place]}); "
        "allowed: finite numbers; send None if the vector is unknown"
    )
    raise InputError(message)


def shown(value: object) -> str:
    """Return the type of a value for an error message, with the value if it is short."""
    huge = isinstance(value, int) and value.bit_length() > 200  # Python refuses to print some
    plain = repr(value) if isinstance(value, str | bool | int | float) and not huge else ""
    return f"{type(value).__name__} {plain[:60]}".strip()


def _wrong_type(name: str, value: object, wanted: str, advice: str) -> InputError:
    return InputError(f"context field {name!r} got {shown(value)}; allowed: {wanted}; {advice}")


def _as_array(
    value: list[object] | tuple[object, ...] | NDArray[np.generic], size: int
) -> NDArray[np.generic]:
    # The length is looked at before anything is copied.
    if not isinstance(value, np.ndarray) and len(value) != size:
        return np.broadcast_to(np.float64(0.0), len(value))
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty(size, dtype=object)
