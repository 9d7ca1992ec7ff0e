"""How long rows are kept where they are quick to reach, and how old partitions go.

A day leaves PostgreSQL when it is old, the cold store has every row of it, and no reward is to be
computed from it any more: no reward window is open of its decisions nor of those that its events
count for, and the learner has nothing to do for them. Then its partition is dropped: no delete, no
vacuum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.errors import InputError, SteersmanError
from steersman.store.answer_limits import AnswerLimits, trim_answers
from steersman.store.cold import datasets, ledger
from steersman.store.corpus_sweeping import sweep_corpora
from steersman.store.crediting import spec_of
from steersman.store.database import as_tenant, set_tenant
from steersman.store.erasure import sweep
from steersman.store.standing import thin_states

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.store.database import Database

_TABLES = ("event", "decision")  # events first: a decision is not gone while they are there
_DATASETS = {"event": ("event",), "decision": ("decision", "reward")}
_LOCK_MS = 250
_BATCH = 10_000
_MOST_DAYS = 36_500
_EPOCH = date(1970, 1, 2)  # no id is older
_LONGEST_WINDOW_S = 366 * 86_400.0


@dataclass(slots=True)
class Kept:
    """What retention did.

    Attributes:
        dropped: partitions that are gone.
        deleted: rows of days that have no partition of their own.
        waiting: partitions that are old enough and still there, each with why.
        idempotency: keys and event ids forgotten.
        checkpoints: older states of a snapshot removed.
        snapshots: states of older published snapshots removed; the registry has them.
        erased: rows that belong to erased decisions and had come back.
        answers: cached answers removed that nobody had asked for, or that were too many.
        corpora: rows of corpora removed that neither a snapshot nor the newest revision needs.
    """

    dropped: list[str] = field(default_factory=list)
    deleted: int = 0
    waiting: dict[str, str] = field(default_factory=dict)
    idempotency: int = 0
    checkpoints: int = 0
    snapshots: int = 0
    erased: int = 0
    answers: int = 0
    corpora: int = 0


async def keep(
    database: Database,
    *,
    days: int,
    idempotency_days: int = 30,
    checkpoints: int = 3,
    snapshots: int = 100,
    now: datetime | None = None,
) -> Kept:
    """Drop what is older than it has to be; whatever fails to go now goes with the next call.

    Args:
        database: migrated.
        days: how many whole UTC days of decisions and events stay in PostgreSQL beside today, 1
            to 36,500.
        idempotency_days: how long keys and event ids are remembered, 1 to 36,500. A client must
            not send an event again that is older: the queue of a client that was away for longer
            is to be drained before.
        checkpoints: how many states of each snapshot stay, 1 or more.
        snapshots: how many published snapshots of each decision point keep their state here, 1 or
            more, besides those that served or are in use.
        now: default: the clock.

    Returns:
        What was done, and which partitions wait for what.

    Raises:
        InputError: a number out of range.
        StoreError: the server does not answer.

    No doctest: it needs a server; ``tests/store/test_retention.py`` shows it.
    """
    for name, value, most in (
        ("days", days, _MOST_DAYS),
        ("idempotency_days", idempotency_days, _MOST_DAYS),
        ("checkpoints", checkpoints, 1000),
        ("snapshots", snapshots, 1_000_000),
    ):
        if not 1 <= value <= most:
            message = f"{name} is {value!r}; allowed is 1 to {most:,}; nothing was dropped"
            raise InputError(message)
    now = now or datetime.now(UTC)
    kept = Kept()
    connection = await database.connect("owner")
    try:
        tenants = [row["id"] for row in await connection.fetch("SELECT id FROM tenant ORDER BY id")]
        for tenant in tenants:
            kept.erased += await _sweep(connection, tenant)
            kept.idempotency += await _forget(
                connection, tenant, now - timedelta(days=idempotency_days)
            )
            kept.checkpoints += await _thin(connection, tenant, checkpoints)
            async with as_tenant(connection, tenant):
                kept.snapshots += await thin_states(connection, snapshots)
                kept.answers += await trim_answers(connection, AnswerLimits(), now=now)
                kept.corpora += await sweep_corpora(connection, tenant, now=now)
        first = max(now.astimezone(UTC).date() - timedelta(days=days), _EPOCH)
        await _drop_old(connection, tenants, first, now, kept)
        for tenant in tenants:
            await _delete_old(connection, tenant, first, now, kept)
    finally:
        await connection.close()
    return kept


async def exported(connection: Any, tenant: UUID, dataset: str, day: date) -> bool:
    """Return whether the cold store has every row of a day that PostgreSQL has now.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose rows.
        dataset: decision, event or reward.
        day: in UTC.

    Returns:
        True if nothing of that day would be lost by dropping it here; so too if there is nothing.

    No doctest: it needs a server; ``tests/store/test_retention.py`` shows it.
    """
    kind = datasets.BY_NAME[dataset]
    found = await ledger.sources(connection, kind, [day], day, day)
    source = found[day]
    if source.hot == ledger.NOTHING:
        return True
    export = (await ledger.exports(connection, tenant, kind)).get(day)
    return export is not None and export.source == str(source)


async def _sweep(connection: Any, tenant: UUID) -> int:
    async with as_tenant(connection, tenant):
        return sum((await sweep(connection)).values())


async def _forget(connection: Any, tenant: UUID, before: datetime) -> int:
    """Delete old keys in batches, so that nobody waits long for a row."""
    forgotten = 0
    while True:
        async with as_tenant(connection, tenant):
            status = await connection.execute(
                "DELETE FROM idempotency WHERE ctid = ANY(ARRAY("
                "SELECT ctid FROM idempotency WHERE at < $1 LIMIT $2))",
                *(before, _BATCH),
            )
        count = int(status.split()[-1])
        forgotten += count
        if count < _BATCH:
            return forgotten


async def _thin(connection: Any, tenant: UUID, most: int) -> int:
    async with as_tenant(connection, tenant):
        status: str = await connection.execute(
            "DELETE FROM checkpoint AS c USING ("
            "  SELECT skill, point, snapshot, seq, row_number() OVER ("
            "    PARTITION BY skill, point, snapshot ORDER BY seq DESC) AS place FROM checkpoint"
            ") AS o WHERE o.place > $1 AND (c.skill, c.point, c.snapshot, c.seq) = "
            "(o.skill, o.point, o.snapshot, o.seq)",
            most,
        )
    return int(status.rsplit(maxsplit=1)[-1])


async def _drop_old(
    connection: Any, tenants: list[UUID], first: date, now: datetime, kept: Kept
) -> None:
    """Drop the partitions of days before the first that stays."""
    for table in _TABLES:
        for day, name in (await _partitions(connection, table)).items():
            if day >= first:
                continue
            try:
                async with connection.transaction():
                    why = await _drop(connection, tenants, table, name, day, now)
            except asyncpg.LockNotAvailableError:
                why = "somebody uses it"
            if why:
                kept.waiting[name] = why
            else:
                kept.dropped.append(name)


async def _delete_old(
    connection: Any, tenant: UUID, first: date, now: datetime, kept: Kept
) -> None:
    """Delete such days from the default partition: imported logs, and days before the first."""
    for table in _TABLES:
        kind = datasets.BY_NAME[table]
        apart = await _partitions(connection, table)
        async with as_tenant(connection, tenant):
            await connection.execute(f"LOCK TABLE {table}_default IN SHARE MODE")
            found = await ledger.sources(connection, kind, [], None, first - timedelta(days=1))
            for day in found.keys() - apart.keys():
                why = await _why_not(connection, tenant, table, day, now)
                if why:
                    kept.waiting[f"{table}_default {day} of tenant {tenant}"] = why
                    continue
                if table == "decision":
                    await _delete_rewards(connection, day)
                status = await connection.execute(
                    f"DELETE FROM {table} AS r WHERE {kind.within(day, day)}"  # noqa: S608 (constants)
                )
                kept.deleted += int(status.split()[-1])


async def _partitions(connection: Any, table: str) -> dict[date, str]:
    """Return the names of the daily partitions of a table, by day, oldest first."""
    rows = await connection.fetch(
        "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = $1::regclass AND c.relname ~ '_[0-9]{8}$' ORDER BY c.relname",
        f"steersman.{table}",
    )
    return {date.fromisoformat(row["relname"][-8:]): row["relname"] for row in rows}


async def _drop(
    connection: Any, tenants: list[UUID], table: str, name: str, day: date, now: datetime
) -> str | None:
    """Drop a partition, or return why not."""
    # Nobody writes to it any more until it is gone; who reads or writes other days goes on.
    await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
    await connection.execute(f"LOCK TABLE {name} IN SHARE MODE")
    for tenant in tenants:
        await set_tenant(connection, tenant)
        why = await _why_not(connection, tenant, table, day, now)
        if why:
            return why
    if table == "decision":
        for tenant in tenants:
            await set_tenant(connection, tenant)
            await _delete_rewards(connection, day)
    await connection.execute(f"DROP TABLE {name}")
    return None


async def _why_not(
    connection: Any, tenant: UUID, table: str, day: date, now: datetime
) -> str | None:
    """Return why a tenant's rows of a day have to stay, if they have."""
    if await _is_judged(connection, day):
        return f"tenant {tenant} has a rollout under way that is judged from them"
    for dataset in _DATASETS[table]:
        if not await exported(connection, tenant, dataset, day):
            return f"tenant {tenant} has rows of {dataset} that the cold store does not have"
    return await _still_counts(connection, tenant, table, day, now)


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
    rows = "decisions" if table == "decision" else "events that count for decisions"
    for pending, bound, why in (
        (_closing(now), f"d.id >= '{oldest}'", "whose reward window is open"),
        (
            await _unlearned(connection),
            "true",
            "that the learner is not done with; see that it runs",
        ),
    ):
        if pending and own and await _any(connection, f"{pending} AND {own}"):
            return f"tenant {tenant} has {rows} {why}"
        # Outcomes of before a decision count for it too: a younger one of the episode needs them.
        for tie in of_episode if pending and hashes else ():
            episodic = f"{pending} AND {bound} AND d.spec_hash = ANY($1) AND {tie}"
            if await _any(connection, episodic, hashes):
                return f"tenant {tenant} has {rows} of an episode with others {why}"
    return None


def _closing(now: datetime) -> str:
    """Return SQL for decisions ``d`` whose reward window is open."""
    moment = now.astimezone(UTC).isoformat()
    return f"decision AS d WHERE d.window_ends > '{moment}'::timestamptz"


async def _unlearned(connection: Any) -> str | None:
    """Return SQL for decisions ``d`` that there is work for; None if there is none."""
    first, last = [
        await connection.fetchval(f"SELECT decision FROM work ORDER BY 1 {direction} LIMIT 1")  # noqa: S608 (ours)
        for direction in ("ASC", "DESC")
    ]
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
    return hashes, datasets.first_id(max(begun, _EPOCH))


async def _is_judged(connection: Any, day: date) -> bool:
    found: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM rollout WHERE ended_at IS NULL "
        "AND (started_at AT TIME ZONE 'UTC')::date <= $1)",
        day,
    )
    return found


async def _delete_rewards(connection: Any, day: date) -> None:
    await connection.execute(
        "DELETE FROM reward WHERE decision >= first_id($1) AND decision < first_id($1 + 1)", day
    )
