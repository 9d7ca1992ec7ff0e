"""Corpora of a tenant: name, chunking, embedder and revision."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.db.corpus_hnsw import drop_hnsw, thin_hnsw
from steersman.db.corpus_vectors import hold_vectors
from steersman.errors import CorpusError, InputError, MissingCorpusError
from steersman.wire import new_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_TABLES = ("corpus_passage", "corpus_document", "corpus_snapshot", "corpus_links")
_SHOWN = 20
_LEAST_NEAR = 0.3


@dataclass(frozen=True, slots=True)
class CorpusRow:
    """Current row of a corpus.

    Attributes:
        id: corpus id; a corpus created again under the same name gets a new one.
        name: name, unique within the tenant.
        revision: number of committed changes; 0 for an empty corpus.
        erasures: number of times that documents were erased from every revision.
        embedder: embedder as given, ``minilm`` or a URL; None: word search only.
        embedder_name: unique name of the embedder.
        dimension: dimension of its vectors.
        chunking: chunking settings.
        near: similarity above which passages count as duplicates; None: only equal ones.
        created_at: creation time.
        changed_at: commit time of the newest revision.
    """

    id: UUID
    name: str
    revision: int
    erasures: int
    embedder: str | None
    embedder_name: str | None
    dimension: int | None
    chunking: dict[str, Any]
    near: float | None
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class CorpusSize:
    """Size of one revision.

    Attributes:
        documents: number of documents.
        passages: number of passages, duplicates included.
        characters: total text length in characters.
    """

    documents: int
    passages: int
    characters: int


def check_corpus_name(name: str, what: str = "corpus") -> None:
    """Raise an error if a name is not valid for a corpus or corpus snapshot.

    `name`: 1 to 63 lower-case letters, digits, ``.``, ``_`` and ``-``, starting with a letter or
    digit.

    Raises:
        InputError: the name is invalid.

    >>> check_corpus_name("Manuals")
    Traceback (most recent call last):
    steersman.errors.InputError: the corpus name is 'Manuals'; allowed are ...
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"the {what} name is {name!r:.80}; allowed are 1 to 63 lower-case letters, digits, "
            "'.', '_' and '-', starting with a letter or digit; choose another name"
        )


async def create_corpus(
    connection: Any,
    tenant: UUID,
    name: str,
    *,
    chunking: Mapping[str, Any],
    embedder: tuple[str, str, int] | None = None,
    near: float | None = None,
) -> CorpusRow:
    """Create an empty corpus.

    Args:
        embedder: embedder as given, its unique name and dimension; None: word search only.
        near: similarity in [.3, 1] above which passages count as duplicates; None: only
            equal ones.

    Returns:
        The corpus, at revision 0.

    Raises:
        InputError: the name is invalid or the similarity is out of range.
        CorpusError: the name is taken.
    """
    check_corpus_name(name)
    if near is not None and not _LEAST_NEAR <= near <= 1.0:
        raise InputError(f"near is {near!r}; allowed is {_LEAST_NEAR} to 1, or None")
    spec, embedder_name, dimension = embedder or (None, None, None)
    try:
        row = await connection.fetchrow(
            "INSERT INTO corpus "
            "(tenant, id, name, embedder, embedder_name, dimension, chunking, near) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *",
            *(tenant, new_id(), name, spec, embedder_name, dimension, dict(chunking), near),
        )
    except asyncpg.UniqueViolationError:
        message = f"the corpus {name!r} already exists; add to it, or choose another name"
        raise CorpusError(message) from None
    return _corpus(row)


async def find_corpus(
    connection: Any, tenant: UUID, name: str, *, hold: bool = False
) -> CorpusRow | None:
    """Return the corpus of a name.

    Returns:
        The corpus; None if the tenant has none of this name.
    """
    if not _NAME.fullmatch(name):
        return None
    row = await connection.fetchrow(
        "SELECT * FROM corpus WHERE tenant = $1 AND name = $2 "  # noqa: S608 (constants)
        f"{'FOR UPDATE' if hold else ''}",
        *(tenant, name),
    )
    return None if row is None else _corpus(row)


async def corpus_of(connection: Any, tenant: UUID, name: str, *, hold: bool = False) -> CorpusRow:
    """Return the corpus of a name as `find_corpus` does, or raise an error.

    Raises:
        MissingCorpusError: the tenant has no such corpus; the message lists the existing
            ones.
    """
    row = await find_corpus(connection, tenant, name, hold=hold)
    if row is not None:
        return row
    there = [one.name for one in await corpora_of(connection, tenant)]
    known = f"{len(there)} exist: {', '.join(there[:_SHOWN])}" if there else "none exist"
    message = f"corpus not found: {name!r:.80}; {known}; `steersman corpus add` creates one"
    raise MissingCorpusError(message)


async def corpora_of(connection: Any, tenant: UUID) -> list[CorpusRow]:
    """Return the corpora of a tenant by name."""
    rows = await connection.fetch("SELECT * FROM corpus WHERE tenant = $1 ORDER BY name", tenant)
    return [_corpus(row) for row in rows]


async def corpus_size(connection: Any, tenant: UUID, corpus: UUID, revision: int) -> CorpusSize:
    """Return the size of a corpus revision.

    Returns:
        The size; zeros if empty.
    """
    row = await connection.fetchrow(
        f"SELECT (SELECT count(*) FROM corpus_passage AS r WHERE {LIVING}) AS passages, "  # noqa: S608 (a constant)
        "count(*) AS documents, coalesce(sum(length(text)), 0) AS characters "
        f"FROM corpus_document AS r WHERE {LIVING}",
        *(tenant, corpus, revision),
    )
    return CorpusSize(row["documents"], row["passages"], row["characters"])


async def next_revision(connection: Any, tenant: UUID, corpus: UUID) -> int:
    """Assign the next revision of a corpus."""
    revision: int = await connection.fetchval(
        "UPDATE corpus SET revision = revision + 1, changed_at = now() "
        "WHERE tenant = $1 AND id = $2 RETURNING revision",
        *(tenant, corpus),
    )
    return revision


async def drop_corpus(connection: Any, tenant: UUID, corpus: UUID) -> dict[str, int]:
    """Delete a corpus with its own data, and vectors that no other corpus uses."""
    await hold_vectors(connection, tenant)
    await drop_hnsw(connection, corpus)
    deleted = {
        "corpus_vector": await connection.fetchval(
            "WITH gone AS (DELETE FROM corpus_vector AS v WHERE tenant = $1 AND hash IN ("
            "SELECT hash FROM corpus_passage WHERE tenant = $1 AND corpus = $2) AND NOT EXISTS ("
            "SELECT FROM corpus_passage AS p "
            "WHERE p.tenant = $1 AND p.corpus <> $2 AND p.hash = v.hash) "
            "RETURNING 1) SELECT count(*) FROM gone",
            *(tenant, corpus),
        )
    }
    for table in _TABLES:
        status = await connection.execute(
            f"DELETE FROM {table} WHERE tenant = $1 AND corpus = $2",  # noqa: S608 (constants)
            *(tenant, corpus),
        )
        deleted[table] = int(status.split()[-1])
    await connection.execute("DELETE FROM corpus WHERE tenant = $1 AND id = $2", tenant, corpus)
    return deleted


LIVING = (
    "r.tenant = $1 AND r.corpus = $2 AND r.added <= $3 AND (r.removed IS NULL OR r.removed > $3)"
)
"""SQL condition: rows ``r`` of tenant $1 and corpus $2 in revision $3."""


def _corpus(row: Any) -> CorpusRow:
    return CorpusRow(*(row[name] for name in CorpusRow.__slots__))


async def sweep_corpora(connection: Any, tenant: UUID, *, now: datetime | None = None) -> int:
    """Delete expired snapshots, old document versions and unused vectors.

    A removed version stays for an hour, because searches over the previous revision may still run.
    A vector stays for a week, because texts are embedded before they are added.

    Args:
        now: current time; default: system clock.
    """
    now = now or datetime.now(UTC)
    await hold_vectors(connection, tenant)
    deleted = 0
    for statement, arguments in (
        (_EXPIRED_SNAPSHOTS, (now,)),
        (_UNNEEDED_VERSIONS, (now,)),
        (_UNNEEDED_VECTORS, (now,)),
        (_UNNEEDED_LINKS, ()),
    ):
        status = await connection.execute(statement, tenant, *arguments)
        deleted += int(status.split()[-1])
    for corpus in await corpora_of(connection, tenant):
        deleted += await thin_hnsw(connection, tenant, corpus.id)
    return deleted


_EXPIRED_SNAPSHOTS = "DELETE FROM corpus_snapshot WHERE tenant = $1 AND expires_at <= $2"
# One statement, so that both parts see the same snapshots.
_UNNEEDED_VERSIONS = (
    "WITH gone AS (DELETE FROM corpus_document AS d WHERE d.tenant = $1 "
    "AND d.removed IS NOT NULL AND d.removed_at < $2::timestamptz - interval '1 hour' "
    "AND NOT EXISTS (SELECT FROM corpus_snapshot AS s WHERE s.tenant = $1 "
    "AND s.corpus = d.corpus AND d.added <= s.revision AND s.revision < d.removed) "
    "RETURNING d.corpus, d.doc_id, d.added), passages AS (DELETE FROM corpus_passage AS p "
    "USING gone WHERE p.tenant = $1 AND p.corpus = gone.corpus AND p.doc_id = gone.doc_id "
    "AND p.added = gone.added RETURNING 1) "
    "SELECT 1 FROM gone UNION ALL SELECT 1 FROM passages"
)
_UNNEEDED_VECTORS = (
    "DELETE FROM corpus_vector AS v WHERE v.tenant = $1 "
    "AND v.created_at < $2::timestamptz - interval '7 days' AND NOT EXISTS ("
    "SELECT FROM corpus_passage AS p WHERE p.tenant = $1 AND p.hash = v.hash)"
)
_UNNEEDED_LINKS = (
    "DELETE FROM corpus_links AS l WHERE l.tenant = $1 AND NOT EXISTS ("
    "SELECT FROM corpus AS c WHERE c.tenant = $1 AND c.id = l.corpus AND c.revision = l.revision) "
    "AND NOT EXISTS (SELECT FROM corpus_snapshot AS s WHERE s.tenant = $1 "
    "AND s.corpus = l.corpus AND s.revision = l.revision)"
)
