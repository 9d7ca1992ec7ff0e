"""Passages for tests: one for each text, as if each were a whole document."""

from __future__ import annotations

from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage


def whole(*texts, titles=()):
    """Return a passage for each text, of documents d0, d1 and so on."""
    titles = titles or [""] * len(texts)
    documents = [Document(f"d{i}", text, titles[i]) for i, text in enumerate(texts)]
    return [
        Passage(
            one.doc_id,
            0,
            one.text,
            one.title,
            lineage=Lineage(one.sha256, 0, len(one.text), chunker="whole"),
        )
        for one in documents
    ]
