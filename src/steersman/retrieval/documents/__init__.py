"""Documents read from files, and the passages they are cut into; knows no store and no index."""

from __future__ import annotations

from steersman.retrieval.documents.document import Document, Section
from steersman.retrieval.documents.passage import Lineage, Passage, passage_text

__all__ = ["Document", "Lineage", "Passage", "Section", "passage_text"]
