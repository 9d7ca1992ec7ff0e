"""Document builders for corpus tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from steersman.db.corpora import corpus_of
from steersman.db.corpus_documents import StoredDocument, StoredPassage, write_documents
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from steersman.platform.postgres.database import Database


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def document(doc_id: str, text: str, *, width: int = 10, **changes: Any) -> StoredDocument:
    """Return a document cut every few characters."""
    passages = tuple(
        StoredPassage(
            *(chunk, start, min(start + width, len(text))),
            *((), None, f"every-{width}", digest(text[start : start + width])),
        )
        for chunk, start in enumerate(range(0, len(text), width))
    )
    made = StoredDocument(
        doc_id, text, digest(text), digest(f"{doc_id} {text}"), "", "", {}, passages
    )
    return made._replace(**changes)


@asynccontextmanager
async def owned(database: Database, tenant: UUID) -> AsyncIterator[Any]:
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant):
            yield connection
    finally:
        await connection.close()


async def put(
    database: Database, tenant: UUID, name: str, *documents: StoredDocument, remove: Any = ()
) -> int | None:
    """Write documents into an existing corpus as one revision."""
    async with owned(database, tenant) as connection:
        corpus = await corpus_of(connection, tenant, name, hold=True)
        return await write_documents(connection, tenant, corpus.id, documents, remove)
