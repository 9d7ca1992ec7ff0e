"""HTTP handlers for corpus search and for documents, to check citations."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta

from steersman.api.route import Route, handles
from steersman.db.corpora import corpora_of
from steersman.db.corpus_documents import find_document
from steersman.errors import (
    CorpusError,
    DataError,
    InputError,
    MissingCorpusError,
    SteersmanError,
    StoreError,
)
from steersman.platform.postgres.database import AWAY, store_is_away
from steersman.retrieval.corpora_reader import ready
from steersman.retrieval.loaded_corpus import Place, find_place, load, one_view
from steersman.retrieval.results import SearchSettings
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from asyncpg import Pool

    from steersman.api.service import Service
    from steersman.db.corpus_documents import StoredDocument
    from steersman.platform.breaker import Breaker
    from steersman.platform.http.messages import Request
    from steersman.platform.postgres.database import Database
    from steersman.retrieval.corpora_reader import OpenCorpus
    from steersman.retrieval.embedders import Embedders
    from steersman.retrieval.loaded_corpus import LoadedCorpus
    from steersman.retrieval.results import SearchResult
    from steersman.serving.corpus_cache import CorpusCache
    from steersman.serving.metrics import Metrics

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


_LIMIT = 256 * 1024
_MOST_WAITING = 64
_EMBEDDER_S = 5.0
_MOST_CHARACTERS = 100_000
_MOST_ALSO = 20


class CorpusSearch:
    """Handlers of the routes for corpora.

    Args:
        pool: connections of role app.
        cache: corpora in memory.
        breaker: circuit breaker for the store.
        metrics: counters.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        pool: Pool[Any],
        cache: CorpusCache,
        breaker: Breaker,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._breaker = breaker
        self._metrics = metrics
        self._clock = clock
        self._waiting = 0

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        breaker = service.breakers["searching"]
        return cls(service.pools.serving, service.corpora, breaker, service.metrics)

    @handles(
        Route(
            "POST",
            "/v1/search",
            "Search a corpus for the passages that best answer a query",
            SearchAnswer,
            scope="decide",
            sheds="search",
            traced=True,
            body=SearchRequest,
            limit=_LIMIT,
            examples={"one": {"corpus": "manuals", "query": "why does the pump hum?", "k": 5}},
            codes=("not_found", "not_allowed"),
        )
    )
    async def search(self, request: Request, asked: SearchRequest) -> SearchAnswer:
        """Return the best passages.

        Raises:
            Refused: unknown corpus or snapshot, invalid setting, or timeout.
        """
        begun = self._clock()
        if self._waiting >= _MOST_WAITING:
            self._metrics.search("refused")
            detail = f"{self._waiting} searches are already waiting, the maximum; try again later"
            raise Refused.of("unavailable", detail, retry_after_s=1.0)
        self._waiting += 1
        try:
            async with asyncio.timeout(asked.deadline_ms / 1e3):
                opened, found = await self._found(request.key.tenant, asked)
        except TimeoutError:
            self._metrics.search("late")
            detail = (
                f"no answer within {asked.deadline_ms:g} ms; the first search of a corpus loads "
            )
            detail += "it: try again, or increase deadline_ms"
            raise Refused.of("unavailable", detail, retry_after_s=1.0) from None
        except Refused:
            self._metrics.search("refused")
            raise
        finally:
            self._waiting -= 1
        self._metrics.search("ok", found.degraded, self._clock() - begun)
        return _answer(asked.corpus, opened, found)

    @handles(
        Route(
            "POST",
            "/v1/documents",
            "Read a document of a corpus or a span of it, to check a citation",
            ShownDocument,
            scope="decide",
            sheds="search",
            body=DocumentRequest,
            limit=_LIMIT,
            examples={"one": {"corpus": "manuals", "doc_id": "pumps.md", "start": 0, "end": 400}},
            codes=("not_found",),
        )
    )
    async def document(self, request: Request, asked: DocumentRequest) -> ShownDocument:
        """Return a document or a span of it."""
        tenant = request.key.tenant

        async def read() -> tuple[Place, StoredDocument | None]:
            async with self._pool.acquire() as connection, one_view(connection, tenant):
                place = await find_place(connection, tenant, asked.corpus, asked.snapshot)
                at = connection, tenant, place.corpus.id, place.revision
                return place, await find_document(*at, asked.doc_id)

        with told(asked.corpus):
            place, found = await self._breaker.call(read)
        if found is None:
            raise Refused.of("not_found", "document not found; search shows the existing documents")
        return _document(asked, place, found)

    async def _found(self, tenant: UUID, asked: SearchRequest) -> tuple[OpenCorpus, SearchResult]:
        async def look() -> Place:
            async with self._pool.acquire() as connection, one_view(connection, tenant):
                if self._cache.wants_look(tenant):
                    there = await corpora_of(connection, tenant)
                    self._cache.keep_only(tenant, {corpus.id for corpus in there})
                return await find_place(connection, tenant, asked.corpus, asked.snapshot)

        with told(asked.corpus):
            place = await self._breaker.call(look)
            variant = asked.variant or ("hybrid" if place.corpus.embedder else "bm25")
            settings = SearchSettings(
                variant, asked.k, asked.fusion, asked.fusion_weight, asked.rerank, asked.expansion
            )
            opened = await self._cache.get(tenant, place)
            loop = asyncio.get_running_loop()
            search = partial(opened.searcher.search, asked.query, settings)
            return opened, await loop.run_in_executor(self._cache.searching, search)


@contextmanager
def told(name: str) -> Iterator[None]:
    """Convert errors to refusals; another tenant's corpus looks like a missing one.

    Raises:
        Refused: instead of the original error.
    """
    try:
        yield
    except MissingCorpusError:
        detail = f"corpus {name!r} or its snapshot not found (snapshots expire); "
        detail += "`steersman corpus list` lists the corpora"
        raise Refused.of("not_found", detail) from None
    except InputError as error:
        raise Refused.of("invalid", str(error)) from None
    except CorpusError as error:
        raise Refused.of("not_allowed", str(error)) from None
    except DataError as error:
        # Usually a missing extra; the message names it.
        raise Refused.of("unavailable", str(error)) from None
    except (StoreError, *AWAY) as error:
        if isinstance(error, StoreError) or store_is_away(error):
            detail = "the store does not respond; try again later"
            raise Refused.of("unavailable", detail, retry_after_s=2.0) from error
        raise


async def load_corpus(
    database: Database, embedders: Embedders, tenant: UUID, place: Place
) -> OpenCorpus:
    """Load a corpus revision over its own connection.

    Raises:
        MissingCorpusError: the corpus was deleted.
        DataError: an extra is missing.
    """
    connection = await database.connect("app")
    try:
        async with one_view(connection, tenant):
            now = await find_place(connection, tenant, place.corpus.name, None)
            if now.corpus.id != place.corpus.id:
                raise MissingCorpusError("the corpus was replaced during the search; try again")
            loaded = await load(connection, database, tenant, place)
    finally:
        await connection.close()
    return await asyncio.to_thread(_ready, loaded, embedders)


def _ready(loaded: LoadedCorpus, embedders: Embedders) -> OpenCorpus:
    opened = ready(loaded, embedders, wait_s=0.0)
    if loaded.vectors is not None and loaded.place.corpus.embedder:
        # Load it before the first search; the search itself raises any error again.
        with suppress(SteersmanError):
            embedders.get(loaded.place.corpus.embedder, wait_s=_EMBEDDER_S)
    return opened


def _answer(name: str, opened: OpenCorpus, found: SearchResult) -> SearchAnswer:
    also = opened.loaded.also
    hits = []
    for hit in found.hits:
        passage, where = hit.passage, hit.passage.lineage
        lineage = HitLineage(
            *(where.sha256, where.start, where.end, list(where.headings)),
            *(where.page, where.chunker),
        )
        hits.append(
            SearchHit(
                *(passage.doc_id, passage.chunk, passage.text, float(hit.score), lineage),
                *(passage.title, passage.source, dict(passage.meta), dict(hit.ranks)),
                *(hit.expanded_from, list(also.get(passage.id, ())[:_MOST_ALSO])),
            )
        )
    timings = {part: round(ms, 3) for part, ms in found.timings_ms.items()}
    return SearchAnswer(hits, name, opened.loaded.place.revision, list(found.degraded), timings)


def _document(asked: DocumentRequest, place: Place, found: StoredDocument) -> ShownDocument:
    start = min(asked.start, len(found.text))
    end = len(found.text) if asked.end is None else min(asked.end, len(found.text))
    end = max(start, min(end, start + _MOST_CHARACTERS))
    return ShownDocument(
        doc_id=found.doc_id,
        title=found.title,
        source=found.source,
        meta=found.meta,
        sha256=found.sha256.hex(),
        length=len(found.text),
        start=start,
        end=end,
        text=found.text[start:end],
        corpus=asked.corpus,
        revision=place.revision,
    )
