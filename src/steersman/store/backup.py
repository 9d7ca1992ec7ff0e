"""Backup and restore: one file in pg_dump's own format, checked when made and when read.

A dump must see every tenant's rows, and row-level security is forced: whoever dumps and restores
is the user of DATABASE_URL itself, who must be a superuser or have BYPASSRLS. Nobody else should.
"""

from __future__ import annotations

import asyncio
import fcntl
import glob
import os
import secrets
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import StoreError
from steersman.registry.durable import flush_folder
from steersman.store.corpus_hnsw import HNSW_TABLES
from steersman.store.dumps import check_seal, migrations_of, seal
from steersman.store.migrate import ensure_roles, migrate, missing_after
from steersman.store.programs import replay, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from steersman.store.database import Database

_ASIDE = "steersman_before_restore"
_WHOLE = "the database holds either the old data or the backup, complete; run it again"
_DRAFT = "[0-9a-f]" * 8


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
        StoreError: the user of the database may not see all rows, pg_dump failed, or the file is a
            directory, a device or a pipe or cannot be written; then what is there is as it was.
    """
    async with _all_seeing(database, "backup", "run it again"):
        pass
    draft, held = _begun(file)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not draft.exists():  # taken for one that was left, between its making and its lock
            raise StoreError(
                f"another backup of {file} started at the same time; run this one again"
            )
        await run(
            "pg_dump",
            "--format=custom",
            *("--schema=steersman", f"--exclude-table=steersman.{HNSW_TABLES}"),
            f"--file={draft}",
            url=database.url,
        )
        listed = await run("pg_restore", "--list", str(draft))
        with _told(file):
            size = await asyncio.to_thread(seal, draft)
            _move(draft, file)
    finally:
        draft.unlink(missing_ok=True)
        os.close(held)
    tables = sum(" TABLE DATA " in line for line in listed.splitlines())
    return Backup(file, size, tables)


@contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"cannot write {file}: {error.strerror}; choose another path"
        raise StoreError(message) from error


def _begun(file: Path) -> tuple[Path, int]:
    """Make a draft beside a file, and return it and its handle."""
    with _told(file):
        if file.exists() and not file.is_file():
            raise StoreError(f"{file} is not a regular file; choose another path")
        draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        _remove_left(file)
        return draft, os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def _move(draft: Path, file: Path) -> None:
    """Move a draft to its place, flushed: what was told as written is there after a power cut."""
    draft.replace(file)
    flush_folder(file.parent)


def _remove_left(file: Path) -> None:
    """Remove drafts of this backup whose process was killed: they hold everybody's data."""
    for left in file.parent.glob(f".{glob.escape(file.name)}.{_DRAFT}"):
        try:
            held = os.open(left, os.O_RDWR)
        except FileNotFoundError:
            continue  # another backup has just ended
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink(missing_ok=True)
        except BlockingIOError:
            continue  # another backup is writing it
        finally:
            os.close(held)


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
        StoreError: there are tenants already, the file is damaged, no backup or of a later version,
            the user has not the rights, or pg_restore failed; then the database is as it was.
    """
    await asyncio.to_thread(check_seal, file)
    applied = await migrations_of(file)
    try:
        missing_after(applied)
    except StoreError as error:
        message = f"cannot restore {file}; nothing was changed: {error}"
        raise StoreError(message) from error
    async with _all_seeing(database, "restore", _WHOLE) as connection:
        if not await connection.fetchval("SELECT pg_try_advisory_lock(hashtext($1))", _ASIDE):
            raise StoreError("another restore is running in this database; wait until it ends")
        await _settle_earlier(connection)
        await _refuse_tenants(connection, replace=replace)
        await ensure_roles(connection)
        # Renamed, not dropped, in the transaction of the restore: dropping locks every table.
        await replay(file, database.url, first=f"ALTER SCHEMA steersman RENAME TO {_ASIDE};")
        await _drop_aside(connection)
    return await migrate(database)


@asynccontextmanager
async def _all_seeing(database: Database, what: str, way_out: str) -> AsyncIterator[Any]:
    """Connect as the URL's own user, who must not be held by row-level security."""
    async with database.connected(None, f"the {what}", way_out) as connection:
        row = await connection.fetchrow(
            "SELECT rolname, rolsuper OR rolbypassrls AS sees_all FROM pg_roles "
            "WHERE rolname = current_user"
        )
        if row is None or not row["sees_all"]:
            name = row and row["rolname"]
            message = (
                f"cannot run the {what} as user {name!r}: row-level security hides rows from it; "
                "use a superuser or a user with BYPASSRLS in DATABASE_URL for this command"
            )
            raise StoreError(message)
        yield connection


async def _refuse_tenants(connection: Any, *, replace: bool) -> None:
    if replace or await connection.fetchval("SELECT to_regclass('steersman.tenant')") is None:
        return
    count = await connection.fetchval("SELECT count(*) FROM steersman.tenant")
    if count:
        message = (
            f"the database has {count} tenants, and a restore would replace them; back it up and "
            "pass --replace, or restore into an empty database"
        )
        raise StoreError(message)


async def _settle_earlier(connection: Any) -> None:
    """Finish what a killed restore left: drop what was replaced, or bring it back.

    A restore renames and fills in one transaction, so both schemas are there only when it is
    through. Earlier versions renamed first, and could end with nothing or half of a database in
    place: then the one aside is the original. Rights are the last thing that a dump brings.
    """
    if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", _ASIDE):
        return
    whole = await connection.fetchval(
        "SELECT to_regclass('steersman.tenant') IS NOT NULL "
        "AND has_schema_privilege('steersman_app', 'steersman', 'usage')"
    )
    if whole:
        await _drop_aside(connection)
        return
    async with connection.transaction():
        await connection.execute("DROP SCHEMA IF EXISTS steersman CASCADE")
        await connection.execute(f"ALTER SCHEMA {_ASIDE} RENAME TO steersman")


async def _drop_aside(connection: Any) -> None:
    """Drop what was replaced, each day by itself: a year's at once need more locks than there are.

    Who is stopped on the way leaves what the next restore drops.
    """
    partitions = await connection.fetch(
        "SELECT oid::regclass::text AS name FROM pg_class "
        "WHERE relnamespace = to_regnamespace($1) AND relispartition AND relkind = 'r'",
        _ASIDE,
    )
    for partition in partitions:
        await connection.execute(f"DROP TABLE {partition['name']}")
    await connection.execute(f"DROP SCHEMA IF EXISTS {_ASIDE} CASCADE")
