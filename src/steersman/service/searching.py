"""Searching a tenant's corpora over HTTP: ``POST /v1/search``, and documents to check citations."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from steersman.errors import (
    CorpusError,
    DataError,
    InputError,
    MissingCorpusError,
    StoreError,
)
from steersman.retrieval import Place, SearchSettings, find_place, load, one_view, ready
from steersman.service.app import Route
from steersman.service.http import Answer, converted, json_answer, read_json
from steersman.store import AWAY, find_document, store_is_away
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from asyncpg import Pool

    from steersman.retrieval import Embedders, Found, Opened
    from steersman.service.corpus_cache import CorpusCache
    from steersman.service.http import Request
    from steersman.service.metrics import Metrics
    from steersman.store import Breaker, Database, StoredDocument

_BYTES = 256 * 1024
_DEADLINE_MS = 5_000.0
_MOST_WAITING = 64
_MOST_CHARACTERS = 100_000
_MOST_ALSO = 20
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


class Searching:
    """Handlers of the routes for corpora.

    Args:
        pool: connections of role app.
        cache: what is in memory.
        breaker: around the store.
        metrics: counts.
        clock: seconds that never step back.

    No doctest: it needs a server; ``tests/service/test_searching.py`` shows it.
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

    def routes(self) -> list[tuple[str, Route]]:
        """Return the routes."""
        return [
            ("POST", Route("/v1/search", self.search, "decide", "search", traced=True)),
            ("POST", Route("/v1/documents", self.document, "decide", "search")),
        ]

    async def search(self, request: Request) -> Answer:
        """Answer ``POST /v1/search``.

        Args:
            request: whose key may decide.

        Returns:
            A `SearchAnswer`.

        Raises:
            Refused: there is no such corpus or snapshot, a setting is wrong, or it took too long.
        """
        asked = converted(await read_json(request, _BYTES), SearchRequest)
        begun = self._clock()
        if self._waiting >= _MOST_WAITING:
            self._metrics.search("refused")
            detail = f"{self._waiting} searches wait already; try again later"
            raise Refused.of("unavailable", detail, retry_after_s=1.0)
        self._waiting += 1
        try:
            async with asyncio.timeout(asked.deadline_ms / 1e3):
                opened, found = await self._found(request.key.tenant, asked)
        except TimeoutError:
            self._metrics.search("late")
            detail = (
                f"no answer within {asked.deadline_ms:g} ms; a corpus that is searched for the "
            )
            detail += "first time is loaded meanwhile: try again, or give more deadline_ms"
            raise Refused.of("unavailable", detail, retry_after_s=1.0) from None
        except Refused:
            self._metrics.search("refused")
            raise
        finally:
            self._waiting -= 1
        self._metrics.search("ok", found.degraded, self._clock() - begun)
        return json_answer(_answer(asked.corpus, opened, found))

    async def document(self, request: Request) -> Answer:
        """Answer ``POST /v1/documents``.

        Args:
            request: whose key may decide.

        Returns:
            A `ShownDocument`.

        Raises:
            Refused: there is no such corpus, snapshot or document.
        """
        asked = converted(await read_json(request, _BYTES), DocumentRequest)
        tenant = request.key.tenant

        async def read() -> tuple[Place, StoredDocument | None]:
            async with self._pool.acquire() as connection, one_view(connection, tenant):
                place = await find_place(connection, tenant, asked.corpus, asked.snapshot)
                at = connection, tenant, place.corpus.id, place.revision
                return place, await find_document(*at, asked.doc_id)

        with _told(asked.corpus):
            place, found = await self._breaker.call(read)
        if found is None:
            raise Refused.of("not_found", "there is no such document; search shows those there are")
        return json_answer(_document(asked, place, found))

    async def _found(self, tenant: UUID, asked: SearchRequest) -> tuple[Opened, Found]:
        async def look() -> Place:
            async with self._pool.acquire() as connection, one_view(connection, tenant):
                return await find_place(connection, tenant, asked.corpus, asked.snapshot)

        with _told(asked.corpus):
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
def _told(name: str) -> Iterator[None]:
    """Tell errors as HTTP does; what another tenant has is as absent as what nobody has."""
    try:
        yield
    except MissingCorpusError:
        detail = f"there is no corpus {name!r}, or it has no such snapshot (they expire); "
        detail += "`steersman corpus list` shows those there are"
        raise Refused.of("not_found", detail) from None
    except InputError as error:
        raise Refused.of("invalid", str(error)) from None
    except CorpusError as error:
        raise Refused.of("not_allowed", str(error)) from None
    except DataError as error:
        # An extra that is not installed, most of all: the message says which.
        raise Refused.of("unavailable", str(error)) from None
    except (StoreError, *AWAY) as error:
        if isinstance(error, StoreError) or store_is_away(error):
            detail = "the store does not answer; try again later"
            raise Refused.of("unavailable", detail, retry_after_s=2.0) from error
        raise


async def load_corpus(
    database: Database, embedders: Embedders, tenant: UUID, place: Place
) -> Opened:
    """Bring a revision into memory over a connection of its own.

    Args:
        database: where it is.
        embedders: by name; the corpus's is asked when the first query comes.
        tenant: whose.
        place: as it was found just before.

    Returns:
        What can be searched.

    Raises:
        MissingCorpusError: it was dropped meanwhile.
        DataError: an extra is missing.

    No doctest: it needs a corpus; ``tests/service/test_searching.py`` shows it.
    """
    connection = await database.connect("app")
    try:
        async with one_view(connection, tenant):
            now = await find_place(connection, tenant, place.corpus.name, None)
            if now.corpus.id != place.corpus.id:
                raise MissingCorpusError("the corpus was dropped and made again; ask again")
            loaded = await load(connection, database, tenant, place)
    finally:
        await connection.close()
    return await asyncio.to_thread(ready, loaded, embedders)


def _answer(name: str, opened: Opened, found: Found) -> SearchAnswer:
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
        *(found.doc_id, found.title, found.source, found.meta, found.sha256.hex()),
        *(len(found.text), start, end, found.text[start:end], asked.corpus, place.revision),
    )
