"""What can be read of a tenant's corpora: which there are, their documents, and any revision."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.errors import CorpusError, MissingCorpusError
from steersman.retrieval.documents.decoding import is_storable
from steersman.retrieval.embedders import CorpusEmbedder, Embedders
from steersman.retrieval.opening import Loaded, find_place, load, one_view
from steersman.retrieval.rerank import CosineReranker
from steersman.retrieval.searched_words import searched_words
from steersman.retrieval.searcher import Searcher
from steersman.retrieval.vectors import MissingVectors
from steersman.store import (
    CorpusRow,
    CorpusSize,
    CorpusSnapshotRow,
    as_tenant,
    corpora_of,
    corpus_of,
    corpus_size,
    corpus_snapshots_of,
    find_document,
    has_hnsw,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from uuid import UUID

    from steersman.retrieval.rerank import Reranker
    from steersman.store import Database, StoredDocument


@dataclass(frozen=True, slots=True)
class Shown:
    """A corpus and what belongs to it.

    Attributes:
        corpus: as it is now.
        size: of its newest revision.
        snapshots: that live, the latest first.
        indexed: whether pgvector searches it; else vectors are compared exactly.
    """

    corpus: CorpusRow
    size: CorpusSize
    snapshots: tuple[CorpusSnapshotRow, ...]
    indexed: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """A revision that can be searched, whatever becomes of its corpus.

    Attributes:
        loaded: what is searched.
        searcher: searches it.
    """

    loaded: Loaded
    searcher: Searcher


class CorporaToRead:
    """The corpora of one tenant, as they are; `Corpora` changes them.

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

    async def show(self, name: str) -> Shown:
        """Return a corpus and what belongs to it.

        Args:
            name: corpus name.

        Raises:
            MissingCorpusError: corpus not found.
        """
        async with self._reading() as connection:
            corpus = await corpus_of(connection, self._tenant, name)
            at = connection, self._tenant, corpus.id
            return Shown(
                corpus,
                await corpus_size(*at, corpus.revision),
                tuple(await corpus_snapshots_of(*at, now=self._clock())),
                await has_hnsw(connection, corpus.id),
            )

    async def document(
        self, name: str, doc_id: str, *, snapshot: str | None = None
    ) -> StoredDocument:
        """Return a document as it is in a revision, to check citations against.

        Args:
            name: corpus name.
            doc_id: of the document.
            snapshot: of the corpus; None: the newest revision.

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
    ) -> Opened:
        """Bring a revision into memory, ready to be searched.

        Args:
            name: corpus name.
            snapshot: of it; None: its newest revision.
            rerankers: that a search may name.
            by_words: leave vectors out and ask no embedder.

        Returns:
            What can be searched; it does not change when the corpus does.

        Raises:
            MissingCorpusError: corpus or snapshot not found.
            CorpusError: vectors are missing; open it `by_words`.
            DataError: its embedder cannot be had here, or is another than it was; open it
                `by_words`, or an extra is missing.
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
    loaded: Loaded,
    embedders: Embedders,
    rerankers: Mapping[str, Reranker] | None = None,
    *,
    check: bool = False,
    wait_s: float | None = None,
) -> Opened:
    """Return a searcher over what was loaded; it makes the keyword index, which takes a while.

    Args:
        loaded: what is searched.
        embedders: by name; the corpus's is asked when the first query comes.
        rerankers: that a search may name; None: ``cosine``, where there is an embedder.
        check: ask for the embedder at once, and that no vector is missing.
        wait_s: how long a query waits until the embedder is made; None: as long as it takes.

    Returns:
        What can be searched.

    Raises:
        CorpusError: vectors were checked and are missing.
        DataError: the extra ``rag`` is not installed, or the embedder was checked and is not there.
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
    return Opened(loaded, searcher)
