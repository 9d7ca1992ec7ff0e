"""Backend interface: the boundary between callers and language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

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


class Backend(Protocol):
    """Interface of a language model that completes prompts: a server, or a local model.

    Implementations respect the timeout and raise only `BackendError`, so that callers can fall
    back.
    """

    @property
    def name(self) -> str:
        """Unique name of the model; part of every cache key."""

    def complete(self, prompt: str, *, max_tokens: int, timeout_s: float) -> str:
        """Return the model's answer to a prompt.

        Args:
            max_tokens: maximum answer tokens, ≥ 1.
            timeout_s: total timeout in seconds, > 0.

        Returns:
            The unchanged text; it may be empty.

        Raises:
            BackendError: no usable answer in time; `BackendAnswerError` if the model rejects this
                prompt.
            InputError: an argument is out of range; no request was sent.
        """


@dataclass(frozen=True, slots=True)
class Completion:
    """Answer of a model with token counts.

    Attributes:
        text: unchanged text.
        prompt_tokens: tokens of the prompt, ≥ 0; None: not reported.
        answer_tokens: tokens of the answer, ≥ 0; None: not reported.
    """

    text: str
    prompt_tokens: int | None = None
    answer_tokens: int | None = None


@runtime_checkable
class MeteredBackend(Backend, Protocol):
    """Backend that also reports token counts, the basis of most prices."""

    def completion(self, prompt: str, *, max_tokens: int, timeout_s: float) -> Completion:
        """Return the model's answer with token counts.

        Args:
            max_tokens: maximum answer tokens, ≥ 1.
            timeout_s: total timeout in seconds, > 0.

        Returns:
            The text and the counts; a missing or invalid count is None.

        Raises:
            BackendError: no usable answer in time.
            InputError: an argument is out of range; no request was sent.
        """
