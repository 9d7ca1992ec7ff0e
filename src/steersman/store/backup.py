"""Backup and restore: one file in pg_dump's own format, checked when it is made.

A dump must see every tenant's rows, and row-level security is forced: whoever dumps and restores
is the user of DATABASE_URL itself, who must be a superuser or have BYPASSRLS. Nobody else should.
"""

from __future__ import annotations

import os
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import StoreError
from steersman.store.corpus_hnsw import HNSW_TABLES
from steersman.store.migrate import ensure_roles, migrate
from steersman.store.programs import replay, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from steersman.store.database import Database

_ASIDE = "steersman_before_restore"


@dataclass(frozen=True, slots=True)
class Backup:
    """A finished backup.

    Attributes:
        file: where it is, readable by this user alone.
        bytes: its size.
        tables: how many tables and partitions it holds rows of.
    """

    file: Path
    bytes: int
    tables: int


async def backup(database: Database, file: Path) -> Backup:
    """Write everything of every tenant into one file, as of one moment; nobody is kept waiting.

    The secret that API keys are hashed with is not in the database: keep it apart and safe. Indexes
    over corpora are left out: after a restore search is exact until `steersman corpus index`.

    Args:
        database: migrated.
        file: made or replaced once the dump is whole.

    Returns:
        What was written.

    Raises:
        StoreError: the user of the database may not see all rows, or pg_dump failed; then an older
            file is as it was.

    No doctest: it needs a server; ``tests/store/test_backup.py`` shows it.
    """
    async with _all_seeing(database, "back up"):
        pass
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        draft.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror}; name another place"
        raise StoreError(message) from error
    try:
        await run(
            "pg_dump",
            "--format=custom",
            *("--schema=steersman", f"--exclude-table=steersman.{HNSW_TABLES}"),
            f"--file={draft}",
            url=database.url,
        )
        listed = await run("pg_restore", "--list", str(draft))
        with draft.open("rb") as written:
            os.fsync(written.fileno())
            size = os.fstat(written.fileno()).st_size
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    tables = sum(" TABLE DATA " in line for line in listed.splitlines())
    return Backup(file, size, tables)


async def restore(database: Database, file: Path, *, replace: bool = False) -> list[str]:
    """Bring back what a backup holds, with roles, policies and partitions, and migrate it.

    Stop service and learner first. What was there before stays until all of the backup is there.

    Args:
        database: whose user may see all rows and make roles.
        file: of `backup`, of this version or an older one.
        replace: whether a database that has tenants may be replaced.

    Returns:
        Migrations that were newer than the backup.

    Raises:
        StoreError: there are tenants already, the file is no backup, the user has not the rights,
            or pg_restore failed; then the database is as it was.

    No doctest: it needs a server; ``tests/store/test_backup.py`` shows it.
    """
    try:
        await run("pg_restore", "--list", str(file))
    except StoreError as error:
        message = f"{file} is no backup that can be read: {error}; name a file that `backup` wrote"
        raise StoreError(message) from error
    async with _all_seeing(database, "restore") as connection:
        await _refuse_tenants(connection, replace=replace)
        await ensure_roles(connection)
        await _put_aside(connection)
        try:
            await replay(file, database.url)
        except BaseException:
            await _put_back(connection)
            raise
        await connection.execute(f"DROP SCHEMA IF EXISTS {_ASIDE} CASCADE")
    return await migrate(database)


@asynccontextmanager
async def _all_seeing(database: Database, purpose: str) -> AsyncIterator[Any]:
    """Connect as the URL's own user, who must not be held by row-level security."""
    connection = await database.connect(None)
    try:
        row = await connection.fetchrow(
            "SELECT rolname, rolsuper OR rolbypassrls AS sees_all FROM pg_roles "
            "WHERE rolname = current_user"
        )
        if row is None or not row["sees_all"]:
            name = row and row["rolname"]
            message = (
                f"the user {name!r} cannot {purpose}, since row-level security hides rows from it; "
                "name a superuser or a user with BYPASSRLS in DATABASE_URL for this command"
            )
            raise StoreError(message)
        yield connection
    finally:
        await connection.close()


async def _refuse_tenants(connection: Any, *, replace: bool) -> None:
    if replace or await connection.fetchval("SELECT to_regclass('steersman.tenant')") is None:
        return
    count = await connection.fetchval("SELECT count(*) FROM steersman.tenant")
    if count:
        message = (
            f"the database has {count} tenants, and a restore would replace them; back it up and "
            "say that it may be replaced (--replace), or restore into an empty database"
        )
        raise StoreError(message)


async def _put_aside(connection: Any) -> None:
    """Move what is there out of the way; after an interrupted restore it is there already."""
    there, aside = await connection.fetchrow(
        "SELECT to_regnamespace('steersman') IS NOT NULL, to_regnamespace($1) IS NOT NULL", _ASIDE
    )
    if there and aside:
        # A restore brings all or nothing: this is what was restored, the other was to be dropped.
        await connection.execute(f"DROP SCHEMA {_ASIDE} CASCADE")
    if there:
        await connection.execute(f"ALTER SCHEMA steersman RENAME TO {_ASIDE}")


async def _put_back(connection: Any) -> None:
    if await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", _ASIDE):
        await connection.execute("DROP SCHEMA IF EXISTS steersman CASCADE")
        await connection.execute(f"ALTER SCHEMA {_ASIDE} RENAME TO steersman")
