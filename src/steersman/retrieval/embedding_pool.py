"""Embedding on several cores: one-thread worker processes that are replaced when they die.

Workers are separate programs that exchange frames over standard streams. Nothing is pickled, and a
dead or hanging worker loses only its current texts.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from steersman.errors import DataError, InputError
from steersman.retrieval.dense import check_texts
from steersman.retrieval.embedding_worker import HEAD, read_head

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

MINILM = "steersman.retrieval.dense:MiniLM"
_CHUNK = 16
_MOST_DEATHS = 3
_LONGEST_WAIT_MS = 86_400_000
_PROGRAM = "from steersman.retrieval.embedding_worker import main; main()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def usual_workers() -> int:
    """Return the default number of workers: half of the cores minus one, between 1 and 8.

    >>> 1 <= usual_workers() <= 8
    True
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(max(1, (cores or 1) // 2 - 1), 8)


class EmbeddingWorkers:
    """Embedder that runs in worker processes.

    Args:
        made_by: factory of the embedder, ``module:attribute``.
        options: keyword arguments of the factory, JSON values.
        home: directory of the model caches; None: from the environment.
        workers: number of processes, 1 to 64.
        timeout_s: timeout of a worker for a few texts in seconds, start-up included.

    Attributes:
        deaths: number of replaced workers.

    Raises:
        InputError: a number is out of range.
        DataError: the embedder cannot be created; the message says why.
    """

    def __init__(
        self,
        made_by: str = MINILM,
        options: Mapping[str, Any] | None = None,
        *,
        home: Path | None = None,
        workers: int = 1,
        timeout_s: float = 300.0,
    ) -> None:
        if not 1 <= workers <= 64:
            raise InputError(f"workers is {workers!r}; allowed is 1 to 64")
        if not timeout_s > 0:
            raise InputError(f"timeout_s is {timeout_s!r}; allowed is above 0")
        self.deaths = 0
        environment = {} if home is None else {"STEERSMAN_HOME": str(home.absolute())}
        self._start = (made_by, msgspec.json.encode(dict(options or {})).decode(), environment)
        self._timeout_s = timeout_s
        self._turn = threading.Lock()
        # The first starts now: it reports the embedder's name, or an error.
        try:
            first = _Worker(*self._start, timeout_s)
        except _DiedError as error:
            message = f"the embedding worker for {made_by} exited during start-up; "
            raise DataError(f"{message}its last output is above") from error
        self._workers: list[_Worker | None] = [first, *([None] * (workers - 1))]
        self.name, self.size = first.name, first.size

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, in order.

        Returns:
            (texts, size) float32.

        Raises:
            InputError: a text holds a lone surrogate.
            DataError: the embedder refused a text, three workers died on the same texts, or no
                worker can be started.
        """
        check_texts(texts)
        with self._turn:
            chunks = [list(texts[at : at + _CHUNK]) for at in range(0, len(texts), _CHUNK)]
            rows: list[NDArray[np.float32] | None] = [None] * len(chunks)
            failures: list[BaseException] = []
            places = count()  # shared: a free worker takes the next chunk

            def work(number: int) -> None:
                while not failures and (place := next(places)) < len(chunks):
                    try:
                        rows[place] = self._embedded(number, chunks[place])
                    except BaseException as error:  # noqa: BLE001 (raised in the calling thread)
                        failures.append(error)

            threads = [
                threading.Thread(target=work, args=(number,), name=f"embedding-{number}")
                for number in range(min(len(self._workers), len(chunks)))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        return self._whole(rows)

    def close(self) -> None:
        """Stop the processes; they restart when needed."""
        with self._turn:
            for number, worker in enumerate(self._workers):
                if worker is not None:
                    worker.end()
                self._workers[number] = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def processes(self) -> list[int]:
        """Process ids of the running workers."""
        return [worker.process.pid for worker in self._workers if worker is not None]

    def _whole(self, rows: list[NDArray[np.float32] | None]) -> NDArray[np.float32]:
        """Return all rows as one array; raise if one is missing."""
        done = [row for row in rows if row is not None]
        if len(done) < len(rows):
            message = f"{len(rows) - len(done)} of {len(rows)} parts of the texts were not "
            raise DataError(message + "embedded, without an error; embed the texts again")
        return np.concatenate(done) if done else np.zeros((0, self.size), np.float32)

    def _embedded(self, number: int, texts: list[str]) -> NDArray[np.float32]:
        for _ in range(_MOST_DEATHS):
            try:
                return self._alive(number).encode(texts)
            except _DiedError:
                self._bury(number)
                self.deaths += 1
            except DataError:
                raise  # the worker responded, so it stays usable
            except BaseException:
                self._bury(number)
                raise
        raise DataError(
            f"{_MOST_DEATHS} workers died or timed out on the same {len(texts)} texts; the first "
            f"is {texts[0][:60]!r}; check the free memory, or increase timeout_s "
            f"({self._timeout_s:g})"
        )

    def _alive(self, number: int) -> _Worker:
        """Return a worker, started if necessary."""
        worker = self._workers[number] or _Worker(*self._start, self._timeout_s)
        self._workers[number] = worker
        if (worker.name, worker.size) != (self.name, self.size):
            message = f"a restarted worker is {worker.name} (dimension {worker.size}); expected "
            raise DataError(f"{message}{self.name} ({self.size})")
        return worker

    def _bury(self, number: int) -> None:
        worker, self._workers[number] = self._workers[number], None
        if worker is not None:
            worker.end()


class _DiedError(Exception):
    """A worker exited or timed out."""


class _Worker:
    """One worker process."""

    def __init__(
        self, made_by: str, options: str, environment: Mapping[str, str], timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        try:
            self.process = subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, "-P", "-c", _PROGRAM, made_by, options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **_ONE_THREAD, **environment},
            )
        except OSError as error:
            message = (
                f"cannot start an embedding process for {made_by}: {error}; end other processes, "
            )
            raise DataError(message + "or allow more processes and open files") from error
        try:
            os.set_blocking(self._stdin(), False)
            reply = msgspec.json.decode(self._frame())
        except BaseException:
            self.end()
            raise
        if "error" in reply:
            self.end()
            raise DataError(f"the embedder {made_by} cannot be created: {reply['error']}")
        self.name, self.size = str(reply["name"]), int(reply["size"])

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        body = msgspec.msgpack.encode(texts)
        self._write(HEAD.pack(b"t", len(body)) + body)
        kind, data = self._read()
        if kind == b"e":
            raise DataError(f"the embedder failed: {data.decode('utf-8', 'replace')}")
        rows = np.frombuffer(data, "<f4")
        if len(rows) != len(texts) * self.size:
            raise DataError(
                f"a worker returned {len(rows)} numbers for {len(texts)} texts; {self.size} each "
                "were expected"
            )
        return rows.reshape(len(texts), self.size).astype(np.float32)

    def end(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.process.wait()

    def _stdin(self) -> int:
        if self.process.stdin is None:
            raise _DiedError
        return self.process.stdin.fileno()

    def _write(self, data: bytes) -> None:
        until = time.monotonic() + self._timeout_s
        left = memoryview(data)
        while left:
            stdin = self._stdin()
            if not _ready(stdin, select.POLLOUT, until):
                raise _DiedError
            try:
                left = left[os.write(stdin, left) :]
            except OSError as error:
                raise _DiedError from error

    def _frame(self) -> bytes:
        return self._read()[1]

    def _read(self) -> tuple[bytes, bytes]:
        until = time.monotonic() + self._timeout_s
        kind, size = read_head(self._exactly(HEAD.size, until))
        return kind, self._exactly(size, until)

    def _exactly(self, size: int, until: float) -> bytes:
        stream = self.process.stdout
        if stream is None:
            raise _DiedError
        data = bytearray()
        while len(data) < size:
            ready = _ready(stream.fileno(), select.POLLIN, until)
            part = os.read(stream.fileno(), min(size - len(data), 1 << 20)) if ready else b""
            if not part:
                raise _DiedError
            data += part
        return bytes(data)


def _ready(stream: int, what: int, until: float) -> bool:
    """Return whether a stream is ready before a time; also for file numbers above 1023."""
    poll = select.poll()
    poll.register(stream, what)
    wait_ms = min(1e3 * max(0.0, until - time.monotonic()), _LONGEST_WAIT_MS)
    return bool(poll.poll(wait_ms))
