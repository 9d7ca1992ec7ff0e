"""Documents and passages of a corpus, versioned by revision."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from steersman.db.corpora import LIVING, next_revision
from steersman.db.corpus_hnsw import thin_hnsw
from steersman.db.corpus_vectors import hold_vectors
from steersman.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence
    from uuid import UUID

    from numpy.typing import NDArray


class StoredLinks(NamedTuple):
    """Link graph of passages.

    Attributes:
        starts: (n + 1,) start of each passage's links.
        targets: (m,) index of the linked passage.
        kinds: (m,) kind of link.
    """

    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    kinds: NDArray[np.uint8]


async def write_links(
    connection: Any,
    tenant: UUID,
    corpus: UUID,
    revision: int,
    hashes: Iterable[bytes],
    links: StoredLinks,
) -> None:
    """Store the graph of a revision; an existing one is replaced."""
    await connection.execute(
        "INSERT INTO corpus_links VALUES ($1, $2, $3, $4, $5, $6, $7) "
        "ON CONFLICT (tenant, corpus, revision) DO UPDATE SET passages = excluded.passages, "
        "starts = excluded.starts, targets = excluded.targets, kinds = excluded.kinds",
        *(tenant, corpus, revision, _digest(hashes)),
        links.starts.astype("<i8").tobytes(),
        links.targets.astype("<i4").tobytes(),
        links.kinds.astype("u1").tobytes(),
    )


async def read_links(
    connection: Any, tenant: UUID, corpus: UUID, revision: int, hashes: Iterable[bytes]
) -> StoredLinks | None:
    """Return the graph of a revision.

    Returns:
        The graph; None if there is none or it belongs to other passages.

    Raises:
        CorpusError: the stored graph is damaged.
    """
    row = await connection.fetchrow(
        "SELECT passages, starts, targets, kinds FROM corpus_links "
        "WHERE tenant = $1 AND corpus = $2 AND revision = $3",
        *(tenant, corpus, revision),
    )
    if row is None or row["passages"] != _digest(hashes):
        return None
    try:
        return StoredLinks(
            np.frombuffer(row["starts"], "<i8").astype(np.int64),
            np.frombuffer(row["targets"], "<i4").astype(np.int32),
            np.frombuffer(row["kinds"], "u1"),
        )
    except ValueError as error:
        message = f"the links of revision {revision} are damaged: {error}; add a document to the "
        raise CorpusError(message + "corpus to rebuild them") from error


def _digest(hashes: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for one in hashes:
        digest.update(one)
    return digest.digest()


_FETCHED = 500


class StoredPassage(NamedTuple):
    """Stored passage: a span of its document.

    Attributes:
        chunk: index among the passages of the document, from 0.
        start: start of the span in characters.
        end: end of the span in characters.
        headings: headings above it, outermost first.
        page: page from 1; None if the document has no pages.
        chunker: name of the chunker.
        hash: SHA-256 of the ranked text.
    """

    chunk: int
    start: int
    end: int
    headings: tuple[str, ...]
    page: int | None
    chunker: str
    hash: bytes


class StoredDocument(NamedTuple):
    """Stored document with its passages.

    Attributes:
        doc_id: document id in the corpus.
        text: decoded text.
        sha256: SHA-256 of the text, 32 bytes.
        fingerprint: fingerprint of all content; it changes with any change.
        title: title or "".
        source: source or "".
        meta: metadata.
        passages: passages in order.
    """

    doc_id: str
    text: str
    sha256: bytes
    fingerprint: bytes
    title: str
    source: str
    meta: dict[str, Any]
    passages: tuple[StoredPassage, ...]


async def fingerprints_of(
    connection: Any, tenant: UUID, corpus: UUID, doc_ids: Sequence[str] | None = None
) -> dict[str, bytes]:
    """Return the fingerprints of documents in the newest revision.

    Args:
        doc_ids: document ids; None: all.
    """
    rows = await connection.fetch(
        "SELECT doc_id, fingerprint FROM corpus_document WHERE tenant = $1 AND corpus = $2 "
        "AND removed IS NULL AND ($3::text[] IS NULL OR doc_id = ANY($3))",
        *(tenant, corpus, doc_ids),
    )
    return dict(rows)


async def write_documents(
    connection: Any,
    tenant: UUID,
    corpus: UUID,
    documents: Sequence[StoredDocument],
    remove: Collection[str] = (),
) -> int | None:
    """Add, change and remove documents as one revision.

    Returns:
        The new revision; None if nothing changed.
    """
    there = await fingerprints_of(
        connection, tenant, corpus, [*remove, *(one.doc_id for one in documents)]
    )
    fresh = [one for one in documents if there.get(one.doc_id) != one.fingerprint]
    gone = there.keys() & {*remove, *(one.doc_id for one in fresh)}
    if not fresh and not gone:
        return None
    revision = await next_revision(connection, tenant, corpus)
    for table, more in (("corpus_document", ", removed_at = now()"), ("corpus_passage", "")):
        await connection.execute(
            f"UPDATE {table} SET removed = $3{more} WHERE tenant = $1 AND corpus = $2 "  # noqa: S608 (constants)
            "AND removed IS NULL AND doc_id = ANY($4)",
            *(tenant, corpus, revision, sorted(gone)),
        )
    await _insert_documents(connection, tenant, corpus, revision, fresh)
    await _insert_passages(connection, tenant, corpus, revision, fresh)
    return revision


async def read_documents(
    connection: Any, tenant: UUID, corpus: UUID, revision: int
) -> AsyncIterator[StoredDocument]:
    """Yield the documents of a revision with their passages, by document id."""
    passages = connection.cursor(
        "SELECT doc_id, chunk, text_start, text_end, headings, page, chunker, hash "  # noqa: S608 (a constant)
        f"FROM corpus_passage AS r WHERE {LIVING} ORDER BY doc_id, chunk",
        *(tenant, corpus, revision),
        prefetch=_FETCHED,
    ).__aiter__()
    documents = connection.cursor(
        "SELECT doc_id, text, sha256, fingerprint, title, source, meta "  # noqa: S608 (a constant)
        f"FROM corpus_document AS r WHERE {LIVING} ORDER BY doc_id",
        *(tenant, corpus, revision),
        prefetch=_FETCHED,
    )
    ahead = await anext(passages, None)
    async for row in documents:
        own = []
        while ahead is not None and ahead[0] == row["doc_id"]:
            own.append(StoredPassage._make([*ahead[1:4], tuple(ahead[4]), *ahead[5:]]))
            ahead = await anext(passages, None)
        yield StoredDocument._make([*row, tuple(own)])


async def find_document(
    connection: Any, tenant: UUID, corpus: UUID, revision: int, doc_id: str
) -> StoredDocument | None:
    """Return a document of a revision, without its passages.

    Returns:
        The document; None if that revision lacks it.
    """
    row = await connection.fetchrow(
        "SELECT doc_id, text, sha256, fingerprint, title, source, meta "  # noqa: S608 (a constant)
        f"FROM corpus_document AS r WHERE {LIVING} AND doc_id = $4",
        *(tenant, corpus, revision, doc_id),
    )
    return None if row is None else StoredDocument._make([*row, ()])


async def erase_documents(
    connection: Any, tenant: UUID, corpus: UUID, doc_ids: Sequence[str]
) -> dict[str, int]:
    """Delete documents from every revision and corpus snapshot, with unused vectors.

    Returns:
        Number of deleted rows by table; if all are 0 the revision stays.
    """
    await hold_vectors(connection, tenant)
    named = tenant, corpus, list(doc_ids)
    where = "WHERE tenant = $1 AND corpus = $2 AND doc_id = ANY($3)"
    hashes = [
        row["hash"]
        for row in await connection.fetch(
            f"DELETE FROM corpus_passage {where} RETURNING hash",  # noqa: S608 (a constant)
            *named,
        )
    ]
    status = await connection.execute(f"DELETE FROM corpus_document {where}", *named)  # noqa: S608
    vectors = await connection.execute(
        "DELETE FROM corpus_vector AS v WHERE tenant = $1 AND hash = ANY($2) AND NOT EXISTS ("
        "SELECT FROM corpus_passage AS p WHERE p.tenant = $1 AND p.hash = v.hash)",
        *(tenant, hashes),
    )
    await thin_hnsw(connection, tenant, corpus)
    documents = int(status.split()[-1])
    if documents:
        await next_revision(connection, tenant, corpus)
        await connection.execute(
            "UPDATE corpus SET erasures = erasures + 1 WHERE tenant = $1 AND id = $2",
            *(tenant, corpus),
        )
    return {
        "corpus_document": documents,
        "corpus_passage": len(hashes),
        "corpus_vector": int(vectors.split()[-1]),
    }


async def _insert_documents(
    connection: Any, tenant: UUID, corpus: UUID, revision: int, fresh: Sequence[StoredDocument]
) -> None:
    columns = list(zip(*(one[:-1] for one in fresh), strict=True)) or [()] * 7
    await connection.execute(
        "INSERT INTO corpus_document (tenant, corpus, added, doc_id, text, sha256, fingerprint, "
        "title, source, meta) SELECT $1, $2, $3, * FROM unnest($4::text[], $5::text[], "
        "$6::bytea[], $7::bytea[], $8::text[], $9::text[], $10::jsonb[])",
        *(tenant, corpus, revision, *columns),
    )


async def _insert_passages(
    connection: Any, tenant: UUID, corpus: UUID, revision: int, fresh: Sequence[StoredDocument]
) -> None:
    # Headings as JSON: an array of arrays may not be ragged.
    rows = [
        (one.doc_id, *passage[:3], msgspec.json.encode(passage.headings).decode(), *passage[4:])
        for one in fresh
        for passage in one.passages
    ]
    columns = list(zip(*rows, strict=True)) or [()] * 8
    await connection.execute(
        "INSERT INTO corpus_passage (tenant, corpus, added, doc_id, chunk, text_start, text_end, "
        "headings, page, chunker, hash) SELECT $1, $2, $3, n.doc_id, n.chunk, n.text_start, "
        "n.text_end, ARRAY(SELECT jsonb_array_elements_text(n.headings::jsonb)), n.page, "
        "n.chunker, n.hash FROM unnest($4::text[], $5::int[], $6::int[], $7::int[], $8::text[], "
        "$9::int[], $10::text[], $11::bytea[]) AS n "
        "(doc_id, chunk, text_start, text_end, headings, page, chunker, hash)",
        *(tenant, corpus, revision, *columns),
    )
