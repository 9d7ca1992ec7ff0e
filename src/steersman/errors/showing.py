"""Values as messages show them."""

from __future__ import annotations

__all__ = ["brief"]

_MOST = 80


def brief(value: object) -> str:
    """Return a value as a message shows it: at most 80 characters, and never an error of its own.

    Args:
        value: anything.

    >>> brief([0.5, None])
    '[0.5, None]'
    >>> len(brief("x" * 1_000_000))
    80
    >>> brief(10**5000)
    'int of too many digits'
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        text = f"{type(value).__name__} of too many digits"
    except RecursionError:
        text = f"{type(value).__name__} nested too deeply"
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
