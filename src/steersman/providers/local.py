"""Local backend: a GGUF model run by llama.cpp in a separate process, on one thread."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec

from steersman.errors import BackendAnswerError, BackendUnavailableError, DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.providers.backend import Completion, check_asked, encoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PROGRAM = "from steersman.providers.local_worker import main; main()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_MOST_BYTES = 1 << 22


class LocalProcess:
    """Process of a local model that answers line by line.

    Args:
        settings: model settings, in JSON.
        model: model file, for messages.

    Raises:
        OSError: the process cannot be started.

    Attributes:
        asked: whether a request is pending.
    """

    def __init__(self, settings: str, model: Path) -> None:
        self.asked = False
        self._model = model
        self._runtime = ""
        self._left = bytearray()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, "-P", "-c", _PROGRAM, settings, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                env={**os.environ, **_ONE_THREAD},
            )
        except BaseException:
            self._log.close()
            raise
        os.set_blocking(self._number("stdin"), False)

    def ready(self, until: float) -> str:
        """Return the runtime name as soon as the model is loaded.

        Raises:
            TimeoutError: not loaded before ``until`` (monotonic clock).
            DataError: loading failed; the message says why.
        """
        if not self._runtime:
            try:
                reply = self._read(until)
            except EOFError:
                reply = {"error": self.last_words() or "the process exited"}
            if "error" in reply:
                self.end()
                raise DataError(_no_model(self._model, reply))
            self._runtime = str(reply["runtime"])
        return self._runtime

    def ask(self, line: bytes, until: float) -> dict[str, Any]:
        """Return the answer to a line of JSON.

        Raises:
            TimeoutError: no answer before ``until``; the process must be stopped.
            EOFError: the process exited.
            OSError: the process exited.
        """
        self.asked = True
        self._write(line, until)
        reply = self._read(until)
        self.asked = False
        return reply

    def last_words(self) -> str:
        """Return the exit status of the process and its last line of output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._log.seek(0)
        lines = self._log.read()[-4096:].decode("utf-8", "replace").split("\n")
        output = [line.strip() for line in lines if line.strip()]
        ended = f"exit status {self._process.returncode}"
        return f"{ended}: {output[-1][:_QUOTED]}" if output else ended

    def end(self) -> None:
        """Kill the process; idempotent."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()
        self._log.close()

    def _number(self, name: str) -> int:
        number: int = getattr(self._process, name).fileno()
        return number

    def _write(self, line: bytes, until: float) -> None:
        left, stdin = memoryview(line), self._number("stdin")
        while left:
            _wait(stdin, select.POLLOUT, until)
            left = left[os.write(stdin, left) :]

    def _read(self, until: float) -> dict[str, Any]:
        stdout = self._number("stdout")
        while b"\n" not in self._left:
            _wait(stdout, select.POLLIN, until)
            part = os.read(stdout, 1 << 16)
            if not part or len(self._left) > _MOST_BYTES:
                raise EOFError
            self._left += part
        line, _, rest = bytes(self._left).partition(b"\n")
        self._left = bytearray(rest)
        reply: dict[str, Any] = msgspec.json.decode(line)
        return reply


def _wait(number: int, event: int, until: float) -> None:
    """Wait until a pipe is readable, writable or closed; also for file numbers above 1023."""
    poll = select.poll()
    poll.register(number, event)
    if not poll.poll(math.ceil(1e3 * max(0.0, until - time.monotonic()))):
        raise TimeoutError


def _no_model(model: Path, reply: dict[str, Any]) -> str:
    if reply.get("missing"):
        return (
            f"a local model needs llama.cpp, which is not installed ({reply['error']}); "
            f"install it with: {how_to_install('local')}"
        )
    why = str(reply["error"])[:_QUOTED]
    return f"llama.cpp cannot run {model}: {why}; check that the file is complete and supported"


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
            prompt. `UNTOLD` sends the bare prompt, for a base model that continues a text.
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
        identity = f"{_digest(model)} {template}" + (f" {self._stop!r}" if stop else "")
        self._digest = hashlib.sha256(identity.encode()).hexdigest()
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
            reply = self._reply(line, until, timeout_s)
        finally:
            self._turn.release()
        if "error" in reply:
            advice = "shorten the prompt or max_tokens, or increase context_tokens"
            message = f"{self!r}: {str(reply['error'])[:_QUOTED]}; {advice}"
            raise BackendAnswerError(message, of_prompt=isinstance(reply.get("status"), int))
        return Completion(str(reply["text"]), reply["prompt_tokens"], reply["answer_tokens"])

    def close(self) -> None:
        """Stop the process; the next call starts a new one."""
        with self._turn:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reply(self, line: bytes, until: float, timeout_s: float) -> dict[str, Any]:
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
