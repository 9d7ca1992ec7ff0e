"""Removal of old days from PostgreSQL.

A day can be dropped if it is old, the cold store has all its rows, and no reward depends on it any
more: no reward window of its decisions, or of the decisions of its events, is open, and the learner
has no work for them. Then its partition is dropped, without DELETE or VACUUM.
"""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from steersman.db.archive import datasets, ledger
from steersman.db.archive.parquet_files import digest_of
from steersman.db.rewards import spec_of
from steersman.errors import DataError, SteersmanError
from steersman.platform.postgres.database import as_tenant, set_tenant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from steersman.db.archive.destination import Destination
    from steersman.db.archive.ledger import Export


class FileCheck:
    """Cold files that were checked, each once.

    Reading a file takes long, so it must not happen while a table is locked. A question about an
    unchecked file is noted; the caller runs `look` and asks again.

    Args:
        destination: file storage; None: trust the ledger.
    """

    def __init__(self, destination: Destination | None) -> None:
        self._destination = destination
        self._found: dict[str, str] = {}
        self._wanted: dict[str, Export] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether an unchecked file was asked for."""
        return bool(self._wanted)

    def problem(self, export: Export) -> str:
        """Return what is wrong with a file; empty if it is intact or if `is_wanted` is set now."""
        if self._destination is None:
            return ""
        if export.path not in self._found:
            self._wanted[export.path] = export
        return self._found.get(export.path, "")

    async def look(self) -> None:
        """Check all files that were asked for."""
        for path, export in self._wanted.items():
            self._found[path] = await asyncio.to_thread(self._look, export)
        self._wanted = {}

    def _look(self, export: Export) -> str:
        assert self._destination is not None  # noqa: S101 (asked about only then)
        scratch = self._destination.scratch() / "looked-at"
        scratch.mkdir(mode=0o700, exist_ok=True)
        try:
            digest = digest_of(self._destination.fetch(export.path, scratch))
        except FileNotFoundError:
            return f"{export.path} is missing from the cold store; compact again, or restore it"
        except (DataError, OSError) as error:
            return f"cannot read {export.path}: {error}"
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if digest != export.sha256:
            return f"{export.path} is damaged; remove it and compact again, or restore it"
        return ""


_TABLES = ("event", "decision")  # events first: decisions stay as long as their events
_DATASETS = {"event": ("event",), "decision": ("decision", "reward")}
_LOCK_MS = 250
EPOCH = date(1970, 1, 2)
"""Earliest possible id."""
_LONGEST_WINDOW_S = 366 * 86_400.0


async def exported(connection: Any, tenant: UUID, dataset: str, day: date) -> bool:
    """Return whether the cold store has every row of a day in PostgreSQL.

    Args:
        day: UTC day.
    """
    return not await _lacking(connection, tenant, dataset, day, FileCheck(None))


async def _lacking(
    connection: Any, tenant: UUID, dataset: str, day: date, looked: FileCheck
) -> str | None:
    """Return why dropping a day would lose rows; None if it would not."""
    kind = datasets.BY_NAME[dataset]
    found = await ledger.sources(connection, kind, [day], day, day)
    source = found[day]
    if source.hot == ledger.NOTHING:
        return None
    export = (await ledger.exports(connection, tenant, kind)).get(day)
    if export is None or export.source != str(source):
        return f"tenant {tenant} has rows of {dataset} that are not in the cold store"
    return looked.problem(export) or None


class OldDays:
    """Old days, and what prevents their removal.

    Args:
        connection: of role owner.
        looked: checks of the files with the rows.
        first: first day to keep.
        now: current time; reward windows that end later are open.

    Attributes:
        dropped: dropped partitions.
        deleted: deleted rows of days without a partition.
        waiting: old days that remain, with reasons.
    """

    def __init__(self, connection: Any, looked: FileCheck, first: date, now: datetime) -> None:
        self._connection, self._looked = connection, looked
        self._first, self._now = first, now
        self.dropped: list[str] = []
        self.deleted = 0
        self.waiting: dict[str, str] = {}

    async def drop_old(self, tenants: list[UUID]) -> None:
        """Drop the partitions of old days."""
        for table in _TABLES:
            for day, name in (await _partitions(self._connection, table)).items():
                if day < self._first and await self._goes(
                    name, partial(self._drop, tenants, table, name, day)
                ):
                    self.dropped.append(name)

    async def delete_old(self, tenant: UUID) -> None:
        """Delete old days from the default partition, and late rewards of dropped days."""
        for table in _TABLES:
            for day in await self._days_apart(tenant, table):
                name = f"{table}_default {day} of tenant {tenant}"
                await self._goes(name, partial(self._delete, tenant, table, day))

    async def _goes(self, name: str, leave: Callable[[], Awaitable[_Left]]) -> bool:
        """Remove a day or note why not; files are checked between two transactions."""
        left = await self._try(leave)
        while self._looked.is_wanted:
            await self._looked.look()
            left = await self._try(leave)
        if left.why:
            self.waiting[name] = left.why
            return False
        self.deleted += left.rows
        return True

    async def _try(self, leave: Callable[[], Awaitable[_Left]]) -> _Left:
        try:
            async with self._connection.transaction():
                await self._connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
                return await leave()
        except asyncpg.LockNotAvailableError:
            return _Left("another transaction uses it")
        except _CameMeanwhileError as error:
            return _Left(str(error))

    async def _drop(self, tenants: list[UUID], table: str, name: str, day: date) -> _Left:
        # Blocks writes to this partition only; other days are not affected.
        await self._connection.execute(f"LOCK TABLE {name} IN SHARE MODE")
        for tenant in tenants:
            why = await self._why_not(tenant, table, day)
            if why:
                return _Left(why)
        if self._looked.is_wanted:
            return _Left("its files must be checked first")
        if table == "decision":
            for tenant in tenants:
                await self._delete_rewards(tenant, day)
        await self._connection.execute(f"DROP TABLE {name}")
        return _Left()

    async def _delete(self, tenant: UUID, table: str, day: date) -> _Left:
        """Delete a tenant's rows of a day without a partition, or return why not."""
        await self._connection.execute(f"LOCK TABLE {table}_default IN SHARE MODE")
        why = await self._why_not(tenant, table, day)
        if why or self._looked.is_wanted:
            return _Left(why or "its files must be checked first")
        if table == "decision":
            await self._delete_rewards(tenant, day)
        status = await self._connection.execute(
            f"DELETE FROM {table} AS r WHERE {datasets.BY_NAME[table].within(day, day)}"  # noqa: S608 (constants)
        )
        return _Left(rows=int(status.split()[-1]))

    async def _days_apart(self, tenant: UUID, table: str) -> list[date]:
        """Return old days with rows but without a partition."""
        apart = await _partitions(self._connection, table)
        last, found = self._first - timedelta(days=1), set[date]()
        async with as_tenant(self._connection, tenant):
            for dataset in _DATASETS[table]:
                kind = datasets.BY_NAME[dataset]
                found |= (await ledger.sources(self._connection, kind, [], None, last)).keys()
        return sorted(found - apart.keys())

    async def _why_not(self, tenant: UUID, table: str, day: date) -> str | None:
        """Return why a tenant's rows of a day must stay, if they must; set the tenant first."""
        await set_tenant(self._connection, tenant)
        if await _is_judged(self._connection, day):
            return f"tenant {tenant} has an active rollout that needs them"
        for dataset in _DATASETS[table]:
            why = await _lacking(self._connection, tenant, dataset, day, self._looked)
            if why:
                return why
        return await _still_counts(self._connection, tenant, table, day, self._now)

    async def _delete_rewards(self, tenant: UUID, day: date) -> None:
        """Delete the rewards of a day's decisions if the cold store has all of them.

        It takes no lock: a reward written meanwhile stays for a later call.
        """
        await set_tenant(self._connection, tenant)
        export = (await ledger.exports(self._connection, tenant, datasets.REWARD)).get(day)
        known = ledger.NOTHING if export is None else export.source.partition("/")[0]
        count, mark = await self._connection.fetchrow(datasets.REWARD.delete_sql(day))
        if count and f"{count}:{mark}" != known:
            message = f"tenant {tenant} has rows of reward that are not in the cold store"
            raise _CameMeanwhileError(message)


class _Left(NamedTuple):
    """Result for a day: why it stays, or the number of deleted rows."""

    why: str | None = None
    rows: int = 0


class _CameMeanwhileError(Exception):
    """Rows arrived between check and deletion; the deletion is rolled back."""


async def _partitions(connection: Any, table: str) -> dict[date, str]:
    """Return the daily partitions of a table by day, oldest first."""
    rows = await connection.fetch(
        "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = $1::regclass AND c.relname ~ '_[0-9]{8}$' ORDER BY c.relname",
        f"steersman.{table}",
    )
    return {date.fromisoformat(row["relname"][-8:]): row["relname"] for row in rows}


async def _still_counts(
    connection: Any, tenant: UUID, table: str, day: date, now: datetime
) -> str | None:
    """Return why rewards may still depend on a tenant's rows of a day, if they may."""
    # Compare sets, because row by row millions would take hours. The
    # planner's statistics are too old to know.
    await connection.execute("SET LOCAL enable_nestloop = off; SET LOCAL jit = off")
    why = await _pending(connection, tenant, table, day, now)
    await connection.execute("SET LOCAL enable_nestloop = DEFAULT; SET LOCAL jit = DEFAULT")
    return why


async def _pending(
    connection: Any, tenant: UUID, table: str, day: date, now: datetime
) -> str | None:
    own, of_episode = await _ties(connection, tenant, table, day)
    hashes, oldest = await _episodic(connection, tenant, now)
    rows = "decisions" if table == "decision" else "events that belong to decisions"
    for pending, bound, why in (
        (_closing(now), f"d.id >= '{oldest}'", "whose reward window is open"),
        (
            await _unlearned(connection),
            "true",
            "that the learner has not processed; check that it runs",
        ),
    ):
        if pending and own and await _any(connection, f"{pending} AND {own}"):
            return f"tenant {tenant} has {rows} {why}"
        # Earlier outcomes of an episode also count for its later decisions.
        for tie in of_episode if pending and hashes else ():
            episodic = f"{pending} AND {bound} AND d.spec_hash = ANY($1) AND {tie}"
            if await _any(connection, episodic, hashes):
                return f"tenant {tenant} has {rows} of an episode with decisions {why}"
    return None


def _closing(now: datetime) -> str:
    """Return SQL for decisions ``d`` with an open reward window."""
    moment = now.astimezone(UTC).isoformat()
    return f"decision AS d WHERE d.window_ends > '{moment}'::timestamptz"


async def _unlearned(connection: Any) -> str | None:
    """Return SQL for decisions ``d`` with work; None if there is none."""
    # One snapshot for both: the learner may finish between two queries.
    first, last = await connection.fetchrow(
        "SELECT (SELECT decision FROM work ORDER BY 1 LIMIT 1), "
        "(SELECT decision FROM work ORDER BY 1 DESC LIMIT 1)"
    )
    if first is None:
        return None
    return (
        "work AS w JOIN decision AS d ON d.tenant = w.tenant AND d.id = w.decision "
        f"WHERE d.id >= '{first}' AND d.id <= '{last}'"
    )


async def _any(connection: Any, what: str, *args: Any) -> bool:
    found: bool = await connection.fetchval(f"SELECT EXISTS (SELECT FROM {what})", *args)  # noqa: S608 (ours)
    return found


async def _ties(
    connection: Any, tenant: UUID, table: str, day: date
) -> tuple[str | None, list[str]]:
    """Return SQL that matches rows of the day to a decision ``d`` or its episode.

    Bounds on ids let the planner skip partitions of other days.
    """
    within = datasets.BY_NAME[table].within(day, day)
    if table == "decision":
        first, end = datasets.first_id(day), datasets.first_id(day + timedelta(days=1))
        same = f"SELECT FROM decision AS r WHERE r.episode = d.episode AND {within}"
        return f"d.id >= '{first}' AND d.id < '{end}'", [f"EXISTS ({same})"]
    whole = f"EXISTS (SELECT FROM event AS r WHERE r.episode = d.episode AND {within})"
    first, last = [
        await connection.fetchval(
            f"SELECT r.decision FROM event AS r WHERE r.tenant = $1 AND r.decision IS NOT NULL "  # noqa: S608 (ours)
            f"AND {within} ORDER BY r.decision {direction} LIMIT 1",
            tenant,
        )
        for direction in ("ASC", "DESC")
    ]
    if first is None:
        return None, [whole]
    own = f"SELECT FROM event AS r WHERE r.decision = d.id AND {within}"
    member = (
        "SELECT FROM decision AS o JOIN event AS r ON r.tenant = o.tenant AND r.decision = o.id "
        f"WHERE o.episode = d.episode AND o.id >= '{first}' AND o.id <= '{last}' AND {within}"
    )
    bounded = f"d.id >= '{first}' AND d.id <= '{last}'"
    return f"{bounded} AND EXISTS ({own})", [whole, f"EXISTS ({member})"]


async def _episodic(connection: Any, tenant: UUID, now: datetime) -> tuple[list[bytes], UUID]:
    hashes, longest = [], 0.0
    for row in await connection.fetch(
        "SELECT hash FROM spec WHERE tenant = $1 AND strpos(document, 'scope') > 0", tenant
    ):
        try:
            reward = (await spec_of(connection, row["hash"])).reward
        except SteersmanError:  # of another version, which may be used again
            hashes.append(row["hash"])
            longest = _LONGEST_WINDOW_S
            continue
        if reward.scope == "episode":
            hashes.append(row["hash"])
            longest = max(longest, reward.window_s)
    begun = now.astimezone(UTC).date() - timedelta(seconds=longest) - timedelta(days=1)
    return hashes, datasets.first_id(max(begun, EPOCH))


async def _is_judged(connection: Any, day: date) -> bool:
    found: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM rollout WHERE ended_at IS NULL "
        "AND (started_at AT TIME ZONE 'UTC')::date <= $1)",
        day,
    )
    return found
