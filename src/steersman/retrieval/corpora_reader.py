"""Read access to a tenant's corpora: list, documents and any revision."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.corpora import CorpusRow, CorpusSize, corpora_of, corpus_of, corpus_size
from steersman.db.corpus_documents import find_document
from steersman.db.corpus_hnsw import has_hnsw
from steersman.db.corpus_snapshots import CorpusSnapshotRow, corpus_snapshots_of
from steersman.errors import CorpusError, MissingCorpusError
from steersman.platform.postgres.database import as_tenant
from steersman.retrieval.documents.text_encoding import is_storable
from steersman.retrieval.embedders import CorpusEmbedder, Embedders
from steersman.retrieval.exact_index import MissingVectors
from steersman.retrieval.loaded_corpus import LoadedCorpus, find_place, load, one_view
from steersman.retrieval.query_words import searched_words
from steersman.retrieval.rerank import CosineReranker
from steersman.retrieval.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from uuid import UUID

    from steersman.db.corpus_documents import StoredDocument
    from steersman.platform.postgres.database import Database
    from steersman.retrieval.rerank import Reranker


@dataclass(frozen=True, slots=True)
class CorpusInfo:
    """Corpus with size, snapshots and index state.

    Attributes:
        corpus: current corpus row.
        size: size of the newest revision.
        snapshots: unexpired snapshots, the newest first.
        indexed: whether it has a pgvector index; otherwise search is exact.
    """

    corpus: CorpusRow
    size: CorpusSize
    snapshots: tuple[CorpusSnapshotRow, ...]
    indexed: bool


@dataclass(frozen=True, slots=True)
class OpenCorpus:
    """Searchable revision, independent of later changes.

    Attributes:
        loaded: loaded revision.
        searcher: searcher of the revision.
    """

    loaded: LoadedCorpus
    searcher: Searcher


class CorporaReader:
    """Read access to the corpora of one tenant; `Corpora` changes them.

    Args:
        database: database with current migrations.
        tenant: tenant id; other tenants' rows are not visible.
        embedders: embedders by name; default: `Embedders()`.
        actor: actor for the audit log.
        clock: returns the current time with a time zone.
    """

    def __init__(
        self,
        database: Database,
        tenant: UUID,
        *,
        embedders: Embedders | None = None,
        actor: str = "python",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database, self._tenant = database, tenant
        self._embedders = embedders or Embedders()
        self._actor, self._clock = actor, clock

    async def all(self) -> list[CorpusRow]:
        """Return the tenant's corpora by name."""
        async with self._reading() as connection:
            return await corpora_of(connection, self._tenant)

    async def show(self, name: str) -> CorpusInfo:
        """Return a corpus with size, snapshots and index state.

        Raises:
            MissingCorpusError: corpus not found.
        """
        async with self._reading() as connection:
            corpus = await corpus_of(connection, self._tenant, name)
            at = connection, self._tenant, corpus.id
            return CorpusInfo(
                corpus,
                await corpus_size(*at, corpus.revision),
                tuple(await corpus_snapshots_of(*at, now=self._clock())),
                await has_hnsw(connection, corpus.id),
            )

    async def document(
        self, name: str, doc_id: str, *, snapshot: str | None = None
    ) -> StoredDocument:
        """Return a document of a revision, for example to check citations.

        Args:
            snapshot: corpus snapshot; None: the newest revision.

        Raises:
            MissingCorpusError: corpus, snapshot or document not found.
        """
        async with self._reading() as connection:
            place = await find_place(connection, self._tenant, name, snapshot, now=self._clock())
            at = connection, self._tenant, place.corpus.id, place.revision
            found = await find_document(*at, doc_id) if is_storable(doc_id) else None
        if found is None:
            message = f"the corpus {name!r} has no document {doc_id!r:.200} at revision "
            raise MissingCorpusError(f"{message}{place.revision}; a search shows the ids it has")
        return found

    async def open(
        self,
        name: str,
        *,
        snapshot: str | None = None,
        rerankers: Mapping[str, Reranker] | None = None,
        by_words: bool = False,
    ) -> OpenCorpus:
        """Load a revision into memory for search.

        Args:
            snapshot: corpus snapshot; None: the newest revision.

        Raises:
            MissingCorpusError: corpus or snapshot not found.
            CorpusError: vectors are missing; use `by_words`.
            DataError: the embedder is not available or has changed (use `by_words`), or an extra
                is missing.
        """
        connection = await self._database.connect("app")
        try:
            async with one_view(connection, self._tenant):
                place = await find_place(
                    connection, self._tenant, name, snapshot, now=self._clock()
                )
                loaded = await load(
                    connection, self._database, self._tenant, place, by_words=by_words
                )
        finally:
            await connection.close()
        return await asyncio.to_thread(ready, loaded, self._embedders, rerankers, check=True)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Any]:
        connection = await self._database.connect("owner")
        try:
            async with as_tenant(connection, self._tenant):
                yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Any]:
        connection = await self._database.connect("app")
        try:
            async with one_view(connection, self._tenant):
                yield connection
        finally:
            await connection.close()


def ready(
    loaded: LoadedCorpus,
    embedders: Embedders,
    rerankers: Mapping[str, Reranker] | None = None,
    *,
    check: bool = False,
    wait_s: float | None = None,
) -> OpenCorpus:
    """Return a searcher over a loaded revision; building the keyword index takes a while.

    Args:
        rerankers: rerankers by name; None: ``cosine``, if there is an embedder.
        wait_s: seconds that a query waits for the embedder to load; None: no limit.

    Raises:
        CorpusError: the check found missing vectors.
        DataError: the extra ``rag`` is not installed, or the embedder is not available.
    """
    corpus = loaded.place.corpus
    embedder = None
    if loaded.vectors is not None and corpus.embedder and corpus.embedder_name:
        embedder = CorpusEmbedder(
            *(embedders, corpus.embedder, corpus.embedder_name, loaded.vectors.size),
            wait_s=wait_s,
        )
        if check:
            if isinstance(loaded.vectors, MissingVectors):
                raise CorpusError(loaded.vectors.why)
            embedder.check()
        rerankers = {"cosine": CosineReranker(embedder)} if rerankers is None else rerankers
    searcher = Searcher(
        loaded.passages,
        embedder=embedder,
        vectors=loaded.vectors,
        links=loaded.links,
        rerankers=rerankers,
        split=searched_words,
    )
    return OpenCorpus(loaded, searcher)
