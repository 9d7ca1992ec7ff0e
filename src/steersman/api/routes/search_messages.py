"""Request and answer messages of corpus search."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

_DEADLINE_MS = 5_000.0
_Name = Annotated[str, Meta(min_length=1, max_length=64)]


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Request for the passages of a corpus that best answer a query.

    Attributes:
        corpus: corpus name.
        query: query text, 1 to 20,000 characters.
        snapshot: corpus snapshot; absent: newest revision.
        k: number of passages, 1 to 100.
        variant: search method: bm25 (keywords), dense (embeddings) or hybrid (both); absent: hybrid
            if the corpus has vectors, else bm25.
        fusion: method that merges the two rankings: convex or rrf.
        fusion_weight: weight of the dense score, 0 to 1.
        rerank: name of a reranker of the service, or off.
        expansion: whether to add passages that the best passages refer to.
        deadline_ms: timeout in milliseconds, 1 to 60,000.
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
    """Position of a passage: text[start:end] of the document with this hash.

    Attributes:
        sha256: SHA-256 of the document's text in UTF-8, hexadecimal.
        start: offset of the first character.
        end: offset after the last character.
        headings: headings above the passage, outermost first.
        page: page number where the passage begins, from 1; absent: the document has no pages.
        chunker: chunker that cut the passage.
    """

    sha256: str
    start: int
    end: int
    headings: list[str] = []
    page: int | None = None
    chunker: str = ""


class SearchHit(msgspec.Struct, omit_defaults=True):
    """One passage found by a search.

    Attributes:
        doc_id: document id.
        chunk: position among the passages of the document, from 0.
        text: text of the document from ``lineage.start`` to ``lineage.end``.
        score: ranking score; comparable only within one answer.
        lineage: position in the document.
        title: title of the document.
        source: source of the document.
        meta: metadata of the document.
        ranks: rank in the ranking of each search engine, from 1.
        expanded_from: passage that referred to this one, as ``doc_id#chunk``.
        also: passages with the same text, as ``doc_id#chunk``, the first 20.
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
    """Result of a search.

    Attributes:
        hits: passages, best first.
        corpus: corpus name.
        revision: corpus revision that was searched.
        degraded: requested parts that did not respond: dense, rerank.
        timings_ms: duration of each part in milliseconds.
    """

    hits: list[SearchHit]
    corpus: str
    revision: int
    degraded: list[str]
    timings_ms: dict[str, float]


class DocumentRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Request for a document of a corpus, to check a citation.

    Attributes:
        corpus: corpus name.
        doc_id: document id.
        snapshot: corpus snapshot; absent: newest revision.
        start: offset of the first character.
        end: offset after the last character; absent: end of the document. One answer has at most
            100,000 characters.
    """

    corpus: _Name
    doc_id: Annotated[str, Meta(min_length=1, max_length=512)]
    snapshot: _Name | None = None
    start: Annotated[int, Meta(ge=0)] = 0
    end: Annotated[int, Meta(ge=0)] | None = None


class ShownDocument(msgspec.Struct):
    """A document or a span of it.

    Attributes:
        doc_id: document id.
        title: title of the document; may be empty.
        source: source of the document; may be empty.
        meta: metadata of the document.
        sha256: SHA-256 of the whole text in UTF-8, hexadecimal.
        length: length of the whole text in characters.
        start: offset of the first character of ``text``.
        end: offset after the last character of ``text``.
        text: text of the span.
        corpus: corpus name.
        revision: corpus revision that was read.
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
