"""Corpus cleanup: unused data goes after an hour, snapshot data stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from steersman.db.corpora import corpus_of, create_corpus, sweep_corpora
from steersman.db.corpus_documents import StoredLinks, write_links
from steersman.db.corpus_snapshots import corpus_digest, snapshot_corpus
from steersman.db.corpus_vectors import known_vectors, write_vectors
from steersman.db.retention import keep
from tests.db.corpora import digest, document, owned, put
from tests.kept import run

TEXTS = ("Pumps.", "Pipes.", "Valves.")
LINKS = StoredLinks(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8))


@pytest.fixture
def corpus(database, tenant):
    """Return three revisions of one document; the first is snapshot ``v1`` for a day."""
    return run(made(database, tenant))


async def made(database, tenant):
    async with owned(database, tenant.id) as connection:
        made = await create_corpus(connection, tenant.id, "manuals", chunking={})
        rows = {digest(text): np.array([1.0, 0.0]) for text in TEXTS}
        await write_vectors(connection, tenant.id, "tiny", rows)
    for text in TEXTS:
        await put(database, tenant.id, "manuals", document("a", text))
        if text == TEXTS[0]:
            async with owned(database, tenant.id) as connection:
                held = await corpus_of(connection, tenant.id, "manuals", hold=True)
                now = datetime.now(UTC)
                await snapshot_corpus(
                    *(connection, tenant.id, held, "v1"),
                    expires_at=now + timedelta(days=1),
                    now=now,
                )
    async with owned(database, tenant.id) as connection:
        for revision in (1, 2, 3):
            await write_links(connection, tenant.id, made.id, revision, [], LINKS)
    return made


async def swept(database, tenant, **later):
    async with owned(database, tenant.id) as connection:
        now = datetime.now(UTC) + timedelta(**later)
        count = await sweep_corpora(connection, tenant.id, now=now)
        rows = await connection.fetch("SELECT added FROM corpus_document ORDER BY added")
        passages = await connection.fetch("SELECT added FROM corpus_passage ORDER BY added")
        links = await connection.fetch("SELECT revision FROM corpus_links ORDER BY revision")
        assert rows == passages
        return count, [row["added"] for row in rows], [row["revision"] for row in links]


async def test_a_version_that_nobody_names_goes_after_an_hour(database, tenant, corpus):
    assert await swept(database, tenant) == (1, [1, 2, 3], [1, 3])  # links of revision 2
    assert await swept(database, tenant, minutes=59) == (0, [1, 2, 3], [1, 3])
    assert await swept(database, tenant, minutes=61) == (2, [1, 3], [1, 3])


async def test_a_snapshot_holds_its_revision_until_it_expires(database, tenant, corpus):
    async with owned(database, tenant.id) as connection:
        before = await corpus_digest(connection, tenant.id, corpus.id, 1)
    await swept(database, tenant, hours=23)
    async with owned(database, tenant.id) as connection:
        assert await corpus_digest(connection, tenant.id, corpus.id, 1) == before
    assert await swept(database, tenant, hours=25) == (4, [3], [3])


async def test_vectors_of_no_text_go_after_a_week(database, tenant, corpus):
    keys = [digest(text) for text in TEXTS]
    await swept(database, tenant, days=6)
    async with owned(database, tenant.id) as connection:
        assert len(await known_vectors(connection, tenant.id, "tiny", keys)) == 3
    await swept(database, tenant, days=8)
    async with owned(database, tenant.id) as connection:
        assert await known_vectors(connection, tenant.id, "tiny", keys) == {keys[2]}


async def test_the_keeper_sweeps_every_tenant(database, tenant, corpus):
    kept = await keep(database, days=30, now=datetime.now(UTC) + timedelta(hours=25))
    assert kept.corpora >= 5
    assert (await swept(database, tenant))[1:] == ([3], [3])
