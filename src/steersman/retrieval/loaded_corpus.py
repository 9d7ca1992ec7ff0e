"""Loading a corpus revision into memory: passages, vectors and links.

All reads use one transaction with one snapshot of the database, so concurrent changes have no
effect. Slow work runs outside the event loop.
"""

from __future__ import annotations

import asyncio
import math
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.corpora import corpus_of
from steersman.db.corpus_documents import read_documents, read_links
from steersman.db.corpus_hnsw import hnsw_id, indexed_by_hnsw, sees_hnsw
from steersman.db.corpus_snapshots import find_corpus_snapshot
from steersman.db.corpus_vectors import read_vectors
from steersman.errors import CorpusError, MissingCorpusError
from steersman.platform.postgres.database import set_tenant
from steersman.retrieval.bm25 import stem
from steersman.retrieval.documents.duplicates import unique
from steersman.retrieval.documents.passage import Lineage, Passage, passage_text
from steersman.retrieval.documents.text_encoding import is_storable
from steersman.retrieval.exact_index import ExactIndex, MissingVectors
from steersman.retrieval.passage_links import Links, link_passages
from steersman.retrieval.pgvector_index import PgvectorIndex
from steersman.retrieval.query_words import searched_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from uuid import UUID

    from steersman.db.corpora import CorpusRow
    from steersman.db.corpus_documents import StoredDocument
    from steersman.platform.postgres.database import Database
    from steersman.retrieval.exact_index import VectorIndex

_PER_PASSAGE = 1_200  # objects and ids, as measured
_PER_POSTING = 8  # a score and a passage, 4 bytes each
_PER_WORD = 150  # two numbers, and entries of a dictionary, a set and the index
_LOOKED_AT = 2_000


@dataclass(frozen=True, slots=True)
class Place:
    """Reference to a corpus revision and its index.

    Attributes:
        corpus: current corpus row.
        revision: revision number.
        snapshot: corpus snapshot of the revision; None: the newest revision.
        hnsw: number of the current pgvector index; None: exact search.
    """

    corpus: CorpusRow
    revision: int
    snapshot: str | None = None
    hnsw: int | None = None


@dataclass(frozen=True, slots=True)
class LoadedCorpus:
    """Corpus revision in memory.

    Attributes:
        place: reference to the revision.
        passages: unique passages, ordered by document and position.
        hashes: hashes of the ranked texts, 32 bytes each.
        also: ids of duplicate passages, by the id of the kept one.
        vectors: vector index; None: keyword search only.
        links: links between the passages.
        bytes: estimated memory in bytes, keyword index included.
    """

    place: Place
    passages: tuple[Passage, ...]
    hashes: tuple[bytes, ...]
    also: Mapping[str, tuple[str, ...]]
    vectors: VectorIndex | None
    links: Links
    bytes: int


async def find_place(
    connection: Any, tenant: UUID, name: str, snapshot: str | None, *, now: datetime | None = None
) -> Place:
    """Return the newest revision of a corpus, or that of a corpus snapshot.

    Args:
        snapshot: corpus snapshot; None: the newest revision.
        now: current time, for expiry; default: the clock.

    Raises:
        MissingCorpusError: corpus or snapshot not found.
    """
    corpus = await corpus_of(connection, tenant, name)
    hnsw = await hnsw_id(connection, corpus.id)
    if snapshot is None:
        return Place(corpus, corpus.revision, hnsw=hnsw)
    now = now or datetime.now(UTC)
    found = None
    if is_storable(snapshot):
        found = await find_corpus_snapshot(connection, tenant, corpus.id, snapshot, now=now)
    if found is None:
        message = f"the corpus {name!r} has no snapshot {snapshot!r:.80}, or the snapshot expired; "
        raise MissingCorpusError(message + f"`steersman corpus show {name}` lists its snapshots")
    return Place(corpus, found.revision, found.name, hnsw)


@asynccontextmanager
async def one_view(connection: Any, tenant: UUID) -> AsyncIterator[None]:
    """Read as a tenant in one transaction with one snapshot of the database."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await set_tenant(connection, tenant)
        yield


async def load(
    connection: Any, database: Database, tenant: UUID, place: Place, *, by_words: bool = False
) -> LoadedCorpus:
    """Load a revision into memory."""
    at = tenant, place.corpus.id, place.revision
    documents = [one async for one in read_documents(connection, *at)]
    passages, hashes, also = await asyncio.to_thread(_passages, documents, place.corpus.near)
    del documents
    stored = await read_links(connection, *at, hashes)
    if stored is not None:
        links = Links(*stored)
    else:
        links = await asyncio.to_thread(link_passages, passages)
    vectors = None
    if not by_words:
        vectors = await _vectors(connection, database, tenant, place, hashes)
    size = place.corpus.dimension or 0
    in_memory = len(hashes) * size * 4 if isinstance(vectors, ExactIndex) else 0
    total = await asyncio.to_thread(_size, passages) + in_memory + 5 * len(links.targets)
    return LoadedCorpus(place, passages, hashes, also, vectors, links, total)


async def _vectors(
    connection: Any, database: Database, tenant: UUID, place: Place, hashes: Sequence[bytes]
) -> VectorIndex | None:
    corpus = place.corpus
    if corpus.embedder_name is None or corpus.dimension is None:
        return None
    size = corpus.dimension
    # The index may have been removed since `find_place`, so check it again.
    if place.hnsw is not None and await hnsw_id(connection, corpus.id) is not None:
        count = await indexed_by_hnsw(connection, tenant, corpus.id, hashes)
        if count == len(hashes):
            return PgvectorIndex(
                *(database, tenant, corpus.id, place.revision), size=size, hashes=hashes
            )
        # Checked last: an index rebuilt during the count is empty in this view. The next load
        # uses it; until then search is exact.
        if await sees_hnsw(connection, corpus.id):
            why = f"the corpus {corpus.name!r}: {len(hashes) - count} of {len(hashes)} passages "
            why += (
                "have no vector in its index; open the corpus again; if the error remains, rebuild "
            )
            why += f"the index with `steersman corpus index {corpus.name} --hnsw`, which "
            why += "deletes no data; if passages are still missing after that, their vectors are "
            why += "lost: remove their documents and add them again"
            return MissingVectors(size, len(hashes), why)
    try:
        rows = await read_vectors(connection, tenant, corpus.embedder_name, size, hashes)
    except CorpusError as error:
        return MissingVectors(size, len(hashes), f"the corpus {corpus.name!r}: {error}")
    return await asyncio.to_thread(ExactIndex, rows)


def _passages(
    documents: Sequence[StoredDocument], near: float | None
) -> tuple[tuple[Passage, ...], tuple[bytes, ...], dict[str, tuple[str, ...]]]:
    """Return the unique passages, their hashes and their duplicates."""
    first: dict[bytes, Passage] = {}
    also: dict[str, list[str]] = {}
    for document in documents:
        for passage, key in _cut(document):
            stands = first.setdefault(key, passage)
            if stands is not passage:
                also.setdefault(stands.id, []).append(passage.id)
    kept = {passage.id: key for key, passage in first.items()}
    passages = tuple(first.values())
    if near is not None:
        found = unique(passages, near=near)
        passages = tuple(found.kept)
        for dropped, stands_for, _ in found.dropped:
            also.setdefault(stands_for, []).extend([dropped, *also.pop(dropped, ())])
    hashes = tuple(kept[passage.id] for passage in passages)
    return passages, hashes, {one: tuple(others) for one, others in also.items()}


def _size(passages: Sequence[Passage]) -> int:
    """Return the estimated memory of passages and their keyword index, in bytes.

    The vocabulary depends on the script, so about 2,000 passages are tokenized. Postings grow
    linearly, the vocabulary by Heaps' law, estimated from the second half of the sample.
    """
    texts = sum(sys.getsizeof(one.text) for one in passages)
    step = max(1, len(passages) // _LOOKED_AT)
    looked_at = passages[::step]
    known: dict[str, int] = {}
    postings, half = 0, 0
    for place, passage in enumerate(looked_at):
        found = {stem(word) for word in searched_words(passage_text(passage))}
        postings += len(found)
        known.update((word, sys.getsizeof(word)) for word in found.difference(known))
        if place + 1 == len(looked_at) // 2:
            half = len(known)
    times = len(passages) / max(1, len(looked_at))
    growth = math.log2(len(known) / half) if half else 0.0
    words = times ** min(1.0, growth) * (_PER_WORD * len(known) + sum(known.values()))
    return texts + _PER_PASSAGE * len(passages) + int(times * _PER_POSTING * postings + words)


def _cut(document: StoredDocument) -> list[tuple[Passage, bytes]]:
    """Return the passages of a stored document, with their hashes."""
    sha256 = document.sha256.hex()
    return [
        (
            Passage(
                document.doc_id,
                one.chunk,
                document.text[one.start : one.end],
                document.title,
                document.meta,
                document.source,
                lineage=Lineage(sha256, one.start, one.end, one.headings, one.page, one.chunker),
            ),
            one.hash,
        )
        for one in document.passages
    ]
