"""Backup and restore: one file in pg_dump's custom format with a checksum.

A dump must read the rows of every tenant, but row-level security is forced. So backup and restore
connect as the user of DATABASE_URL, who must be a superuser or have BYPASSRLS.
"""

from __future__ import annotations

import asyncio
import fcntl
import glob
import os
import re
import secrets
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from typing import TYPE_CHECKING, Any

from steersman.db.corpus_hnsw import HNSW_TABLES
from steersman.db.migrate import ensure_roles, migrate, missing_after
from steersman.errors import StoreError
from steersman.platform.durable_files import flush_folder
from steersman.platform.postgres.programs import replay, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from steersman.platform.postgres.database import Database

_APPLIED = re.compile(r"^(\S+\.sql)\t\\\\x([0-9a-f]*)\t", re.MULTILINE)
_SEAL = b"\nsteersman: SHA-256 of what is before this line "
_CHUNK = 1 << 20
_WAY_OUT = "use a file written by `steersman backup`"


def seal(file: Path) -> int:
    """Append the hash of a dump to its file and flush it to disk.

    PostgreSQL checks the rows of a dump, but not its SQL. Its programs ignore data after the dump.

    Returns:
        File size in bytes.

    >>> from tempfile import NamedTemporaryFile
    >>> from pathlib import Path
    >>> with NamedTemporaryFile() as made:
    ...     size = seal(Path(made.name))
    ...     check_seal(Path(made.name))
    >>> size
    80
    """
    with file.open("r+b") as written:
        digest = file_digest(written, "sha256").digest()
        written.seek(0, os.SEEK_END)
        written.write(_SEAL + digest)
        written.flush()
        os.fsync(written.fileno())
        return os.fstat(written.fileno()).st_size


def check_seal(file: Path) -> None:
    """Check a dump against its hash; dumps of earlier versions have none.

    Raises:
        StoreError: the file cannot be read or was changed.
    """
    digest = sha256()
    try:
        with file.open("rb") as sealed:
            left = os.fstat(sealed.fileno()).st_size - len(_SEAL) - digest.digest_size
            sealed.seek(max(left, 0))
            end = sealed.read(len(_SEAL) + digest.digest_size)
            if not end.startswith(_SEAL):
                return
            sealed.seek(0)
            while left and (chunk := sealed.read(min(_CHUNK, left))):
                digest.update(chunk)
                left -= len(chunk)
    except OSError as error:
        message = f"cannot read {file}: {error.strerror}; {_WAY_OUT}"
        raise StoreError(message) from error
    if end != _SEAL + digest.digest():
        message = f"{file} is damaged: its SHA-256 differs from the recorded one; use another copy"
        raise StoreError(message)


async def migrations_of(file: Path) -> dict[str, bytes]:
    """Return the migrations applied in a backup.

    Raises:
        StoreError: the file cannot be read or is a dump of another database.
    """
    rows = ("--data-only", "--schema=steersman", "--table=migration", "--file=-")
    try:
        script = await run("pg_restore", *rows, str(file))
    except StoreError as error:
        message = f"{file} is not a readable backup: {error}; {_WAY_OUT}"
        raise StoreError(message) from error
    found = {name: bytes.fromhex(digest) for name, digest in _APPLIED.findall(script)}
    if not found:
        message = f"{file} is not a Steersman backup: it has no applied migrations; "
        raise StoreError(message + _WAY_OUT)
    return found


_ASIDE = "steersman_before_restore"
_WHOLE = "the database holds either the old data or the backup, complete; run it again"
_DRAFT = "[0-9a-f]" * 8


@dataclass(frozen=True, slots=True)
class Backup:
    """Finished backup.

    Attributes:
        file: path, readable only by this user.
        bytes: size in bytes.
        tables: number of tables and partitions with rows.
    """

    file: Path
    bytes: int
    tables: int


async def backup(database: Database, file: Path) -> Backup:
    """Back up all tenants to one file, as one consistent snapshot without blocking.

    The secret for API keys is not in the database; store it separately. Corpus indexes are left
    out: after a restore, search is exact until `steersman corpus index`.

    Raises:
        StoreError: the database user cannot read all rows, pg_dump failed, or the path is
            not writable or not a regular file; an existing file is unchanged.
    """
    async with _all_seeing(database, "backup", "run it again"):
        pass
    draft, held = _begun(file)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not draft.exists():  # removed as a leftover between creation and lock
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
    """Create a temporary file beside a path; return it and its handle."""
    with _told(file):
        if file.exists() and not file.is_file():
            raise StoreError(f"{file} is not a regular file; choose another path")
        draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        _remove_left(file)
        return draft, os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def _move(draft: Path, file: Path) -> None:
    """Rename a temporary file to its path and flush, so that it survives a power loss."""
    draft.replace(file)
    flush_folder(file.parent)


def _remove_left(file: Path) -> None:
    """Remove temporary files of killed backups, because they contain data of all tenants."""
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
    """Restore a backup with roles, policies and partitions, and migrate it.

    Stop service and learner first. The old data stays until the backup is completely loaded.

    Raises:
        StoreError: the database has tenants, the file is damaged, not a backup or of a
            later version, the user lacks rights, or pg_restore failed; the database is
            unchanged.
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
    """Connect as the URL's user, who must bypass row-level security."""
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
    """Complete an interrupted restore: drop the old schema or bring it back.

    A restore renames and loads in one transaction, so both schemas exist only after success. Older
    versions renamed first and could leave an empty or partial schema; then the renamed one is the
    original. Grants are the last part of a dump.
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
    """Drop the old schema, day by day, because one transaction would exceed the lock table.

    The next restore drops what an interruption leaves.
    """
    partitions = await connection.fetch(
        "SELECT oid::regclass::text AS name FROM pg_class "
        "WHERE relnamespace = to_regnamespace($1) AND relispartition AND relkind = 'r'",
        _ASIDE,
    )
    for partition in partitions:
        await connection.execute(f"DROP TABLE {partition['name']}")
    await connection.execute(f"DROP SCHEMA IF EXISTS {_ASIDE} CASCADE")
