"""The seam between those who need a text and whatever language model writes it."""

from __future__ import annotations

from typing import Protocol


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
            prompt: the whole of it.
            max_tokens: the most it may say, 1 or more.
            timeout_s: the most it may take altogether, above 0.

        Returns:
            The text as it came; it may be empty.

        Raises:
            BackendError: no usable answer in that time.
            InputError: an argument out of range; nothing was asked.

        No doctest: it is a Protocol; ``tests/llm`` tries its implementation.
        """
