"""Local backend: a GGUF model run by llama.cpp in a separate process, on one thread."""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec

from steersman.errors import BackendAnswerError, BackendUnavailableError, DataError, InputError
from steersman.providers.backend import Completion
from steersman.providers.local_process import LocalProcess
from steersman.providers.request import check_asked, encoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNTOLD = "{% for one in messages %}{{ one.content }}{% endfor %}"
"""Chat template of the prompt alone."""
_START_S = 120.0
_QUOTED = 300


class LocalBackend:
    """Backend for a GGUF file, run by llama.cpp: no server, key or cost.

    It decodes greedily, so a prompt always has the same answer on one machine. It runs one prompt
    at a time; waiting counts towards the timeout. The model runs in a separate process, which is
    replaced after a timeout or a crash.

    Small models are fast but often wrong: compare their judgements with people first.

    Args:
        model: GGUF file.
        context_tokens: context size for prompt and answer, 256 to 131,072; it uses memory. More
            than the training context of the model has no benefit.
        template: chat template in Jinja; "": the one in the file, which may add text to every
            prompt. `UNTOLD` is the prompt alone, for a base model that continues a text.
        stop: stop strings, for example a line break.

    Raises:
        DataError: the file is missing, not a model, or not loaded within two minutes, or the
            extra ``local`` is not installed.
        BackendUnavailableError: the process cannot be started.
        InputError: `context_tokens` is out of range.
    """

    def __init__(
        self,
        model: Path,
        *,
        context_tokens: int = 4096,
        template: str = "",
        stop: Sequence[str] = (),
    ) -> None:
        if not 256 <= context_tokens <= 131_072:
            raise InputError(f"context_tokens is {context_tokens!r}; allowed: 256 to 131072")
        self._model = model
        self._template = template
        self._context_tokens = context_tokens
        self._turn = threading.Lock()
        self._stop = tuple(stop)
        told = f"{_digest(model)} {template}" + (f" {self._stop!r}" if stop else "")
        self._digest = hashlib.sha256(told.encode()).hexdigest()
        self._process: LocalProcess | None = self._started()
        try:
            self._runtime = self._process.ready(time.monotonic() + _START_S)
        except TimeoutError:
            self._drop()
            message = f"{model} was not loaded within {_START_S:g} s; use a smaller model, "
            raise DataError(message + "a faster disk, or fewer context_tokens") from None
        except BaseException:
            self._drop()
            raise

    def __repr__(self) -> str:
        return f"LocalBackend({self._model.name!r})"

    @property
    def name(self) -> str:
        """Runtime, weights, template, stop strings and context size."""
        return f"{self._runtime}#{self._model.name}#{self._digest[:16]}#{self._context_tokens}"

    def complete(self, prompt: str, *, max_tokens: int = 64, timeout_s: float = 60.0) -> str:
        """Return the model's answer to a prompt, decoded greedily.

        Args:
            prompt: complete prompt, 1 to 200,000 characters.
            max_tokens: maximum answer tokens, 1 to 100,000; default 64.
            timeout_s: total timeout in seconds, 0.001 to 3600.

        Raises:
            BackendUnavailableError: no answer in time, or the process exited or cannot be started;
                the next call starts a new one.
            BackendAnswerError: the model rejects the prompt, for example for its length, or its
                process failed.
            InputError: an argument is out of range; no request was sent.
        """
        return self.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s).text

    def completion(
        self, prompt: str, *, max_tokens: int = 64, timeout_s: float = 60.0
    ) -> Completion:
        """Return the model's answer with token counts.

        Raises:
            BackendUnavailableError: as `complete` does.
            BackendAnswerError: as `complete` does.
            InputError: as `complete` does.
        """
        check_asked(prompt, max_tokens, timeout_s)
        line = encoded({"prompt": prompt, "max_tokens": max_tokens, "stop": self._stop}) + b"\n"
        until = time.monotonic() + timeout_s
        if not self._turn.acquire(timeout=timeout_s):
            message = (
                f"{self!r}: timeout after {timeout_s:g} s behind other prompts; send fewer at once"
            )
            raise BackendUnavailableError(message, asked=False)
        try:
            said = self._said(line, until, timeout_s)
        finally:
            self._turn.release()
        if "error" in said:
            advice = "shorten the prompt or max_tokens, or increase context_tokens"
            message = f"{self!r}: {str(said['error'])[:_QUOTED]}; {advice}"
            raise BackendAnswerError(message, of_prompt=isinstance(said.get("status"), int))
        return Completion(str(said["text"]), said["prompt_tokens"], said["answer_tokens"])

    def close(self) -> None:
        """Stop the process; the next call starts a new one."""
        with self._turn:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _said(self, line: bytes, until: float, timeout_s: float) -> dict[str, Any]:
        process = self._process or self._started()
        self._process = process
        try:
            process.ready(until)
            return process.ask(line, until)
        except TimeoutError:
            if process.asked:  # prompt processing cannot be interrupted
                self._drop()
                with suppress(BackendUnavailableError):  # the next call retries it
                    self._process = self._started()
            message = f"{self!r}: no answer within {timeout_s:g} s; allow more time or fewer tokens"
            raise BackendUnavailableError(message) from None
        except (EOFError, OSError, DataError) as error:
            why = str(error) or process.last_words()
            self._drop()
            message = f"{self!r}: the model process exited ({why}); check the free memory"
            raise BackendUnavailableError(message) from None
        except BaseException:
            self._drop()  # a late answer must not reach the next caller
            raise

    def _started(self) -> LocalProcess:
        about = {
            "model": str(self._model),
            "context_tokens": self._context_tokens,
            "template": self._template,
        }
        try:
            return LocalProcess(msgspec.json.encode(about).decode(), self._model)
        except OSError as error:
            message = (
                f"{self!r}: cannot start the model process ({error}); close files or end processes"
            )
            raise BackendUnavailableError(f"{message}, then retry", asked=False) from None

    def _drop(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None


def _digest(model: Path) -> str:
    try:
        with model.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise DataError(f"{model} is not a GGUF file; pass model weights in GGUF format")
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        message = f"the model {model} cannot be read: {error.strerror}; pass a GGUF file"
        raise DataError(message) from None
