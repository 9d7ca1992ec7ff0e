"""``steersman doctor``: checks of the interpreter and of the server's durability."""

from __future__ import annotations

import asyncio
import time

import pytest

from steersman.cli import doctor_machine as checkup
from tests.clusters import execute


@pytest.mark.parametrize(
    ("arguments", "prefix", "optimised"),
    [
        ("'--enable-shared'", "/srv/python/3.11.7", False),
        ("", "/opt/python", False),
        ("'--enable-optimizations' '--with-lto'", "/usr/local", True),
        ("'--enable-shared' '--with-dtrace'", "/usr", True),  # Debian's own leave no mark
        (None, "C:\\Python311", True),
    ],
)
def test_an_interpreter_that_could_be_faster_is_told(monkeypatch, arguments, prefix, optimised):
    monkeypatch.setattr(checkup.sysconfig, "get_config_var", lambda _name: arguments)
    monkeypatch.setattr(checkup.sys, "base_prefix", prefix)
    python = next(checkup.look_at_python())
    assert (python.what, python.verdict) == ("python", "ok")
    assert ("--enable-optimizations" in python.advice) is not optimised


def test_a_server_that_does_not_flush_is_told(command, database):
    def told():
        rows = {row["what"]: row for row in command.json("doctor")}
        return rows["durability"]["verdict"], rows["durability"]["advice"]

    asyncio.run(flushing(database, "on"))
    try:
        assert told() == ("ok", "")
    finally:
        asyncio.run(flushing(database, "off"))
    verdict, advice = told()
    assert verdict == "warn"
    assert "ALTER SYSTEM SET fsync = on" in advice


async def flushing(database, wanted):
    """Let the tests' server flush, or not, as it is set for tests."""
    for name in ("fsync", "full_page_writes"):
        await execute(database, f"ALTER SYSTEM SET {name} = {wanted}")
    await execute(database, "SELECT pg_reload_conf()")
    until = time.monotonic() + 20
    connection = await database.connect(None)
    while await connection.fetchval("SHOW full_page_writes") != wanted:
        assert time.monotonic() < until
        await asyncio.sleep(0.05)
    await connection.close()
