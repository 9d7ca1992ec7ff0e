"""Retrieval: BM25, dense and hybrid search over versioned corpora."""
