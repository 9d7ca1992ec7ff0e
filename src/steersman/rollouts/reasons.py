"""Reasons given by people: one line of text, because rollouts print them everywhere."""

from __future__ import annotations

from unicodedata import category

from steersman.errors import InputError

_LONGEST = 500
_NEVER = frozenset({"Cc", "Zl", "Zp"})
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def checked_reason(reason: str, *, name: str = "reason") -> str:
    """Return a reason without surrounding spaces.

    Control characters for terminals are refused, so that the audit log shows what was written.

    Raises:
        InputError: empty, too long, several lines, or control characters.

    >>> checked_reason(" the latency alert ")
    'the latency alert'
    """
    shown = reason.strip()
    if not 1 <= len(shown) <= _LONGEST:
        message = f"the {name} has {len(shown)} characters; allowed are 1 to {_LONGEST}"
        raise InputError(message + "; give a reason for the audit log")
    bad = next((it for it in shown if category(it) in _NEVER or it in _TURNING), None)
    if bad is not None:
        message = f"the {name} has the character {bad!a}; allowed is one line of plain text"
        raise InputError(message + "; remove it")
    return shown
