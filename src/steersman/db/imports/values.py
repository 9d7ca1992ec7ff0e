"""Value parsing of log rows, lenient but never misleading.

CSV has only text, and logs write values in many ways: text becomes a number where a number is
declared, and several time formats are parsed.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.db.imports.mapping import Time, Value
    from steersman.spec.context import ContextField

_UNITS = {"unix_s": 1.0, "unix_ms": 1e-3, "unix_us": 1e-6}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRUTHS = {"true": 1.0, "false": 0.0}
_zone = lru_cache(maxsize=64)(ZoneInfo)


def lookup(row: Mapping[str, Any], field: str) -> Any:
    """Return a field of a row, nested with dots; None if absent, empty or NaN.

    >>> lookup({"nlu": {"intent": "weather"}, "a.b": 1}, "nlu.intent")
    'weather'
    """
    value: Any = row.get(field)
    if value is None and field not in row:
        value = row
        for part in field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if value in ("", b"") or (isinstance(value, float) and value != value):  # noqa: PLR0124 (NaN)
        return None
    return value


def valued(row: Mapping[str, Any], value: Value) -> Any:
    """Return a mapped value: looked up, renamed, or its default."""
    found = lookup(row, value.field)
    if found is None:
        return value.default
    return value.rename.get(as_text(found), found) if value.rename else found


def as_text(value: Any) -> str:
    """Return a name as text; booleans as in JSON.

    Some Parquet writers do not mark text, so bytes are read as UTF-8.

    Raises:
        InputError: the value is a list or mapping, or bytes that are not UTF-8.
    """
    if isinstance(value, list | tuple | dict):
        message = f"{value!r:.60} is not a name; allowed are strings, numbers and booleans; "
        raise InputError(message + "correct the row or the mapping")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return _decoded_text(value)
    return value if isinstance(value, str) else str(value)


def as_float(what: str, value: Any) -> float:
    """Return a finite number; booleans count as 1 and 0.

    Raises:
        InputError: not a finite number.
    """
    try:
        text = value.strip().lower() if isinstance(value, str) else value
        number = _TRUTHS[text] if text in _TRUTHS else float(text)
        if isinstance(text, str) and "_" in text:  # Python's digit separator
            number = float("nan")
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if isfinite(number):
        return number
    message = f"{what} is {value!r:.60}; allowed is a finite number; correct the row or the mapping"
    raise InputError(message)


def as_list(what: str, value: Any) -> list[Any]:
    """Return a list; text is parsed as JSON or split at ``|``.

    Raises:
        InputError: not a list.
    """
    if isinstance(value, str):
        value = _decoded(value) if value.lstrip().startswith("[") else value.split("|")
    if isinstance(value, list | tuple):
        return list(value)
    message = f"{what} is {value!r:.60}; allowed is a list; correct the row or the mapping"
    raise InputError(message)


def as_mapping(what: str, value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return values by action, from a mapping, a list in the order of ``names``, or JSON text.

    Raises:
        InputError: neither a mapping nor a list of the right length.
    """
    if isinstance(value, str):
        value = _decoded(value)
    if isinstance(value, list | tuple) and len(value) == len(names):
        return dict(zip(names, value, strict=True))
    if isinstance(value, dict):
        return {as_text(name): entry for name, entry in value.items()}
    message = f"{what} is {value!r:.60}; allowed are a mapping by action, or a list of "
    raise InputError(f"{message}{len(names)}; correct the row or the mapping")


def as_context(name: str, field: ContextField, value: Any) -> Any:
    """Return a context value in its declared type; None stays None.

    Raises:
        InputError: not a number, or not a list for a vector.
    """
    if value is None:
        return None
    if field.type == "number":
        return as_float(f"context field {name!r}", value)
    if field.type == "vector":
        return [as_float(f"context field {name!r}", entry) for entry in as_list(name, value)]
    return as_text(value)


def as_moment(value: Any, time: Time, latest: datetime) -> datetime:
    """Return a time in UTC, to the microsecond.

    Raises:
        InputError: wrong format, before 1970, or later than ``latest``.
    """
    try:
        moment = _parsed(value, time)
    except (TypeError, ValueError, OverflowError, re.error):  # the last one: an invalid pattern
        message = f"the time is {value!r:.60}; allowed is {time.format}; correct the row or the "
        raise InputError(message + "mapping") from None
    if _EPOCH <= moment <= latest:
        return moment
    message = (
        f"the time is {moment.isoformat()}; allowed is 1970 to {latest.isoformat()}; check the "
    )
    raise InputError(message + f"format {time.format}")


def _parsed(value: Any, time: Time) -> datetime:
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime.combine(value, clock_time())
    elif time.format in _UNITS:
        if isinstance(value, bool):
            raise TypeError
        moment = _EPOCH + timedelta(seconds=float(value) * _UNITS[time.format])
    elif not isinstance(value, str):
        raise TypeError
    elif time.format == "iso":
        moment = datetime.fromisoformat(value.strip())
    else:
        moment = datetime.strptime(value.strip(), time.format)  # noqa: DTZ007 (below)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(time.timezone))
    return moment.astimezone(UTC)


def _decoded_text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        message = (
            f"{value!r:.60} is not text; allowed are bytes in UTF-8 without U+0000; leave the "
        )
        raise InputError(message + "column out, or convert it to text")
    return text


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text
