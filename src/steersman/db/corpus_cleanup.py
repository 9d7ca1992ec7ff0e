"""Cleanup of corpora, called by the janitor for every tenant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.corpora import corpora_of
from steersman.db.corpus_hnsw import thin_hnsw
from steersman.db.corpus_vectors import hold_vectors

if TYPE_CHECKING:
    from uuid import UUID


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
