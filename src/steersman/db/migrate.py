"""Schema migrations: applies each file of `migrations` once, in order, in its own transaction.

Released files never change; applied ones are recorded with their hash. An advisory lock serialises
concurrent migrations.
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from asyncpg import Connection

    from steersman.platform.postgres.database import Database

_LOCK = 7_365_365
_AHEAD_DAYS = 14
_DAYS_WITHOUT = """
SELECT day FROM (SELECT $1::date + i AS day FROM generate_series(0, $2::integer) AS i) AS days
WHERE to_regclass('steersman.decision_' || to_char(day, 'YYYYMMDD')) IS NULL
   OR to_regclass('steersman.event_' || to_char(day, 'YYYYMMDD')) IS NULL
ORDER BY day
"""
_log = logging.getLogger(__name__)


async def migrate(database: Database) -> list[str]:
    """Apply missing migrations and create the partitions of the next days.

    Raises:
        StoreError: an applied migration differs from its file or is unknown, or SQL failed;
            that file was rolled back.
    """
    way_out = "applied migrations stay valid; run it again for the rest"
    async with database.connected(None, "the migration", way_out) as connection:
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        missing = missing_after(await applied_migrations(connection) or {})
        for name, sql in missing:
            await _apply(connection, name, sql)
    try:
        await make_partitions(database)
    except StoreError as error:
        _log.warning("cannot create partitions now, will retry: %s", error)
    return [name for name, _ in missing]


def missing_after(done: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Return the migrations to apply, in order.

    Raises:
        StoreError: an applied migration differs from its file or is unknown.

    >>> missing_after({})[0][0]
    '0001_roles.sql'
    """
    known = _files()
    _refuse_newer(done.keys() - dict(known).keys())
    return [(name, sql) for name, sql in known if not _is_done(name, sql, done)]


async def ensure_roles(connection: Connection[Any]) -> None:
    """Create missing roles on this server and grant them to the user."""
    _, sql = _files()[0]
    await connection.execute(sql)


async def make_partitions(database: Database, *, days: int = _AHEAD_DAYS) -> int:
    """Create the daily partitions from yesterday on; existing ones are kept.

    Raises:
        StoreError: a long transaction locks the table. Waiting would block all decisions
            and events; rows of a day without a partition go to the default one.
    """
    way_out = "existing partitions stay valid; run it again for the rest"
    async with database.connected("owner", "creating partitions", way_out) as connection:
        first = datetime.now(UTC).date() - timedelta(days=1)
        made = 0
        for day in await connection.fetch(_DAYS_WITHOUT, first, days + 1):
            made += await _make_partition(connection, day[0])
    return made


async def last_partition(connection: Connection[Any]) -> date | None:
    """Return the last day that has a partition of decisions; None without any."""
    last: str | None = await connection.fetchval(
        "SELECT max(right(c.relname, 8)) FROM pg_inherits AS i JOIN pg_class AS c "
        "ON c.oid = i.inhrelid WHERE i.inhparent = 'steersman.decision'::regclass "
        "AND c.relname ~ '_[0-9]{8}$'"
    )
    return None if last is None else date.fromisoformat(last)


async def roles_bypassing(connection: Connection[Any]) -> dict[str, bool]:
    """Return the existing roles of this schema, and whether they bypass row-level security."""
    rows = await connection.fetch(
        "SELECT rolname, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = ANY($1)",
        [f"steersman_{role}" for role in ("owner", "app", "worker")],
    )
    return dict(rows)


async def _make_partition(connection: Connection[Any], day: date) -> int:
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '250ms'")
            made: int = await connection.fetchval("SELECT make_partitions($1, 1)", day)
    except asyncpg.LockNotAvailableError as error:
        message = "a long transaction, such as a backup, locks decisions or events; days without "
        raise StoreError(message + "a partition get one when it ends") from error
    return made


def migration_hashes() -> dict[str, bytes]:
    """Return the SHA-256 of each migration of this version, by name."""
    return {name: sha256(sql.encode()).digest() for name, sql in _files()}


async def applied_migrations(connection: Connection[Any]) -> dict[str, bytes] | None:
    """Return the SHA-256 of each applied migration, by name; None without a schema."""
    if await connection.fetchval("SELECT to_regclass('steersman.migration')") is None:
        return None
    return dict(await connection.fetch("SELECT name, sha256 FROM steersman.migration"))


def _files() -> list[tuple[str, str]]:
    folder = files("steersman.db.migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(name, (folder / name).read_text(encoding="utf-8")) for name in names]


def _is_done(name: str, sql: str, done: Mapping[str, bytes]) -> bool:
    if name in done and done[name] != sha256(sql.encode()).digest():
        message = (
            f"migration {name} was applied with other content; this version does not match this "
        )
        raise StoreError(message + "database; use the version that created it, or a newer one")
    return name in done


def _refuse_newer(names: AbstractSet[str]) -> None:
    if names:
        message = f"the database has migrations {', '.join(sorted(names))}, which this version "
        raise StoreError(
            message + "does not know; use the version that applied them, or a newer one"
        )


async def _apply(connection: Connection[Any], name: str, sql: str) -> None:
    try:
        async with connection.transaction():
            if not name.startswith("0001"):
                await connection.execute("SET LOCAL ROLE steersman_owner")
            await connection.execute(sql)
            await connection.execute("SET LOCAL ROLE steersman_owner")
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS steersman.migration "
                "(name text PRIMARY KEY, sha256 bytea NOT NULL, at timestamptz DEFAULT now())"
            )
            await connection.execute(
                "INSERT INTO steersman.migration VALUES ($1, $2)",
                name,
                sha256(sql.encode()).digest(),
            )
    except asyncpg.PostgresError as error:
        message = f"migration {name} failed and was rolled back: {error}"
        raise StoreError(message) from error
