"""An embedder of its own for tests: every word adds a fixed direction, as small as one likes."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from steersman.retrieval.bm25 import words


class HashedWords:
    """Texts that share words are close; no model and no download are needed."""

    def __init__(self, size=32, name="hashed-words"):
        self.name = name
        self.size = size
        self.asked = []

    def encode(self, texts):
        self.asked.extend(texts)
        rows = [sum(_direction(word, self.size) for word in [*words(text), "·"]) for text in texts]
        found = np.array(rows, np.float64).reshape(len(texts), self.size)
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@lru_cache(maxsize=100_000)
def _direction(word, size):
    """Making a generator for every word would take a hundred times as long as adding it."""
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(size)
