"""Checks of ``steersman doctor``: server, roles, schema, partitions, learning."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from steersman.cli.doctor_machine import Finding
from steersman.cli.local_store import close, open_store
from steersman.cli.options import run
from steersman.db.learners import oldest_lag_s
from steersman.db.migrate import (
    applied_migrations,
    last_partition,
    migration_hashes,
    roles_bypassing,
)
from steersman.db.points import points_as_they_are
from steersman.db.tenants import list_tenants
from steersman.errors import StoreError
from steersman.platform.postgres.database import Database, as_tenant, server_time, setting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MIGRATE = "`steersman doctor --migrate`"


def look_at_store(home: Path) -> Iterator[Finding]:
    """Check PostgreSQL and its schema."""
    named = bool(os.environ.get("DATABASE_URL"))
    try:
        if not named and not (home / "postgres" / "data").is_dir():
            advice = "`steersman up` creates one; or set DATABASE_URL"
            yield Finding("postgres", "warn", "no database yet", advice)
            return
        database = open_store(home)
    except StoreError as error:
        yield Finding("postgres", "fail", str(error), "read the quoted log")
        return
    except OSError as error:
        yield Finding(
            "postgres", "fail", str(error), "make the home readable and writable for this user"
        )
        return
    try:
        yield from run(_look_into(database))
    except StoreError as error:
        yield Finding("postgres", "fail", str(error), "check DATABASE_URL and the server")
    finally:
        close(database)


async def _look_into(database: Database) -> list[Finding]:
    connection = await database.connect(None)
    try:
        kind = "embedded" if database.server is not None else "from DATABASE_URL"
        version = await setting(connection, "server_version")
        findings = [Finding("postgres", "ok", f"{version}, {kind}"), await _clock(connection)]
        findings += [await _flushing(connection), await _roles(connection)]
        migrations = await _migrations(connection)
        findings.append(migrations)
        if migrations.verdict == "ok":
            findings += [await _partitions(connection), await _learning(database)]
            findings += await _declarations(database)
        return findings
    finally:
        await connection.close()


async def _clock(connection: Any) -> Finding:
    before = time.time()
    there = (await server_time(connection)).timestamp()
    apart = there - (before + time.time()) / 2
    if abs(apart) > 1.0:
        advice = "synchronise both clocks by NTP: reward windows depend on them"
        return Finding("clock", "warn", f"{apart:+.1f} s off the server's clock", advice)
    return Finding("clock", "ok", f"{apart * 1000:+.1f} ms off the server's clock")


async def _flushing(connection: Any) -> Finding:
    """Check settings that a connection cannot set; writers set `synchronous_commit`."""
    names = ("fsync", "full_page_writes")
    off = [name for name in names if await setting(connection, name) == "off"]
    if off:
        found = f"{' and '.join(off)} off: a power cut loses acknowledged rows"
        advice = f"ALTER SYSTEM SET {off[0]} = on; SELECT pg_reload_conf()"  # sql: shown - advice
        return Finding("durability", "warn", found, advice)
    return Finding("durability", "ok", "committed rows are on the server's disk")


async def _roles(connection: Any) -> Finding:
    roles = await roles_bypassing(connection)
    free = [name for name, bypasses in roles.items() if bypasses]
    if free:
        advice = f"ALTER ROLE {free[0]} NOSUPERUSER NOBYPASSRLS"  # sql: shown - advice
        return Finding("roles", "fail", f"{', '.join(free)} can see every tenant's rows", advice)
    if len(roles) < 3:
        return Finding("roles", "fail", f"{len(roles)} of 3 roles exist", _MIGRATE)
    return Finding("roles", "ok", "owner, app, worker; none bypasses row-level security")


async def _migrations(connection: Any) -> Finding:
    ours, applied = migration_hashes(), await applied_migrations(connection)
    if applied is None:
        return Finding("schema", "fail", "missing", _MIGRATE)
    other = sorted(name for name in applied if ours.get(name) != applied[name])
    missing = sorted(set(ours) - set(applied))
    if other:
        found = f"{', '.join(other)} differ from this version's migrations"
        return Finding("schema", "fail", found, "use the version that applied them, or a newer one")
    if missing:
        found = f"{', '.join(missing)} not applied"
        return Finding("schema", "fail", found, _MIGRATE)
    return Finding("schema", "ok", f"{len(applied)} migrations applied")


async def _partitions(connection: Any) -> Finding:
    last = await last_partition(connection)
    today = datetime.now(UTC).date()
    ahead = last - today if last else timedelta(-1)
    found = f"created until {last:%Y%m%d}" if last else "none created"
    if ahead < timedelta(2):
        advice = "run `steersman data keep` to create them ahead; no row is lost without it"
        return Finding("partitions", "warn", found, advice)
    return Finding("partitions", "ok", found)


async def _learning(database: Database) -> Finding:
    connection = await database.connect("worker")
    try:
        late_s = await oldest_lag_s(connection)
    finally:
        await connection.close()
    if late_s is not None and late_s > 30.0:
        advice = "start a learner with `steersman learn run`, or read its log"
        return Finding(
            "learning", "warn", f"the oldest due outcome waits for {late_s:,.0f} s", advice
        )
    return Finding("learning", "ok", "no due outcome waits longer than 30 s")


async def _declarations(database: Database) -> list[Finding]:
    """Return a finding for each point that this version cannot serve; one if it serves all."""
    found, count = [], 0
    connection = await database.connect("app")
    try:
        for tenant in await list_tenants(database):
            async with as_tenant(connection, tenant.id):
                rows, unreadable = await points_as_they_are(connection, tenant.id)
            count += len(rows)
            found += [(tenant.name, point.why) for point in unreadable]
            found += [(tenant.name, row.problem) for row in rows if row.problem]
    finally:
        await connection.close()
    if not found:
        return [Finding("declarations", "ok", f"{count} decision points can be served")]
    advice = "follow the message; until then this point's outcomes wait, other points work"
    return [Finding("declarations", "warn", f"{name}: {why}", advice) for name, why in found]
