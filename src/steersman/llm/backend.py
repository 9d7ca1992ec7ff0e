"""The seam between those who need a text and whatever language model writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class Backend(Protocol):
    """Something that completes prompts: a server, or a model within this process.

    Every implementation keeps its time, and tells what went wrong as a `BackendError` and nothing
    else, so that whoever asks can fall back to something simpler.
    """

    @property
    def name(self) -> str:
        """What tells its answers from another's: part of the key wherever they are cached."""

    def complete(self, prompt: str, *, max_tokens: int, timeout_s: float) -> str:
        """Return what the model says to a prompt.

        Args:
            prompt: complete prompt.
            max_tokens: maximum answer tokens, ≥ 1.
            timeout_s: total timeout in seconds, > 0.

        Returns:
            The text as it came; it may be empty.

        Raises:
            BackendError: no usable answer in that time; a `BackendAnswerError` tells whether it is
                this prompt that is not taken.
            InputError: an argument is out of range; no request was sent.
        """


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model said, and what it counted.

    Attributes:
        text: as it came.
        prompt_tokens: of the prompt, ≥ 0; None: not told.
        answer_tokens: of the answer, ≥ 0; None: not told.
    """

    text: str
    prompt_tokens: int | None = None
    answer_tokens: int | None = None


@runtime_checkable
class MeteredBackend(Backend, Protocol):
    """A backend that tells how many tokens it counted, by which the paid ones charge."""

    def completion(self, prompt: str, *, max_tokens: int, timeout_s: float) -> Completion:
        """Return what `complete` does, with the tokens that were counted.

        Args:
            prompt: complete prompt.
            max_tokens: maximum answer tokens, ≥ 1.
            timeout_s: total timeout in seconds, > 0.

        Returns:
            The text and the counts; one that was not told, or is none, is None.

        Raises:
            BackendError: no usable answer in that time.
            InputError: an argument is out of range; no request was sent.
        """
