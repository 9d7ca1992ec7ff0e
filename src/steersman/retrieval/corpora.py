"""Corpora of a tenant: documents, passages and immutable revisions."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from steersman.db.audit import record
from steersman.db.corpora import CorpusRow, corpus_of, create_corpus, drop_corpus, find_corpus
from steersman.db.corpus_documents import (
    StoredLinks,
    erase_documents,
    fingerprints_of,
    write_documents,
    write_links,
)
from steersman.db.corpus_hnsw import build_hnsw, drop_hnsw, ensure_pgvector, has_hnsw
from steersman.db.corpus_snapshots import CorpusSnapshotRow, drop_corpus_snapshot, snapshot_corpus
from steersman.errors import CorpusError, InputError
from steersman.retrieval.add_documents import AddResult, DocumentAdder
from steersman.retrieval.corpora_reader import CorporaReader
from steersman.retrieval.documents.chunks import Chunking
from steersman.retrieval.documents.document import check_text
from steersman.retrieval.documents.text_encoding import is_storable
from steersman.retrieval.embedders import check_embedder_name
from steersman.retrieval.loaded_corpus import find_place, load

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.documents.document import Document

_MOST_DAYS = 3650.0


class Corpora(CorporaReader):
    """Corpora of one tenant.

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
        """Create an empty corpus; `add` creates a missing one too.

        Args:
            name: corpus name; 1 to 63 lower-case letters, digits, ``.``, ``_`` and ``-``.
            embedder: ``minilm``, a URL, or ``none`` (keyword search only); default ``minilm``.
            chunking: chunking of documents; default: `Chunking()`.
            near: minimum similarity of duplicate passages; None: only equal passages.

        Raises:
            InputError: invalid name, embedder or similarity.
            CorpusError: the name is taken.
            DataError: the embedder is not available.
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
        on_progress: Callable[[AddResult], None] = lambda _: None,
    ) -> AddResult:
        """Add documents to a corpus; create it if missing; skip unchanged documents.

        Args:
            embedder: as for `create`; None: that of the corpus, ``minilm`` for a new one.
            chunking: as for `create`; None: that of the corpus.
            near: as for `create`; None: that of the corpus.

        Raises:
            InputError: invalid argument, or duplicate document.
            CorpusError: the corpus has another embedder or chunking, or was dropped meanwhile.
            DataError: the embedder is not available, or a document cannot be read; earlier
                batches stay committed.
        """
        corpus = await self._for_adding(name, embedder, chunking, near)
        model = await self._model(corpus, using)
        connection = await self._database.connect("owner")
        try:
            adding = DocumentAdder(
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
        """Remove all other documents from the newest revision; snapshots keep them.

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
        """Erase documents permanently from every revision and snapshot.

        The digest of an affected snapshot then shows that it is incomplete.

        Args:
            reason: reason, 1 to 200 characters; stored in the audit log, so without personal data.

        Raises:
            InputError: missing or invalid reason, or `doc_ids` is a string instead of a list.
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
        """Create a named snapshot of the newest revision of a corpus.

        Args:
            label: snapshot name; default: ``r`` and the revision number.
            ttl_days: lifetime in days, above 0 to 3,650; None: no expiry.

        Raises:
            InputError: invalid label or lifetime.
            CorpusError: the label is taken, or the corpus is empty.
            MissingCorpusError: corpus not found.
        """
        now = self._clock()
        # This form also refuses NaN.
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
        """Delete a corpus with its snapshots, or one snapshot.

        Args:
            snapshot: name of the snapshot to delete; None: the whole corpus.

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
        """Build or remove the pgvector index of a corpus, for large corpora.

        Raises:
            CorpusError: pgvector is not installed, or the corpus has no vectors.
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
            except CorpusError:  # another process created it meanwhile
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
        """Store the link graph of the newest revision, so that loading need not compute it."""
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
    """Return the valid ids; invalid ids cannot exist in a corpus."""
    if isinstance(doc_ids, str):
        message = f"doc_ids is the string {doc_ids[:60]!r}; it must be a list of ids; "
        raise InputError(message + "put the id in a list")
    return [one for one in doc_ids if is_storable(one)]
