"""Documents read from files, and the passages they are cut into; knows no store and no index.

Importing this package needs nothing but the core; Markdown, HTML and PDF need the extra ``rag``,
and are parsed in a process of their own.
"""

from __future__ import annotations

from steersman.retrieval.documents.bounded import BoundedParser
from steersman.retrieval.documents.chunking import WHOLE, Chunking, cut
from steersman.retrieval.documents.document import Document, Section
from steersman.retrieval.documents.duplicates import Repeat, Unique, unique
from steersman.retrieval.documents.limits import Limits
from steersman.retrieval.documents.passage import Lineage, Passage, passage_text
from steersman.retrieval.documents.reading import Kind, files, read

__all__ = [
    "WHOLE",
    "BoundedParser",
    "Chunking",
    "Document",
    "Kind",
    "Limits",
    "Lineage",
    "Passage",
    "Repeat",
    "Section",
    "Unique",
    "cut",
    "files",
    "passage_text",
    "read",
    "unique",
]
