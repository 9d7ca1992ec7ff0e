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
    'int with too many digits'
    """
    try:
        text = repr(value)
    except RecursionError:
        text = f"{type(value).__name__} nested too deeply"
    except Exception as error:  # noqa: BLE001 - whatever a class of somebody's says of itself
        long = isinstance(error, ValueError) and "digits" in str(error)  # of more than 4,300
        text = (
            f"{type(value).__name__} {'with too many digits' if long else 'that cannot be shown'}"
        )
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
