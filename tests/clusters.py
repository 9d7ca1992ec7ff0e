"""PostgreSQL servers of tests: one is made for all test processes, and copied in no time.

What initdb and the migrations do is the same every time; that a server is made from nothing is
shown where that is what matters: `tests/db/test_embedded.py`, `tests/cli/test_up.py`, the demo.
The copies flush nothing to the disk: what a killed server wrote is in the kernel's memory all the
same, and no test takes the power away.
"""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from steersman.db.migrate import migrate
from steersman.platform.postgres.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable

_NEEDLESS = ("fsync", "full_page_writes", "autovacuum")
"""Power stays on, and a server lives for minutes: what it would tidy goes away with it."""
_LATER_DAYS = range(3, 16)
"""From today on: no test lasts so long, and each day costs whoever first looks at the tables."""
MIGRATED = "migrated"
"""A database of every copy that nobody connects to: a template for others."""


def open_database(home: Path) -> Database:
    """Return the embedded server of a home, even where ``DATABASE_URL`` names another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        return Database.open(home)


def on(database: Database, name: str) -> Database:
    """Return another database of the same server."""
    return Database(urlsplit(database.url)._replace(path=f"/{name}").geturl())


async def execute(database: Database, *statements: str) -> None:
    """Run statements as the URL's own user, each in a transaction of its own."""
    connection = await database.connect(None)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def stopped_cluster() -> Path:
    """Return the data of a migrated server that does not run, to be copied."""

    def make(home: Path) -> None:
        database = open_database(home)
        try:
            asyncio.run(_fill(database))
        finally:
            database.server.stop()

    return made_once("cluster", make) / "postgres" / "data"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return what whichever test process asks first makes at a path.

    It ends with the temporary directory of them all.
    """
    made = Path(tempfile.gettempdir()) / name
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            make(making := made.with_suffix(".making"))
            making.rename(made)
    return made


async def _fill(database: Database) -> None:
    needless = [f"ALTER SYSTEM SET {name} = off" for name in _NEEDLESS]
    await execute(database, *needless, "SELECT pg_reload_conf()")
    await migrate(database)
    days = [datetime.now(UTC) + timedelta(days=n) for n in _LATER_DAYS]
    tables = [f"steersman.{name}_{day:%Y%m%d}" for name in ("decision", "event") for day in days]
    await execute(database, f"DROP TABLE IF EXISTS {', '.join(tables)}")
    copy = f"CREATE DATABASE {MIGRATED} TEMPLATE postgres STRATEGY file_copy"
    await execute(on(database, "template1"), copy)


def copy_cluster(cluster: Path, home: Path) -> None:
    """Give a home that has no server yet a copy of a stopped one."""
    (home / "postgres").mkdir(mode=0o700, parents=True, exist_ok=True)
    copy = ["cp", "-a", cluster, home / "postgres" / "data"]  # with its owner and rights
    subprocess.run(copy, check=True)
