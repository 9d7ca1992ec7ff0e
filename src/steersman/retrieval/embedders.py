"""Embedders by the names that people and corpora give them, each made when it is first needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from steersman.errors import DataError, InputError
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.served_embedder import ServedEmbedder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder

_ALLOWED = "allowed are minilm, none, or the URL of an OpenAI-compatible server such as "
_ALLOWED += "http://127.0.0.1:8080/v1#model"


def check_embedder_name(name: str) -> None:
    """Refuse what names no embedder.

    Args:
        name: ``minilm``, ``none``, or a URL with the model behind ``#``.

    Raises:
        InputError: it is none of these.

    >>> check_embedder_name("word2vec")
    Traceback (most recent call last):
    steersman.errors.InputError: the embedder is 'word2vec'; allowed are minilm, none, ...
    """
    if name not in {"minilm", "none"} and not name.startswith(("http://", "https://")):
        raise InputError(f"the embedder is {name!r:.80}; {_ALLOWED}")


class Embedders:
    """Embedders by name; several threads may ask.

    Args:
        home: directory of the caches of models, see `state_directory`.
        own: further embedders by the names that they are to have.

    >>> Embedders().get("glove")
    Traceback (most recent call last):
    steersman.errors.InputError: the embedder is 'glove'; allowed are minilm, none, ...
    """

    def __init__(self, home: Path | None = None, own: Mapping[str, Embedder] | None = None) -> None:
        self._home = home
        self._made: dict[str, Embedder] = dict(own or {})
        self._turn = threading.Lock()

    def __contains__(self, name: str) -> bool:
        """Return whether an embedder of this name was given or made."""
        return name in self._made

    def get(self, name: str) -> Embedder:
        """Return the embedder of a name.

        Args:
            name: ``minilm``, a URL, or one's own.

        Returns:
            The same one every time.

        Raises:
            InputError: there is no such embedder.
            DataError: it cannot be made here; the message says what to install.
            BackendError: the server does not answer.
        """
        with self._turn:
            if name not in self._made:
                self._made[name] = self._make(name)
            return self._made[name]

    def _make(self, name: str) -> Embedder:
        check_embedder_name(name)
        if name == "minilm":
            return MiniLM(self._home)
        if name == "none":
            raise InputError("the embedder is none; nothing can be embedded with it")
        return ServedEmbedder(name)


class CorpusEmbedder:
    """The embedder of a corpus's queries, looked for when the first query comes.

    So a corpus can be searched by words where its embedder cannot be had.

    Args:
        embedders: by name.
        spec: how the corpus names its embedder.
        name: what tells the vectors of the corpus from all others.
        size: how many numbers they have.

    No doctest: it needs a corpus; ``tests/retrieval/test_corpora.py`` shows it.
    """

    def __init__(self, embedders: Embedders, spec: str, name: str, size: int) -> None:
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
            found = self._embedders.get(self._spec)
        except InputError as error:
            raise DataError(f"the corpus cannot be searched by meaning: {error}") from error
        if (found.name, found.size) != (self.name, self.size):
            raise DataError(
                f"the corpus was embedded with {self.name} ({self.size} numbers), but "
                f"{self._spec} is {found.name} ({found.size}) here; use that embedder again, or "
                "add the documents to another corpus"
            )
        return found

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of some texts.

        Args:
            texts: any texts.

        Returns:
            (texts, size) float32, each row of length one.

        Raises:
            DataError: as `check`.
            BackendError: the server does not answer.
        """
        return self.check().encode(texts)
