"""Retention of hot rows; ``db/archive/expire.py`` removes the days."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from steersman.db.answer_cache import AnswerLimits, trim_answers
from steersman.db.archive.expire import EPOCH, FileCheck, OldDays
from steersman.db.corpora import sweep_corpora
from steersman.db.erasure import sweep
from steersman.db.snapshot_references import thin_states
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant
from steersman.wire import id_time

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.archive.destination import Destination
    from steersman.platform.postgres.database import Database

_BATCH = 10_000
_MOST_DAYS = 36_500
_GOES_ON = "rows already dropped stay dropped; run it again for the rest"
_CLOCKS_DIFFER = timedelta(days=1)  # maximum clock error of clients and server


@dataclass(slots=True)
class RetentionResult:
    """Result of a retention run.

    Attributes:
        dropped: dropped partitions.
        deleted: deleted rows of days without a partition.
        waiting: old partitions that remain, with reasons.
        idempotency: deleted keys and event ids.
        checkpoints: deleted older checkpoints.
        snapshots: removed states of older published snapshots, which the registry still
            has.
        erased: deleted rows of erased decisions that had arrived again.
        answers: removed cached answers.
        corpora: removed corpus rows that no snapshot or newest revision uses.
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
    destination: Destination | None = None,
    idempotency_days: int = 30,
    checkpoints: int = 3,
    snapshots: int = 100,
    now: datetime | None = None,
) -> RetentionResult:
    """Drop rows that exceed their retention; the next call retries failures.

    Args:
        days: whole UTC days of decisions and events to keep besides today, 1 to 36,500.
        destination: cold store whose files are checked before rows are dropped; None: trust
            the ledger.
        idempotency_days: minimum days to keep keys and event ids, 1 to 36,500. An event id
            stays as long as its decision, so that a late repeat does not count twice.
        checkpoints: checkpoints to keep per snapshot, 1 or more.
        snapshots: published snapshots per decision point that keep their state, 1 or more,
            besides those that are or were live.
        now: current time; default: system clock.

    Raises:
        InputError: a number is out of range.
        StoreError: the database is unreachable, or the connection was lost.
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
    kept = RetentionResult()
    async with database.connected("owner", "retention", _GOES_ON) as connection:
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
        first = max(now.astimezone(UTC).date() - timedelta(days=days), EPOCH)
        old = OldDays(connection, FileCheck(destination), first, now)
        await old.drop_old(tenants)
        for tenant in tenants:
            await old.delete_old(tenant)
        kept.dropped, kept.deleted, kept.waiting = old.dropped, old.deleted, old.waiting
    return kept


async def _sweep(connection: Any, tenant: UUID) -> int:
    async with as_tenant(connection, tenant):
        return sum((await sweep(connection)).values())


async def _forget(connection: Any, tenant: UUID, before: datetime) -> int:
    """Delete old keys in batches, to keep locks short.

    An event older than the oldest decision belongs to a dropped decision and would be rejected if
    sent again. Until then its id is needed to detect a repeat.
    """
    async with as_tenant(connection, tenant):
        oldest = await connection.fetchval("SELECT id FROM decision ORDER BY id LIMIT 1")
    of_events = before
    if oldest is not None:
        of_events = min(before, datetime.fromtimestamp(id_time(oldest), UTC) - _CLOCKS_DIFFER)
    forgotten = 0
    while True:
        async with as_tenant(connection, tenant):
            status = await connection.execute(
                "DELETE FROM idempotency WHERE ctid = ANY(ARRAY("
                "SELECT ctid FROM idempotency "
                "WHERE at < $1 AND (kind <> 'e' OR at < $2) LIMIT $3))",
                *(before, of_events, _BATCH),
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
