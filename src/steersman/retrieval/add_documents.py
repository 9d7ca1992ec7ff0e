"""Adding documents to a corpus: chunks, embeds and commits new and changed ones in batches.

Vectors are committed before their passages, so every visible revision is completely embedded. After
a crash, only texts without a committed vector are embedded.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.db.audit import record
from steersman.db.corpora import corpus_of
from steersman.db.corpus_documents import (
    StoredDocument,
    StoredPassage,
    fingerprints_of,
    write_documents,
)
from steersman.db.corpus_hnsw import extend_hnsw
from steersman.db.corpus_vectors import hold_vectors, known_vectors, write_vectors
from steersman.errors import CorpusError, InputError
from steersman.platform.postgres.database import as_tenant
from steersman.retrieval.documents.chunks import cut
from steersman.retrieval.documents.passage import passage_text
from steersman.retrieval.embedding_cache import unit_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from uuid import UUID

    from steersman.db.corpora import CorpusRow
    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.documents.chunks import Chunking
    from steersman.retrieval.documents.document import Document

_MOST_DOCUMENTS = 200
_MOST_CHARACTERS = 4_000_000
_EMBEDDED_AT_ONCE = 64
_TRIES = 5


@dataclass(frozen=True, slots=True)
class AddResult:
    """Progress or result of adding documents.

    Attributes:
        corpus: corpus name.
        revision: newest revision.
        documents: number of documents passed.
        written: number of new or changed documents.
        unchanged: number of unchanged documents.
        passages: number of passages of the written documents.
        embedded: number of embedded texts.
        known: number of these texts that already had a vector.
    """

    corpus: str
    revision: int
    documents: int = 0
    written: int = 0
    unchanged: int = 0
    passages: int = 0
    embedded: int = 0
    known: int = 0


class DocumentAdder:
    """Adder of documents to one corpus.

    Args:
        connection: connection of role owner, outside a transaction.
        tenant: tenant id.
        corpus: current corpus row.
        chunking: chunking of documents.
        embedder: embedder of the corpus; None: no vectors.
        actor: actor for the audit log.
        on_progress: called after every batch and every few embedded texts.
    """

    def __init__(
        self,
        connection: Any,
        tenant: UUID,
        corpus: CorpusRow,
        *,
        chunking: Chunking,
        embedder: Embedder | None,
        actor: str,
        on_progress: Callable[[AddResult], None] = lambda _: None,
    ) -> None:
        self.done = AddResult(corpus.name, corpus.revision)
        self._connection = connection
        self._tenant, self._corpus = tenant, corpus
        self._chunking, self._embedder = chunking, embedder
        self._actor, self._tell = actor, on_progress
        self._seen: dict[str, str] = {}

    async def add(self, documents: Iterable[Document]) -> None:
        """Add documents, with one revision and audit entry per batch with changes.

        Raises:
            InputError: a doc_id occurs twice.
            MissingCorpusError: the corpus was dropped meanwhile.
        """
        for batch in _batches(documents):
            self._check_new(batch)
            await self._add(batch)
            self._tell(self.done)

    def _check_new(self, batch: list[Document]) -> None:
        for one in batch:
            if one.doc_id in self._seen:
                raise InputError(
                    f"document {one.doc_id!r} occurs twice: in {self._seen[one.doc_id]!r} and "
                    f"{one.source!r}; give each document a unique id"
                )
            self._seen[one.doc_id] = one.source

    async def _add(self, batch: list[Document]) -> None:
        ids = [one.doc_id for one in batch]
        async with as_tenant(self._connection, self._tenant):
            there = await fingerprints_of(self._connection, self._tenant, self._corpus.id, ids)
        changed = [
            (one, fingerprint)
            for one in batch
            if there.get(one.doc_id) != (fingerprint := _fingerprint(one, self._chunking))
        ]
        stored, texts = await asyncio.to_thread(_prepared, changed, self._chunking)
        if stored:
            await self._write(stored, texts)
        self.done = replace(
            self.done,
            documents=self.done.documents + len(batch),
            written=self.done.written + len(stored),
            unchanged=self.done.unchanged + len(batch) - len(stored),
            passages=self.done.passages + sum(len(one.passages) for one in stored),
        )

    async def _write(self, stored: list[StoredDocument], texts: dict[bytes, str]) -> None:
        """Embed and commit; retry if vectors were deleted meanwhile."""
        missing = texts
        for _ in range(_TRIES):
            if self._embedder is not None:
                await self._embed(self._embedder, missing)
            async with as_tenant(self._connection, self._tenant):
                missing = await self._commit(stored, texts)
            if not missing:
                return
        raise CorpusError(
            f"vectors of the corpus {self._corpus.name!r} were deleted {_TRIES} times during the "
            "add; add the documents again when no corpora are being dropped"
        )

    async def _embed(self, embedder: Embedder, texts: dict[bytes, str]) -> None:
        async with as_tenant(self._connection, self._tenant):
            known = await known_vectors(self._connection, self._tenant, embedder.name, list(texts))
        self.done = replace(self.done, known=self.done.known + len(known))
        missing = [(key, text) for key, text in texts.items() if key not in known]
        for first in range(0, len(missing), _EMBEDDED_AT_ONCE):
            some = missing[first : first + _EMBEDDED_AT_ONCE]
            rows = await asyncio.to_thread(embedder.encode, [text for _, text in some])
            rows = unit_rows(rows, len(some), embedder)
            vectors = {key: row for (key, _), row in zip(some, rows, strict=True)}
            async with as_tenant(self._connection, self._tenant):
                await write_vectors(self._connection, self._tenant, embedder.name, vectors)
            self.done = replace(self.done, embedded=self.done.embedded + len(some))
            self._tell(self.done)

    async def _commit(
        self, stored: list[StoredDocument], texts: dict[bytes, str]
    ) -> dict[bytes, str]:
        """Commit documents if all texts have vectors; return the texts without one."""
        held = await corpus_of(self._connection, self._tenant, self._corpus.name, hold=True)
        if held.id != self._corpus.id:
            message = (
                f"the corpus {held.name!r} was dropped and created again; add the documents again"
            )
            raise CorpusError(message)
        await hold_vectors(self._connection, self._tenant)
        if self._embedder is not None:
            at = self._connection, self._tenant, self._embedder.name
            known = await known_vectors(*at, list(texts))
            if len(known) < len(texts):
                return {key: text for key, text in texts.items() if key not in known}
        revision = await write_documents(self._connection, self._tenant, held.id, stored)
        await extend_hnsw(self._connection, self._tenant, held.id)
        if revision is not None:
            passages = sum(len(one.passages) for one in stored)
            detail = {"revision": revision, "written": len(stored), "passages": passages}
            at = self._connection, self._tenant, self._actor
            await record(*at, "corpus.add", held.name, detail)
        self.done = replace(self.done, revision=revision or held.revision)
        return {}


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for one in documents:
        batch.append(one)
        characters += len(one.text)
        if len(batch) == _MOST_DOCUMENTS or characters >= _MOST_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _fingerprint(document: Document, chunking: Chunking) -> bytes:
    """Return the hash of all inputs of a stored document and its passages."""
    parts = (
        *(document.sha256, document.title, document.source, dict(document.meta)),
        [asdict(section) for section in document.sections],
        document.pages,
        chunking.name,
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).digest()


def _prepared(
    changed: list[tuple[Document, bytes]], chunking: Chunking
) -> tuple[list[StoredDocument], dict[bytes, str]]:
    """Return documents to store, and their ranked texts by hash."""
    stored, texts = [], {}
    for document, fingerprint in changed:
        passages = []
        for passage in cut(document, chunking):
            text = passage_text(passage)
            key = hashlib.sha256(text.encode()).digest()
            texts[key] = text
            where = passage.lineage
            passages.append(
                StoredPassage(
                    *(passage.chunk, where.start, where.end, where.headings),
                    *(where.page, where.chunker, key),
                )
            )
        stored.append(
            StoredDocument(
                *(document.doc_id, document.text, bytes.fromhex(document.sha256), fingerprint),
                *(document.title, document.source, dict(document.meta), tuple(passages)),
            )
        )
    return stored, texts
