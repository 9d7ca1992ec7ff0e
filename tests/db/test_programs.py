"""PostgreSQL programs: arguments and secrecy of the password."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from steersman.db.migrate import make_partitions
from steersman.errors import StoreError
from steersman.platform.postgres.programs import run
from tests.db.rows import connected

SAYS = '#!/bin/sh\nprintf \'%s|\' "$@" "$PGPASSWORD"\n'


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Return a function that returns a program's arguments and password for a URL."""
    for name in ("pg_dump", "psql"):
        (tmp_path / name).write_text(SAYS)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))  # where encryption is asked for, it comes from there
    monkeypatch.setenv("PGPASSWORD", "of all")

    async def ask(url):
        *arguments, password, _ = (await run("pg_dump", url=url)).split("|")
        return arguments, password

    return ask


@pytest.mark.parametrize(
    ("url", "shown", "password"),
    [
        ("u@h/d?password=S3&sslmode=require", "u@h/d?sslmode=require", "S3"),
        ("u@h/d?sslmode=require&p%61ssword=S%2F+3", "u@h/d?sslmode=require", "S/ 3"),
        ("u@h/d?password=S1&sslmode=require&password=S2", "u@h/d?sslmode=require", "S2"),
        ("u:S%403@h:1/d?sslmode=require", "u@h:1/d?sslmode=require", "S@3"),
        ("u:S3@h/d?password=S4&sslmode=require", "u@h/d?sslmode=require", "S3"),  # as asyncpg
        ("u:@h/d?sslmode=require", "u@h/d?sslmode=require", "of all"),
        ("/d?user=u&password=S3&sslmode=require", "/d?user=u&sslmode=require", "S3"),
        ("h/d?sslmode=require&options=-c%20a%3Db", "h/d?sslmode=require&options=-c%20a%3Db", None),
    ],
)
async def test_no_password_is_among_the_arguments(said, url, shown, password) -> None:
    arguments = [f"--dbname=postgresql://{shown}"]
    assert await said(f"postgresql://{url}") == (arguments, password or "of all")


async def test_a_pass_phrase_is_never_among_the_arguments(said) -> None:
    for query in ("sslpassword=S3", "user=u&ssl%70assword=S3"):
        with pytest.raises(StoreError, match="sslkey=") as refused:
            await said(f"postgresql://u@h/d?sslmode=require&{query}")
        assert "S3" not in str(refused.value)


async def test_a_server_is_reached_whichever_way_its_url_is_written(database) -> None:
    parts = urlsplit(database.url)
    url = f"postgresql://{parts.path}?{parts.query}&user={parts.username}&password=of%20nobody"
    if parts.hostname:
        pytest.skip("the server has a host; this is about URLs that name a socket")
    asked = "--no-psqlrc", "--tuples-only", "--no-align", "--command=SELECT current_user"
    assert (await run("psql", *asked, url=url)).strip() == parts.username


async def test_the_reason_is_told_before_a_query_that_names_every_table(database) -> None:
    await make_partitions(database)
    async with connected(database, None) as connection, connection.transaction():
        await connection.execute("LOCK TABLE steersman.audit")
        with pytest.raises(StoreError, match="due to statement timeout") as failed:
            await run("pg_dump", "--lock-wait-timeout=100ms", url=database.url)
    assert 1500 < len(str(failed.value)) < 1600
