"""Corpus snapshots: named revisions with expiry and digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from steersman.db.corpora import LIVING, check_corpus_name, corpus_size
from steersman.errors import CorpusError, InputError

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from steersman.db.corpora import CorpusRow

_LIVES = "(expires_at IS NULL OR expires_at > $3)"
_COLUMNS = "name, revision, documents, passages, digest, created_at, expires_at"


@dataclass(frozen=True, slots=True)
class CorpusSnapshotRow:
    """Named, immutable revision of a corpus.

    Attributes:
        name: name, unique within the corpus.
        revision: corpus revision.
        documents: number of documents.
        passages: number of passages.
        digest: SHA-256 over the ids and hashes of its passages, 32 bytes.
        created_at: creation time.
        expires_at: expiry time; None: never.
    """

    name: str
    revision: int
    documents: int
    passages: int
    digest: bytes
    created_at: datetime
    expires_at: datetime | None


async def corpus_digest(connection: Any, tenant: UUID, corpus: UUID, revision: int) -> bytes:
    """Return the digest of a revision, 32 bytes; equal digests mean equal passages and ids.

    Returns:
        SHA-256.
    """
    digest = hashlib.sha256()
    async for row in connection.cursor(
        "SELECT doc_id, chunk, text_start, text_end, encode(hash, 'hex') "  # noqa: S608 (a constant)
        f"FROM corpus_passage AS r WHERE {LIVING} ORDER BY doc_id, chunk",
        *(tenant, corpus, revision),
        prefetch=1000,
    ):
        digest.update(msgspec.json.encode(tuple(row)) + b"\n")
    return digest.digest()


async def snapshot_corpus(
    connection: Any,
    tenant: UUID,
    corpus: CorpusRow,
    name: str,
    *,
    expires_at: datetime | None,
    now: datetime,
) -> CorpusSnapshotRow:
    """Create a snapshot of the newest revision of a corpus.

    Args:
        expires_at: expiry time; None: never.

    Raises:
        InputError: the name is invalid or the expiry is not in the future.
        CorpusError: the name is taken, or the corpus is empty.
    """
    check_corpus_name(name, "corpus snapshot")
    if expires_at is not None and expires_at <= now:
        message = f"the corpus snapshot would expire at {expires_at:%Y-%m-%d %H:%M} UTC, but it is "
        raise InputError(f"{message}{now:%Y-%m-%d %H:%M}; set an expiry in the future, or none")
    size = await corpus_size(connection, tenant, corpus.id, corpus.revision)
    if not size.passages:
        message = f"the corpus {corpus.name!r} has no passages at revision {corpus.revision}; "
        raise CorpusError(message + "add documents before you take a snapshot")
    await connection.execute(
        "DELETE FROM corpus_snapshot WHERE tenant = $1 AND corpus = $2 AND name = $4 "  # noqa: S608
        f"AND NOT {_LIVES}",
        *(tenant, corpus.id, now, name),
    )
    digest = await corpus_digest(connection, tenant, corpus.id, corpus.revision)
    try:
        row = await connection.fetchrow(
            "INSERT INTO corpus_snapshot (tenant, corpus, name, revision, documents, passages, "  # noqa: S608
            "digest, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) "
            f"RETURNING {_COLUMNS}",
            *(tenant, corpus.id, name, corpus.revision, size.documents, size.passages),
            *(digest, now, expires_at),
        )
    except asyncpg.UniqueViolationError:
        message = f"the corpus {corpus.name!r} already has a snapshot {name!r}; "
        raise CorpusError(message + "choose another name, or drop the existing one") from None
    return CorpusSnapshotRow(*row)


async def corpus_snapshots_of(
    connection: Any, tenant: UUID, corpus: UUID, *, now: datetime
) -> list[CorpusSnapshotRow]:
    """Return the unexpired corpus snapshots, newest first."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM corpus_snapshot WHERE tenant = $1 AND corpus = $2 AND {_LIVES} "  # noqa: S608
        "ORDER BY created_at DESC, name",
        *(tenant, corpus, now),
    )
    return [CorpusSnapshotRow(*row) for row in rows]


async def find_corpus_snapshot(
    connection: Any, tenant: UUID, corpus: UUID, name: str, *, now: datetime
) -> CorpusSnapshotRow | None:
    """Return an unexpired corpus snapshot.

    Returns:
        The snapshot; None if missing or expired.
    """
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM corpus_snapshot WHERE tenant = $1 AND corpus = $2 AND {_LIVES} "  # noqa: S608
        "AND name = $4",
        *(tenant, corpus, now, name),
    )
    return None if row is None else CorpusSnapshotRow(*row)


async def drop_corpus_snapshot(connection: Any, tenant: UUID, corpus: UUID, name: str) -> bool:
    """Delete a corpus snapshot; the janitor removes its data later."""
    status: str = await connection.execute(
        "DELETE FROM corpus_snapshot WHERE tenant = $1 AND corpus = $2 AND name = $3",
        *(tenant, corpus, name),
    )
    return status.endswith(" 1")
