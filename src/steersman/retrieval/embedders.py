"""Embedders by name, loaded on first use."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from steersman.errors import BackendUnavailableError, DataError, InputError, SteersmanError
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.http_embedder import HttpEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder

_AGAIN_S = 60.0
_REST_S = 5.0
_ALLOWED = "allowed: minilm, none, or the URL of an OpenAI-compatible server such as "
_ALLOWED += "http://127.0.0.1:8080/v1#model"


def check_embedder_name(name: str) -> None:
    """Raise unless a name is a valid embedder name.

    Args:
        name: ``minilm``, ``none``, or a URL with the model after ``#``.

    Raises:
        InputError: the name is invalid.

    >>> check_embedder_name("word2vec")
    Traceback (most recent call last):
    steersman.errors.InputError: the embedder is 'word2vec'; allowed: minilm, none, ...
    """
    if name not in {"minilm", "none"} and not name.startswith(("http://", "https://")):
        raise InputError(f"the embedder is {name!r:.80}; {_ALLOWED}")


class Embedders:
    """Embedders by name, each loaded once; thread-safe.

    Loading may fetch a model and take long, so it runs in a separate thread.

    Args:
        home: directory of the model caches, see `state_directory`.
        own: your own embedders by name.
        served: options of `HttpEmbedder`, such as ``timeout_s``.
        clock: monotonic clock in seconds.

    >>> Embedders().get("glove")
    Traceback (most recent call last):
    steersman.errors.InputError: the embedder is 'glove'; allowed: minilm, none, ...
    """

    def __init__(
        self,
        home: Path | None = None,
        own: Mapping[str, Embedder] | None = None,
        *,
        served: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home
        self._served = dict(served or {})
        self._clock = clock
        self._made: dict[str, Embedder] = dict(own or {})
        self._making: dict[str, tuple[Future[Embedder], float]] = {}
        self._turn = threading.Lock()

    def __contains__(self, name: str) -> bool:
        """Return whether an embedder of this name was given or loaded."""
        return name in self._made

    def get(self, name: str, *, wait_s: float | None = None) -> Embedder:
        """Return the embedder with a name.

        Args:
            wait_s: seconds to wait until it is loaded; failed loading is retried once a minute.
                None: no limit, and failed loading is retried at once.

        Raises:
            InputError: unknown embedder.
            DataError: it cannot be loaded (the message says what to install), or is still
                loading.
            BackendError: the server does not respond.
        """
        made = self._made.get(name)
        if made is not None:
            return made
        check_embedder_name(name)
        if name == "none":
            raise InputError("the embedder is none; choose an embedder to create embeddings")
        try:
            return self._begun(name, 0.0 if wait_s is None else _AGAIN_S).result(wait_s)
        except TimeoutError as error:
            raise DataError(f"the embedder {name} is still loading; retry in a moment") from error

    def _begun(self, name: str, again_s: float) -> Future[Embedder]:
        with self._turn:
            begun, at = self._making.get(name, (None, 0.0))
            failed = begun is not None and begun.done() and begun.exception() is not None
            if begun is None or (failed and self._clock() - at >= again_s):
                begun = Future()
                self._making[name] = begun, self._clock()
                # A daemon thread: a download does not block the exit of the program.
                work = threading.Thread(target=self._make, args=(name, begun), daemon=True)
                work.start()
            return begun

    def _make(self, name: str, made: Future[Embedder]) -> None:
        try:
            if name == "minilm":
                embedder: Embedder = MiniLM(self._home)
            else:
                embedder = HttpEmbedder(name, **self._served)
        except SteersmanError as error:
            made.set_exception(error)
        except BaseException as error:  # noqa: BLE001 (raised in the waiting thread)
            # Read-only folder, full disk, or a file that ONNX Runtime cannot read.
            failure = DataError(f"the embedder {name} cannot be loaded: {error!r:.300}")
            failure.__cause__ = error
            made.set_exception(failure)
        else:
            self._made[name] = embedder
            made.set_result(embedder)


class CorpusEmbedder:
    """Embedder of a corpus's queries, loaded with the first query.

    So keyword search works where the embedder is not available.

    Args:
        embedders: embedders by name.
        spec: embedder name of the corpus.
        name: unique name of the embedder of the stored vectors.
        size: dimension of the stored vectors.
        wait_s: seconds that a query waits for loading; None: no limit.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        embedders: Embedders,
        spec: str,
        name: str,
        size: int,
        *,
        wait_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wait_s = wait_s
        self._clock = clock
        self._rests: tuple[float, str] | None = None
        self.name = name
        self.size = size
        self._embedders = embedders
        self._spec = spec

    def check(self) -> Embedder:
        """Return the embedder, if it matches the stored vectors.

        Raises:
            DataError: it is not available, or differs.
        """
        try:
            found = self._embedders.get(self._spec, wait_s=self._wait_s)
        except InputError as error:
            raise DataError(f"vector search of the corpus is not possible: {error}") from error
        if (found.name, found.size) != (self.name, self.size):
            raise DataError(
                f"the corpus was embedded with {self.name} (dimension {self.size}), but "
                f"{self._spec} is {found.name} ({found.size}) here; use the same embedder, or "
                "add the documents to another corpus"
            )
        return found

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts.

        Raises:
            DataError: as `check`.
            BackendUnavailableError: the server does not respond, or did not within the last five
                seconds, when it is not called.
            BackendAnswerError: the server refuses these texts.
        """
        if self._rests is not None and self._clock() < self._rests[0]:
            raise BackendUnavailableError(self._rests[1])
        try:
            rows = self.check().encode(texts)
        except BackendUnavailableError as error:
            self._rests = self._clock() + _REST_S, str(error)
            raise
        self._rests = None
        return rows
