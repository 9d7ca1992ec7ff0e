"""Retrieval: search by words (BM25), by vectors and hybrid, along links; measures of quality.

The package imports only the core. Engines import their libraries when they are created, and name
the missing extra. Names are resolved on first use, so that users of words or wheels do not import
the store.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.retrieval.adding import Added
    from steersman.retrieval.bm25 import Bm25, words
    from steersman.retrieval.corpora import Corpora
    from steersman.retrieval.corpora_reading import CorporaToRead, Opened, Shown, ready
    from steersman.retrieval.dense import Embedder, MiniLM
    from steersman.retrieval.embedders import Embedders, check_embedder_name
    from steersman.retrieval.embedding_workers import EmbeddingWorkers, usual_workers
    from steersman.retrieval.embeddings import CachedEmbedder
    from steersman.retrieval.entailment import Entailment, NliReranker
    from steersman.retrieval.entity_links import link_entities, link_passages
    from steersman.retrieval.fusion import convex, rrf
    from steersman.retrieval.hits import Found, Hit
    from steersman.retrieval.judged import JudgedCollection, Question, load_judged
    from steersman.retrieval.linking import Expanding, Links, link_titles
    from steersman.retrieval.measures import (
        Measured,
        all_gold_at,
        ndcg_at,
        recall_at,
        reciprocal_rank,
    )
    from steersman.retrieval.opening import Loaded, Place, find_place, load, one_view
    from steersman.retrieval.pair_model import PairModel, PairWeights
    from steersman.retrieval.pgvector_index import PgvectorIndex
    from steersman.retrieval.qdrant_index import QdrantIndex
    from steersman.retrieval.ranked import Ranked
    from steersman.retrieval.rerank import CosineReranker, CrossEncoder, Reranker
    from steersman.retrieval.scored import Scored
    from steersman.retrieval.search_settings import SearchSettings
    from steersman.retrieval.searcher import Searcher
    from steersman.retrieval.served_embedder import ServedEmbedder
    from steersman.retrieval.support import EntailmentSupport, gold_recall, sentences_of
    from steersman.retrieval.vectors import ExactIndex, VectorIndex
    from steersman.retrieval.wheels import PinnedWheel, assemble, state_directory

__all__ = [
    "Added",
    "Bm25",
    "CachedEmbedder",
    "Corpora",
    "CorporaToRead",
    "CosineReranker",
    "CrossEncoder",
    "Embedder",
    "Embedders",
    "EmbeddingWorkers",
    "Entailment",
    "EntailmentSupport",
    "ExactIndex",
    "Expanding",
    "Found",
    "Hit",
    "JudgedCollection",
    "Links",
    "Loaded",
    "Measured",
    "MiniLM",
    "NliReranker",
    "Opened",
    "PairModel",
    "PairWeights",
    "PgvectorIndex",
    "PinnedWheel",
    "Place",
    "QdrantIndex",
    "Question",
    "Ranked",
    "Reranker",
    "Scored",
    "SearchSettings",
    "Searcher",
    "ServedEmbedder",
    "Shown",
    "VectorIndex",
    "all_gold_at",
    "assemble",
    "check_embedder_name",
    "convex",
    "find_place",
    "gold_recall",
    "link_entities",
    "link_passages",
    "link_titles",
    "load",
    "load_judged",
    "ndcg_at",
    "one_view",
    "ready",
    "recall_at",
    "reciprocal_rank",
    "rrf",
    "sentences_of",
    "state_directory",
    "usual_workers",
    "words",
]

_HOMES = {
    "adding": "Added",
    "bm25": "Bm25 words",
    "corpora": "Corpora",
    "corpora_reading": "CorporaToRead Opened Shown ready",
    "dense": "Embedder MiniLM",
    "embedders": "Embedders check_embedder_name",
    "embedding_workers": "EmbeddingWorkers usual_workers",
    "embeddings": "CachedEmbedder",
    "entailment": "Entailment NliReranker",
    "entity_links": "link_entities link_passages",
    "fusion": "convex rrf",
    "hits": "Found Hit",
    "judged": "JudgedCollection Question load_judged",
    "linking": "Expanding Links link_titles",
    "measures": "Measured all_gold_at ndcg_at recall_at reciprocal_rank",
    "opening": "Loaded Place find_place load one_view",
    "pair_model": "PairModel PairWeights",
    "pgvector_index": "PgvectorIndex",
    "qdrant_index": "QdrantIndex",
    "ranked": "Ranked",
    "rerank": "CosineReranker CrossEncoder Reranker",
    "scored": "Scored",
    "search_settings": "SearchSettings",
    "searcher": "Searcher",
    "served_embedder": "ServedEmbedder",
    "support": "EntailmentSupport gold_recall sentences_of",
    "vectors": "ExactIndex VectorIndex",
    "wheels": "PinnedWheel assemble state_directory",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value  # cached from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
