"""What the interrogator's tests share: an embedder of words, a few questions, and the model."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from steersman.errors import DataError
from steersman.retrieval.dense import MiniLM
from steersman_systems.interrogator.questions import Questions, Template
from steersman_systems.interrogator.targets import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Words:
    """An embedder that knows words alone: each has a direction of its own, and a text their sum.

    Args:
        size: Numbers of a vector.
    """

    def __init__(self, size: int = 384) -> None:
        self.name, self.size = f"words-{size}", size
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.seen += texts
        rows = [sum(map(self._word, text.lower().split())) for text in texts]
        stacked = np.reshape(rows, (len(rows), self.size))
        return (stacked / np.linalg.norm(stacked, axis=1, keepdims=True)).astype(np.float32)

    def target(self, text: str) -> Target:
        vector = self.encode([text])[0]
        self.seen.clear()
        return Target.of_vector(vector, name=text, text=text)

    def _word(self, word: str) -> NDArray[np.float64]:
        return np.random.default_rng(zlib.crc32(word.encode())).normal(size=self.size)


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture(scope="session")
def few() -> Questions:
    """Five questions, two of them about what a slot holds."""
    return Questions(
        "text",
        (
            Template("field", "Which field?", "broad", "{option}", ("money", "food", "sea"),
                     fills="field"),
            Template("form", "Which form?", "broad", "{option}", ("question", "claim")),
            Template("topic", "Which topic?", "narrow", "{option}",
                     {"food": ("pizza", "soup"), "sea": ("ships", "fish")}, fills="topic",
                     needs="field"),
            Template("city", "Which city?", "detail", "{option}", ("rome", "oslo")),
            Template("dish", "Which dish?", "detail", "{slot} {option}", ("hot", "cold"),
                     needs="topic"),
        ),
    )  # fmt: skip


@pytest.fixture(scope="session")
def minilm() -> MiniLM:
    pytest.importorskip("onnxruntime")
    try:
        return MiniLM()
    except DataError as missing:
        pytest.skip(str(missing))
