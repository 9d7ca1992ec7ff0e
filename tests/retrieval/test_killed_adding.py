"""Whoever adds documents and is killed leaves whole revisions, and nothing is embedded twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from steersman.platform.postgres.database import as_tenant
from tests.retrieval.adding_process import add, documents
from tests.retrieval.corpora import corpora

COUNT = 700
AT_ONCE = 64


async def embedded(database, tenant):
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant.id):
            return await connection.fetchval("SELECT count(*) FROM corpus_vector")
    finally:
        await connection.close()


async def looked_at(database, tenant):
    """Return documents that are there, checking that each of them is whole and embedded."""
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant.id):
            documents = await connection.fetchval("SELECT count(*) FROM corpus_document")
            passages = await connection.fetchval("SELECT count(*) FROM corpus_passage")
            bare = await connection.fetchval(
                "SELECT count(*) FROM corpus_passage AS p WHERE NOT EXISTS ("
                "SELECT FROM corpus_vector AS v WHERE v.hash = p.hash)"
            )
    finally:
        await connection.close()
    assert (passages, bare) == (documents, 0)
    return documents


@pytest.mark.slow
@pytest.mark.parametrize("kill_after", [30, 300, 500])
def test_killed_in_the_middle_it_goes_on_where_it_was(database, tenant, tmp_path, kill_after):
    told = tmp_path / "told"
    command = [sys.executable, "-m", "tests.retrieval.adding_process"]
    running = subprocess.Popen(
        [*command, database.url, str(tenant.id), str(told), str(COUNT)],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    until = time.monotonic() + 120
    while time.monotonic() < until and running.poll() is None:
        if told.exists() and len(told.read_text().splitlines()) >= kill_after:
            break
        time.sleep(0.005)
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    before = told.read_text().splitlines()
    assert kill_after <= len(before) < COUNT
    stored = asyncio.run(embedded(database, tenant))
    # At most the few texts that were being written when it was killed are not kept.
    assert len(before) - AT_ONCE <= stored <= len(before)
    assert asyncio.run(looked_at(database, tenant)) in {0, 200, 400, 600}
    done = asyncio.run(add(database.url, str(tenant.id), told, COUNT, 0.0))
    after = told.read_text().splitlines()[len(before) :]
    assert len(after) == COUNT - stored == done.embedded
    assert asyncio.run(looked_at(database, tenant)) == COUNT
    twice = [text for text, times in Counter([*before, *after]).items() if times > 1]
    assert len(twice) == len(before) - stored <= AT_ONCE
    # What came of it is what comes of adding everything at once.
    fresh = asyncio.run(whole(database, tenant))
    assert fresh == COUNT


async def whole(database, tenant):
    async with asyncio.timeout(60):
        shown = await corpora(database, tenant.id).show("manuals")
        assert shown.size.passages == len(documents(COUNT))
        return shown.size.documents
