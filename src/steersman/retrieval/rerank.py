"""Rerankers: reorder the best candidates, too slow for all passages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.errors import DataError
from steersman.platform.wheel_files import state_directory
from steersman.retrieval.pair_model import PairModel, PairWeights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder


class Reranker(Protocol):
    """Interface of a model that scores passages for a query."""

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the score of each passage; higher is better."""


class CosineReranker:
    """Reranker by the cosine similarity of query and passage.

    Useful after BM25 alone, or with a better embedder than that of the index. With the same
    embedder, hybrid search already has this information.

    Args:
        embedder: embedder of every candidate, so preferably a `CachedEmbedder`.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the cosine similarity of the query and each text.

        Returns:
            (texts,) in [-1, 1].
        """
        if not texts:
            return np.zeros(0, np.float32)
        return np.asarray(
            self._embedder.encode(list(texts)) @ self._embedder.encode([query])[0], np.float32
        )


class CrossEncoder:
    """Reranker by a cross-encoder, a model that reads query and passage together.

    No maintained wheel contains such weights, so you must provide them.

    Args:
        folder: folder with ``model.onnx``, ``tokenizer.json`` and optionally ``config.json`` of a
            model with one output, such as cross-encoder/ms-marco-MiniLM-L6-v2; default:
            ``models/cross-encoder`` in the cache directory.

    Raises:
        DataError: the folder has no such model, or the extra ``rag`` is not installed.
    """

    def __init__(self, folder: Path | None = None) -> None:
        where = folder or state_directory() / "models" / "cross-encoder"
        self._model = PairModel(PairWeights.of_folder(where))
        outputs = self._model.logits(["a"], ["b"]).shape[1]
        if outputs != 1:
            raise DataError(
                f"the model in {where} has {outputs} outputs; a cross-encoder must have one"
            )

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the model's score of each passage.

        Args:
            texts: passage texts; query and text are truncated to 512 word pieces together.
        """
        return self._model.logits([query] * len(texts), texts)[:, 0]
