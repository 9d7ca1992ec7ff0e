"""Process of a local model: line protocol with timeouts."""

from __future__ import annotations

import contextlib
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = "from steersman.providers.local_worker import main; main()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_MOST_BYTES = 1 << 22
_QUOTED = 300


class LocalProcess:
    """Process of a local model that answers line by line.

    Args:
        told: model settings, in JSON.
        model: model file, for messages.

    Raises:
        OSError: the process cannot be started.

    Attributes:
        asked: whether a request is pending.
    """

    def __init__(self, told: str, model: Path) -> None:
        self.asked = False
        self._model = model
        self._runtime = ""
        self._left = bytearray()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        try:
            self._process = subprocess.Popen(  # noqa: S603 (a program of ours)
                [sys.executable, "-P", "-c", _PROGRAM, told, str(os.getpid())],
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
                said = self._read(until)
            except EOFError:
                said = {"error": self.last_words() or "the process exited"}
            if "error" in said:
                self.end()
                raise DataError(_no_model(self._model, said))
            self._runtime = str(said["runtime"])
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
        said = self._read(until)
        self.asked = False
        return said

    def last_words(self) -> str:
        """Return the exit status of the process and its last line of output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._log.seek(0)
        lines = self._log.read()[-4096:].decode("utf-8", "replace").split("\n")
        told = [line.strip() for line in lines if line.strip()]
        ended = f"exit status {self._process.returncode}"
        return f"{ended}: {told[-1][:_QUOTED]}" if told else ended

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
        said: dict[str, Any] = msgspec.json.decode(line)
        return said


def _wait(number: int, event: int, until: float) -> None:
    """Wait until a pipe is readable, writable or closed; also for file numbers above 1023."""
    poll = select.poll()
    poll.register(number, event)
    if not poll.poll(math.ceil(1e3 * max(0.0, until - time.monotonic()))):
        raise TimeoutError


def _no_model(model: Path, said: dict[str, Any]) -> str:
    if said.get("missing"):
        return (
            f"a local model needs llama.cpp, which is not installed ({said['error']}); "
            f"install it with: {how_to_install('local')}"
        )
    why = str(said["error"])[:_QUOTED]
    return f"llama.cpp cannot run {model}: {why}; check that the file is complete and supported"
