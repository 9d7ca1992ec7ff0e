"""What is asked of corpora over HTTP, and what is answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

_DEADLINE_MS = 5_000.0
_Name = Annotated[str, Meta(min_length=1, max_length=64)]


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Ask for the passages of a corpus that answer a query best.

    Attributes:
        corpus: its name.
        query: what is asked, 1 to 20,000 characters.
        snapshot: of the corpus; absent: its newest revision.
        k: how many passages, 1 to 100.
        variant: bm25 (by words), dense (by meaning) or hybrid (by both); absent: hybrid where the
            corpus has vectors.
        fusion: how both rankings become one: convex or rrf.
        fusion_weight: of meaning, 0 to 1.
        rerank: off, or the name of a reranker that the service has.
        expansion: whether passages that the best ones lead to are added.
        deadline_ms: how long the answer is waited for, 1 to 60,000.
    """

    corpus: _Name
    query: Annotated[str, Meta(min_length=1, max_length=20_000)]
    snapshot: _Name | None = None
    k: Annotated[int, Meta(ge=1, le=100)] = 10
    variant: Literal["bm25", "dense", "hybrid"] | None = None
    fusion: Literal["convex", "rrf"] = "convex"
    fusion_weight: Annotated[float, Meta(ge=0, le=1)] = 0.5
    rerank: Annotated[str, Meta(min_length=1, max_length=64)] = "off"
    expansion: bool = False
    deadline_ms: Annotated[float, Meta(ge=1, le=60_000)] = _DEADLINE_MS


class HitLineage(msgspec.Struct, omit_defaults=True):
    """Where a passage stands: text[start:end] of the document with this hash.

    Attributes:
        sha256: of the document's text in UTF-8, hexadecimal.
        start: offset of its first character.
        end: offset behind its last one.
        headings: that it stands under, outermost first.
        page: on which it begins, from 1; absent: the document has no pages.
        chunker: what cut it.
    """

    sha256: str
    start: int
    end: int
    headings: list[str] = []
    page: int | None = None
    chunker: str = ""


class SearchHit(msgspec.Struct, omit_defaults=True):
    """A passage that was found.

    Attributes:
        doc_id: of the document.
        chunk: its place among the passages of the document, from 0.
        text: exactly the document's text from ``lineage.start`` to ``lineage.end``.
        score: what it was ranked by; comparable within one answer alone.
        lineage: where it stands.
        title: of the document.
        source: where the document came from.
        meta: of the document.
        ranks: its place in each engine's ranking, from 1.
        expanded_from: the passage that led to it, as ``doc_id#chunk``.
        also: passages that say the same, as ``doc_id#chunk``, the first 20.
    """

    doc_id: str
    chunk: int
    text: str
    score: float
    lineage: HitLineage
    title: str = ""
    source: str = ""
    meta: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    expanded_from: str | None = None
    also: list[str] = []


class SearchAnswer(msgspec.Struct):
    """What a search found.

    Attributes:
        hits: best first.
        corpus: its name.
        revision: that was searched.
        degraded: parts that were wanted and did not answer: dense, rerank.
        timings_ms: what each part took.
    """

    hits: list[SearchHit]
    corpus: str
    revision: int
    degraded: list[str]
    timings_ms: dict[str, float]


class DocumentRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Ask for a document of a corpus, to check what was cited of it.

    Attributes:
        corpus: its name.
        doc_id: of the document.
        snapshot: of the corpus; absent: its newest revision.
        start: from this character on.
        end: up to before this one; absent: the end. At most 100,000 characters are given at once.
    """

    corpus: _Name
    doc_id: Annotated[str, Meta(min_length=1, max_length=512)]
    snapshot: _Name | None = None
    start: Annotated[int, Meta(ge=0)] = 0
    end: Annotated[int, Meta(ge=0)] | None = None


class ShownDocument(msgspec.Struct):
    """A document, or a span of it.

    Attributes:
        doc_id: of the document.
        title: or empty.
        source: or empty.
        meta: of the document.
        sha256: of all its text in UTF-8, hexadecimal.
        length: of all its text, in characters.
        start: where ``text`` begins.
        end: and where it ends.
        text: of the span.
        corpus: its name.
        revision: that was looked at.
    """

    doc_id: str
    title: str
    source: str
    meta: dict[str, Any]
    sha256: str
    length: int
    start: int
    end: int
    text: str
    corpus: str
    revision: int
