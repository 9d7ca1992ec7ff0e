"""The corpora of a tenant: documents go in, passages are found, every revision stays the same."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from steersman.errors import CorpusError, InputError
from steersman.retrieval.adding import Added, Adding
from steersman.retrieval.corpora_reading import CorporaToRead
from steersman.retrieval.documents import Chunking
from steersman.retrieval.documents.decoding import is_storable
from steersman.retrieval.documents.document import check_text
from steersman.retrieval.embedders import check_embedder_name
from steersman.retrieval.opening import find_place, load
from steersman.store import (
    CorpusRow,
    CorpusSnapshotRow,
    StoredLinks,
    build_hnsw,
    corpus_of,
    create_corpus,
    drop_corpus,
    drop_corpus_snapshot,
    drop_hnsw,
    ensure_pgvector,
    erase_documents,
    find_corpus,
    fingerprints_of,
    has_hnsw,
    record,
    snapshot_corpus,
    write_documents,
    write_links,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.documents import Document

_MOST_DAYS = 3650.0


class Corpora(CorporaToRead):
    """The corpora of one tenant.

    Args:
        database: database with current migrations.
        tenant: tenant id; other tenants' rows are not visible.
        embedders: embedders by name; default: `Embedders()`.
        actor: actor for the audit log.
        clock: returns the current time with a time zone.
    """

    async def create(
        self,
        name: str,
        *,
        embedder: str = "minilm",
        chunking: Chunking | None = None,
        near: float | None = None,
    ) -> CorpusRow:
        """Make an empty corpus; `add` makes one too.

        Args:
            name: 1 to 63 small letters, digits, ``.``, ``_`` and ``-``.
            embedder: ``minilm``, a URL, or ``none``: it is searched by words alone.
            chunking: how documents are cut; default: `Chunking`'s.
            near: similarity from which on passages are found once; None: equal ones alone.

        Returns:
            The corpus.

        Raises:
            InputError: a bad name, embedder or similarity.
            CorpusError: there is one of this name.
            DataError: the embedder cannot be had here.
        """
        what = None
        if embedder != "none":
            model = await asyncio.to_thread(self._embedders.get, embedder)
            what = embedder, model.name, model.size
        async with self._writing() as connection:
            made = await create_corpus(
                connection,
                self._tenant,
                name,
                chunking=asdict(chunking or Chunking()),
                embedder=what,
                near=near,
            )
            detail = {"embedder": embedder, "chunking": made.chunking}
            await record(connection, self._tenant, self._actor, "corpus.create", name, detail)
        return made

    async def add(
        self,
        name: str,
        documents: Iterable[Document],
        *,
        embedder: str | None = None,
        chunking: Chunking | None = None,
        near: float | None = None,
        using: Embedder | None = None,
        on_progress: Callable[[Added], None] = lambda _: None,
    ) -> Added:
        """Add documents to a corpus, made if it is not there; what is there already costs nothing.

        Args:
            name: corpus name.
            documents: read one after the other; what has an id that is there replaces it.
            embedder: as for `create`; None: as the corpus has it, and ``minilm`` for a new one.
            chunking: likewise.
            near: likewise.
            using: what embeds in the place of the corpus's embedder, such as `EmbeddingWorkers` of
                the same model.
            on_progress: called with the progress so far.

        Returns:
            What was done.

        Raises:
            InputError: a bad argument, or a document that came twice.
            CorpusError: the corpus is embedded or cut otherwise, or was dropped meanwhile.
            DataError: the embedder cannot be had, or a document cannot be read; what was committed
                before stays.
        """
        corpus = await self._for_adding(name, embedder, chunking, near)
        model = await self._model(corpus, using)
        connection = await self._database.connect("owner")
        try:
            adding = Adding(
                connection,
                self._tenant,
                corpus,
                chunking=Chunking(**corpus.chunking),
                embedder=model,
                actor=self._actor,
                on_progress=on_progress,
            )
            await adding.add(documents)
        finally:
            await connection.close()
        if adding.done.revision > corpus.revision:
            await self._link(name)
        return adding.done

    async def keep_only(self, name: str, doc_ids: Collection[str]) -> int:
        """Remove all documents from the newest revision but some; snapshots keep them.

        Args:
            name: corpus name.
            doc_ids: of those that stay.

        Returns:
            How many were removed.

        Raises:
            InputError: `doc_ids` is a string instead of a list.
            MissingCorpusError: corpus not found.
        """
        kept = set(_ids(doc_ids))
        async with self._reading() as connection:
            corpus = await corpus_of(connection, self._tenant, name)
            there = await fingerprints_of(connection, self._tenant, corpus.id)
        gone = sorted(there.keys() - kept)
        if gone:
            await self.remove(name, gone)
        return len(gone)

    async def remove(self, name: str, doc_ids: Sequence[str]) -> int:
        """Remove documents from the newest revision; snapshots keep them.

        Args:
            name: corpus name.
            doc_ids: document ids; unknown ids are ignored.

        Returns:
            The newest revision.

        Raises:
            InputError: `doc_ids` is a string instead of a list.
            MissingCorpusError: corpus not found.
        """
        gone = _ids(doc_ids)
        async with self._writing() as connection:
            corpus = await corpus_of(connection, self._tenant, name, hold=True)
            revision = await write_documents(connection, self._tenant, corpus.id, [], gone)
            if revision is not None:
                detail = {"documents": len(gone), "revision": revision}
                await record(connection, self._tenant, self._actor, "corpus.remove", name, detail)
        if revision is not None:
            await self._link(name)
        return revision or corpus.revision

    async def erase(self, name: str, doc_ids: Sequence[str], *, reason: str) -> dict[str, int]:
        """Erase documents from every revision and snapshot, for good.

        The digest of a snapshot that had one of them tells from then on that it is not whole.

        Args:
            name: corpus name.
            doc_ids: document ids; unknown ids are ignored.
            reason: why, 1 to 200 characters; kept in the audit, so it must not be personal.

        Returns:
            Number of deleted rows by table.

        Raises:
            InputError: no reason, one that cannot be stored, or one text instead of a list.
            MissingCorpusError: corpus not found.
        """
        if not 1 <= len(reason) <= 200:
            message = f"the reason has {len(reason)} characters; allowed: 1 to 200; state a reason"
            raise InputError(message)
        check_text(reason, "the reason")
        gone = _ids(doc_ids)
        async with self._writing() as connection:
            corpus = await corpus_of(connection, self._tenant, name, hold=True)
            rows = await erase_documents(connection, self._tenant, corpus.id, gone)
            detail = {"corpus": name, "documents": len(gone), "rows": rows}
            await record(connection, self._tenant, self._actor, "corpus.erase", reason, detail)
        if any(rows.values()):
            await self._link(name)
        return rows

    async def snapshot(
        self, name: str, label: str | None = None, *, ttl_days: float | None = None
    ) -> CorpusSnapshotRow:
        """Name the newest revision of a corpus, which then stays as it is.

        Args:
            name: corpus name.
            label: of the snapshot; default: ``r`` and the revision.
            ttl_days: after how many days it goes, above 0 to 3,650; None: never.

        Returns:
            The corpus snapshot.

        Raises:
            InputError: a bad label, or an end that is not in the future.
            CorpusError: the label is taken, or the corpus is empty.
            MissingCorpusError: corpus not found.
        """
        now = self._clock()
        # Written so that NaN is refused too.
        if ttl_days is not None and not 0 < ttl_days <= _MOST_DAYS:
            message = f"ttl_days is {ttl_days!r}; allowed: above 0, at most {_MOST_DAYS:,.0f}"
            raise InputError(message + ", or None for a snapshot without expiry")
        expires_at = None if ttl_days is None else now + timedelta(days=ttl_days)
        async with self._writing() as connection:
            corpus = await corpus_of(connection, self._tenant, name, hold=True)
            made = await snapshot_corpus(
                *(connection, self._tenant, corpus, label or f"r{corpus.revision}"),
                expires_at=expires_at,
                now=now,
            )
            detail = {"snapshot": made.name, "revision": made.revision}
            await record(connection, self._tenant, self._actor, "corpus.snapshot", name, detail)
        return made

    async def drop(self, name: str, *, snapshot: str | None = None) -> dict[str, int]:
        """Delete a corpus with its snapshots, or one of its snapshots alone.

        Args:
            name: corpus name.
            snapshot: of this one only.

        Returns:
            Number of deleted rows by table.

        Raises:
            MissingCorpusError: corpus or snapshot not found.
        """
        async with self._writing() as connection:
            corpus = await corpus_of(connection, self._tenant, name, hold=True)
            if snapshot is None:
                rows = await drop_corpus(connection, self._tenant, corpus.id)
            else:
                await find_place(connection, self._tenant, name, snapshot, now=self._clock())
                await drop_corpus_snapshot(connection, self._tenant, corpus.id, snapshot)
                rows = {"corpus_snapshot": 1}
            detail = {"snapshot": snapshot, "rows": rows}
            await record(connection, self._tenant, self._actor, "corpus.drop", name, detail)
        return rows

    async def index(
        self, name: str, *, hnsw: bool, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Make or remove pgvector's index of a corpus, which large ones are searched by.

        Args:
            name: corpus name.
            hnsw: make it anew; False: remove it, and search exactly.
            on_progress: told how many vectors are in so far.

        Returns:
            How many vectors it holds.

        Raises:
            CorpusError: pgvector is not there, or the corpus has no vectors.
            MissingCorpusError: corpus not found.
        """
        if not hnsw:
            async with self._writing() as connection:
                corpus = await corpus_of(connection, self._tenant, name, hold=True)
                if await has_hnsw(connection, corpus.id):
                    await drop_hnsw(connection, corpus.id)
                    at = connection, self._tenant, self._actor
                    await record(*at, "corpus.index", name, {"vectors": 0})
            return 0
        if (await self.show(name)).corpus.dimension is None:
            message = f"the corpus {name!r} has no vectors to index; "
            raise CorpusError(message + "add its documents to a corpus with an embedder")
        await ensure_pgvector(self._database)
        async with self._writing() as connection:
            corpus = await corpus_of(connection, self._tenant, name, hold=True)
            count = await build_hnsw(
                *(connection, self._tenant, corpus.id),
                dimension=corpus.dimension or 0,
                on_progress=on_progress,
            )
            detail = {"vectors": count}
            await record(connection, self._tenant, self._actor, "corpus.index", name, detail)
        return count

    async def _for_adding(
        self, name: str, embedder: str | None, chunking: Chunking | None, near: float | None
    ) -> CorpusRow:
        if embedder is not None and embedder not in self._embedders:
            check_embedder_name(embedder)
        async with self._reading() as connection:
            corpus = await find_corpus(connection, self._tenant, name)
        if corpus is None:
            try:
                return await self.create(
                    name, embedder=embedder or "minilm", chunking=chunking, near=near
                )
            except CorpusError:  # somebody else made it meanwhile
                async with self._reading() as connection:
                    corpus = await corpus_of(connection, self._tenant, name)
        for what, has, wanted in (
            ("embedder", corpus.embedder or "none", embedder),
            ("chunking", corpus.chunking, None if chunking is None else asdict(chunking)),
            ("near", corpus.near, near),
        ):
            if wanted is not None and wanted != has:
                raise CorpusError(
                    f"the corpus {name!r} has the {what} {has!r}, not {wanted!r}; omit "
                    "this argument, or create another corpus"
                )
        return corpus

    async def _model(self, corpus: CorpusRow, using: Embedder | None) -> Embedder | None:
        if corpus.embedder is None or corpus.embedder_name is None or corpus.dimension is None:
            return None
        if using is None:
            using = await asyncio.to_thread(self._embedders.get, corpus.embedder)
        if (using.name, using.size) != (corpus.embedder_name, corpus.dimension):
            raise CorpusError(
                f"the corpus {corpus.name!r} was embedded with {corpus.embedder_name} "
                f"({corpus.dimension} numbers), but this embedder is {using.name} ({using.size}); "
                "use that one, or add the documents to another corpus"
            )
        return using

    async def _link(self, name: str) -> None:
        """Keep the graph of the newest revision; whoever loads it need not find it again."""
        async with self._writing() as connection:
            corpus = await find_corpus(connection, self._tenant, name)
            if corpus is None:
                return
            place = await find_place(connection, self._tenant, name, None)
            loaded = await load(connection, self._database, self._tenant, place, by_words=True)
            links = loaded.links
            await write_links(
                *(connection, self._tenant, corpus.id, place.revision, loaded.hashes),
                StoredLinks(links.starts, links.targets, links.kinds),
            )


def _ids(doc_ids: Collection[str]) -> list[str]:
    """Return the ids that a document can have; others are those of none that is there."""
    if isinstance(doc_ids, str):
        message = f"doc_ids is the string {doc_ids[:60]!r}; it must be a list of ids; "
        raise InputError(message + "put the id in a list")
    return [one for one in doc_ids if is_storable(one)]
