"""Embedders by the names that people and corpora give them, each made when it is first needed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from steersman.errors import BackendUnavailableError, DataError, InputError, SteersmanError
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.served_embedder import ServedEmbedder

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
    """Refuse what names no embedder.

    Args:
        name: ``minilm``, ``none``, or a URL with the model behind ``#``.

    Raises:
        InputError: it is none of these.

    >>> check_embedder_name("word2vec")
    Traceback (most recent call last):
    steersman.errors.InputError: the embedder is 'word2vec'; allowed: minilm, none, ...
    """
    if name not in {"minilm", "none"} and not name.startswith(("http://", "https://")):
        raise InputError(f"the embedder is {name!r:.80}; {_ALLOWED}")


class Embedders:
    """Embedders by name, each made once; several threads may ask.

    Making one may take long, since models are fetched, so it is done by a thread of its own.

    Args:
        home: directory of the caches of models, see `state_directory`.
        own: further embedders by the names that they are to have.
        served: options of `ServedEmbedder` for those behind a URL, such as ``timeout_s``.
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
        """Return whether an embedder of this name was given or made."""
        return name in self._made

    def get(self, name: str, *, wait_s: float | None = None) -> Embedder:
        """Return the embedder of a name.

        Args:
            name: ``minilm``, a URL, or one's own.
            wait_s: how long to wait until it is made; what failed is then made again once a
                minute. None: as long as it takes, and what failed is made again at once.

        Returns:
            The same one every time.

        Raises:
            InputError: there is no such embedder.
            DataError: it cannot be made here, and the message says what to install; or it is not
                made yet.
            BackendError: the server does not answer.
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
                # A daemon: who fetches a model does not keep a program from ending.
                work = threading.Thread(target=self._make, args=(name, begun), daemon=True)
                work.start()
            return begun

    def _make(self, name: str, made: Future[Embedder]) -> None:
        try:
            if name == "minilm":
                embedder: Embedder = MiniLM(self._home)
            else:
                embedder = ServedEmbedder(name, **self._served)
        except SteersmanError as error:
            made.set_exception(error)
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            # A folder that cannot be written, a full disk, a file that ONNX Runtime cannot read.
            told = DataError(f"the embedder {name} cannot be loaded: {error!r:.300}")
            told.__cause__ = error
            made.set_exception(told)
        else:
            self._made[name] = embedder
            made.set_result(embedder)


class CorpusEmbedder:
    """The embedder of a corpus's queries, looked for when the first query comes.

    So a corpus can be searched by words where its embedder cannot be had.

    Args:
        embedders: by name.
        spec: how the corpus names its embedder.
        name: what tells the vectors of the corpus from all others.
        size: how many numbers they have.
        wait_s: how long a query waits until the embedder is made; None: as long as it takes.
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
        """Return the embedder, if it is the one that the corpus was embedded with.

        Returns:
            An embedder of this name and size.

        Raises:
            DataError: it cannot be had, or it is another than it was.
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
        """Return the vectors of some texts.

        Args:
            texts: texts to embed.

        Returns:
            (texts, size) float32, each row of norm 1.

        Raises:
            DataError: as `check`.
            BackendUnavailableError: the server does not answer, or did not a moment ago: it is left
                alone for five seconds, so that not every query waits for it.
            BackendAnswerError: the server refuses these texts; others it may take.
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
