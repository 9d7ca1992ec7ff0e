"""Request validation and encoding for all backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PROMPT_CHARACTERS = 200_000


def check_asked(prompt: str, max_tokens: int, timeout_s: float) -> None:
    """Check the arguments of a request.

    Args:
        prompt: 1 to 200,000 characters.
        max_tokens: 1 to 100,000.
        timeout_s: 0.001 to 3600 seconds.

    Raises:
        InputError: an argument is out of range.

    >>> check_asked("Why?", 0, 1.0)
    Traceback (most recent call last):
    steersman.errors.InputError: max_tokens is 0; allowed: 1 to 100000
    """
    if not 1 <= len(prompt) <= MAX_PROMPT_CHARACTERS:
        allowed = f"allowed: 1 to {MAX_PROMPT_CHARACTERS}; shorten it"
        raise InputError(f"the prompt has {len(prompt)} characters; {allowed}")
    if not 1 <= max_tokens <= 100_000:
        raise InputError(f"max_tokens is {max_tokens!r}; allowed: 1 to 100000")
    if not 0.001 <= timeout_s <= 3600:
        raise InputError(f"timeout_s is {timeout_s!r}; allowed: 0.001 to 3600 seconds")


def encoded(request: Mapping[str, Any]) -> bytes:
    """Return a request as JSON.

    Raises:
        InputError: the prompt is not valid Unicode.

    >>> encoded({"max_tokens": 8})
    b'{"max_tokens":8}'
    """
    try:
        return msgspec.json.encode(request)
    except UnicodeEncodeError:
        message = "the prompt holds a lone surrogate; send valid Unicode"
        raise InputError(message) from None
