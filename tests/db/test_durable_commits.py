"""Commits are durable for any server default."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg
import pytest

from steersman.db.decisions import connect_writer
from steersman.platform.postgres.database import Database
from tests.clusters import execute

SHOW = "SHOW synchronous_commit"


@pytest.fixture(params=["database_alone", "database_15"])
def server(request):
    return Database(request.getfixturevalue(request.param).url)  # without those that are kept


@pytest.mark.parametrize(
    ("default", "used"),
    [("off", "local"), ("local", "local"), ("on", "on"), ("remote_apply", "remote_apply")],
)
async def test_commits_wait_for_the_disk_and_for_no_less_than_was_set(server, default, used):
    name = urlsplit(server.url).path[1:]
    await execute(server, f'ALTER DATABASE "{name}" SET synchronous_commit = {default}')
    try:
        plain = await asyncpg.connect(server.url)
        shown = [await plain.fetchval(SHOW)]
        await plain.close()
        for connect in (
            *(lambda role=role: server.connect(role) for role in ("app", "worker", "owner", None)),
            lambda: connect_writer(server),
        ):
            connection = await connect()
            shown.append(await connection.fetchval(SHOW))
            await connection.close()
        pool, processes = await server.pool("app", most=1), set()
        for _ in range(3):  # the same connection again: what is reset between is set again
            async with pool.acquire() as connection:
                shown.append(await connection.fetchval(SHOW))
                await connection.execute("SET statement_timeout = '7 min'")  # a reset has time
                processes.add(connection.get_server_pid())
        async with pool.acquire() as connection:
            assert await connection.fetchval("SHOW statement_timeout") == "0"
        await pool.close()
        assert len(processes) == 1
        assert shown == [default] + [used] * 8
    finally:
        await execute(server, f'ALTER DATABASE "{name}" RESET synchronous_commit')
