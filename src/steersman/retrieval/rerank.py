"""The best candidates looked at once more, by something too slow to look at every passage."""

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
    """Whatever says how well passages answer a query, looking at both."""

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the scores of some passages."""


class CosineReranker:
    """Order by the cosine of query and passage.

    Worth its time after BM25 alone, and with an embedder that is better than the one of the index;
    with the same embedder, hybrid search has said all this already.

    Args:
        embedder: best a `CachedEmbedder`, for it embeds every candidate.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the cosines of a query and some texts.

        Returns:
            (texts,) in [-1, 1].
        """
        if not texts:
            return np.zeros(0, np.float32)
        return np.asarray(
            self._embedder.encode(list(texts)) @ self._embedder.encode([query])[0], np.float32
        )


class CrossEncoder:
    """Order by a model that reads query and passage together.

    No such weights come in a wheel that is kept up to date, so they are yours to put there.

    Args:
        folder: with ``model.onnx``, ``tokenizer.json`` and perhaps ``config.json`` of a model with
            one output, as cross-encoder/ms-marco-MiniLM-L6-v2 has it; None for
            ``models/cross-encoder`` in the directory of the caches.

    Raises:
        DataError: the folder holds no such model, with what to do; or the extra ``rag`` is not
            installed.
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
        """Return the model's scores of some passages.

        Args:
            texts: of the passages; of both together the first 512 word pieces are read.
        """
        return self._model.logits([query] * len(texts), texts)[:, 0]
