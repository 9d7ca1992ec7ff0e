"""Days that leave PostgreSQL: which may, and how.

A day may leave when it is old, the cold store has every row of it, and no reward is to be
computed from it any more: no reward window is open of its decisions nor of those that its events
count for, and the learner has nothing to do for them. Then its partition is dropped: no delete, no
vacuum.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from steersman.errors import SteersmanError
from steersman.store.cold import datasets, ledger
from steersman.store.cold.looking import Looked
from steersman.store.crediting import spec_of
from steersman.store.database import as_tenant, set_tenant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

_TABLES = ("event", "decision")  # events first: a decision is not gone while they are there
_DATASETS = {"event": ("event",), "decision": ("decision", "reward")}
_LOCK_MS = 250
EPOCH = date(1970, 1, 2)
"""No id is older."""
_LONGEST_WINDOW_S = 366 * 86_400.0


async def exported(connection: Any, tenant: UUID, dataset: str, day: date) -> bool:
    """Return whether the cold store has every row of a day that PostgreSQL has now.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose rows.
        dataset: decision, event or reward.
        day: in UTC.

    Returns:
        True if nothing of that day would be lost by dropping it here; so too if there is nothing.
    """
    return not await _lacking(connection, tenant, dataset, day, Looked(None))


async def _lacking(
    connection: Any, tenant: UUID, dataset: str, day: date, looked: Looked
) -> str | None:
    """Return why rows of a day would be lost by dropping them here; None: they would not."""
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
    """Days that are old enough to go, and what keeps them.

    Args:
        connection: of role owner.
        looked: at the files that will have the rows.
        first: the first day that stays.
        now: reward windows that end later are open.

    Attributes:
        dropped: partitions that are gone.
        deleted: rows of days that have no partition of their own.
        waiting: what is old enough and still there, each with why.
    """

    def __init__(self, connection: Any, looked: Looked, first: date, now: datetime) -> None:
        self._connection, self._looked = connection, looked
        self._first, self._now = first, now
        self.dropped: list[str] = []
        self.deleted = 0
        self.waiting: dict[str, str] = {}

    async def drop_old(self, tenants: list[UUID]) -> None:
        """Drop the partitions of days before the first that stays.

        Args:
            tenants: all there are.
        """
        for table in _TABLES:
            for day, name in (await _partitions(self._connection, table)).items():
                if day < self._first and await self._goes(
                    name, partial(self._drop, tenants, table, name, day)
                ):
                    self.dropped.append(name)

    async def delete_old(self, tenant: UUID) -> None:
        """Delete such days from the default partition: imported logs, and before the first.

        So are rewards that came after the partition of their day had gone.

        Args:
            tenant: whose rows.
        """
        for table in _TABLES:
            for day in await self._days_apart(tenant, table):
                name = f"{table}_default {day} of tenant {tenant}"
                await self._goes(name, partial(self._delete, tenant, table, day))

    async def _goes(self, name: str, leave: Callable[[], Awaitable[_Left]]) -> bool:
        """Let a day leave, or note why it waits; files are looked at between two transactions."""
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
        """Drop a partition, or return why not."""
        # Nobody writes to it any more until it is gone; who reads or writes other days goes on.
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
        """Return the old days of which there are rows, and no partition."""
        apart = await _partitions(self._connection, table)
        last, found = self._first - timedelta(days=1), set[date]()
        async with as_tenant(self._connection, tenant):
            for dataset in _DATASETS[table]:
                kind = datasets.BY_NAME[dataset]
                found |= (await ledger.sources(self._connection, kind, [], None, last)).keys()
        return sorted(found - apart.keys())

    async def _why_not(self, tenant: UUID, table: str, day: date) -> str | None:
        """Return why a tenant's rows of a day have to stay, if they have; the tenant is set."""
        await set_tenant(self._connection, tenant)
        if await _is_judged(self._connection, day):
            return f"tenant {tenant} has an active rollout that needs them"
        for dataset in _DATASETS[table]:
            why = await _lacking(self._connection, tenant, dataset, day, self._looked)
            if why:
                return why
        return await _still_counts(self._connection, tenant, table, day, self._now)

    async def _delete_rewards(self, tenant: UUID, day: date) -> None:
        """Delete the rewards of a day's decisions, if the cold store still has all of them.

        Nobody waits for this: one that is written meanwhile stays, and goes with a later call.
        """
        await set_tenant(self._connection, tenant)
        export = (await ledger.exports(self._connection, tenant, datasets.REWARD)).get(day)
        known = ledger.NOTHING if export is None else export.source.partition("/")[0]
        count, mark = await self._connection.fetchrow(datasets.REWARD.delete_sql(day))
        if count and f"{count}:{mark}" != known:
            message = f"tenant {tenant} has rows of reward that are not in the cold store"
            raise _CameMeanwhileError(message)


class _Left(NamedTuple):
    """What became of a day: why it stays, if it does, or how many rows were deleted."""

    why: str | None = None
    rows: int = 0


class _CameMeanwhileError(Exception):
    """Rows came between looking and deleting: what was done is undone."""


async def _partitions(connection: Any, table: str) -> dict[date, str]:
    """Return the names of the daily partitions of a table, by day, oldest first."""
    rows = await connection.fetch(
        "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = $1::regclass AND c.relname ~ '_[0-9]{8}$' ORDER BY c.relname",
        f"steersman.{table}",
    )
    return {date.fromisoformat(row["relname"][-8:]): row["relname"] for row in rows}


async def _still_counts(
    connection: Any, tenant: UUID, table: str, day: date, now: datetime
) -> str | None:
    """Return why rewards may yet be computed from a tenant's rows of a day, if they may."""
    # Sets are compared with sets here: row by row, millions of them would take hours. What the
    # planner knows of tables that are seldom analysed does not tell it so.
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
        # Outcomes of before a decision count for it too: a younger one of the episode needs them.
        for tie in of_episode if pending and hashes else ():
            episodic = f"{pending} AND {bound} AND d.spec_hash = ANY($1) AND {tie}"
            if await _any(connection, episodic, hashes):
                return f"tenant {tenant} has {rows} of an episode with decisions {why}"
    return None


def _closing(now: datetime) -> str:
    """Return SQL for decisions ``d`` whose reward window is open."""
    moment = now.astimezone(UTC).isoformat()
    return f"decision AS d WHERE d.window_ends > '{moment}'::timestamptz"


async def _unlearned(connection: Any) -> str | None:
    """Return SQL for decisions ``d`` that there is work for; None if there is none."""
    # Both as of one moment: the learner may finish the last of it between two looks.
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
    """Return SQL conditions for a decision ``d``: a row of the day is its own, or its episode's.

    Where ids are bounded, the planner passes over the partitions of other days.
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
    """Return the declarations whose outcomes credit whole episodes.

    Returns:
        Their hashes, and the least id that a decision of theirs with an open window can have.
    """
    hashes, longest = [], 0.0
    for row in await connection.fetch(
        "SELECT hash FROM spec WHERE tenant = $1 AND strpos(document, 'scope') > 0", tenant
    ):
        try:
            reward = (await spec_of(connection, row["hash"])).reward
        except SteersmanError:  # of another version, which may come back
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
