"""Engines that find candidates for a request: words (BM25), meaning (MiniLM) and their parts.

Importing this package needs nothing but the core; the engines import their libraries when they
are built and say which extra brings them when it is missing.
"""

from __future__ import annotations

from steersman.retrieval.bm25 import Bm25, words
from steersman.retrieval.dense import Embedder, MiniLM
from steersman.retrieval.embeddings import CachedEmbedder
from steersman.retrieval.wheels import PinnedWheel, state_directory

__all__ = [
    "Bm25",
    "CachedEmbedder",
    "Embedder",
    "MiniLM",
    "PinnedWheel",
    "state_directory",
    "words",
]
