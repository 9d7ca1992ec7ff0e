"""Short text of values in error messages."""

from __future__ import annotations

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
