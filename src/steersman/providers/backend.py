"""Backend interface: the boundary between callers and language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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
