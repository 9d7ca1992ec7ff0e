"""Separate days for tests that drop them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import count

from steersman.db.archive.compaction import compact
from steersman.db.archive.destination import Directory
from steersman.db.decisions import log_decisions
from steersman.db.packed_events import log_events
from steersman.db.retention import keep
from steersman.wire import new_id
from tests.db.rows import connected, decision, event

LONG_AGO = date(1980, 1, 1)  # keeping as of then leaves the days of other tests alone
_PLACES = count()


class Days:
    """Three separate partitions and a cold store."""

    def __init__(self, database, tenant, folder):
        self.database, self.tenant = database, tenant
        self.destination = Directory(folder)
        self.first = LONG_AGO + timedelta(days=100 * next(_PLACES))
        self.now = datetime(
            self.first.year, self.first.month, self.first.day, 12, tzinfo=UTC
        ) + timedelta(days=40)

    async def make(self):
        async with connected(self.database, "owner") as connection:
            await connection.execute("SELECT make_partitions($1, 3)", self.first)

    async def drop(self):
        """Drop remaining partitions, because retention looks at all days."""
        days = [f"{self.first + timedelta(days=day):%Y%m%d}" for day in range(3)]
        names = ", ".join(f"{table}_{day}" for table in ("decision", "event") for day in days)
        async with connected(self.database, "owner") as connection:
            await connection.execute(f"DROP TABLE IF EXISTS {names}")

    def at(self, day, hour=12):
        begun = datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC)
        return begun + timedelta(days=day, hours=hour)

    async def write(self, tenant=None, day=0, *, happens=0.0, **changes):
        """Write a learned decision, and an event so many days later; None: no event."""
        tenant, at = tenant or self.tenant, self.at(day)
        row = decision(tenant.id, id=new_id(at.timestamp()), **changes)
        async with connected(self.database) as connection:
            await log_decisions(connection, [row])
        if happens is not None:
            await self.happen(row.id, day + happens, tenant=tenant)
        async with connected(self.database, "worker", tenant.id) as connection:
            await connection.execute(
                "INSERT INTO reward (tenant, decision, revision, spec_hash, value, status, terms, "
                "final) VALUES ($1, $2, 1, $3, 1, 'scored', '{}', true)",
                *(tenant.id, row.id, bytes(32)),
            )
        await self.learn(tenant)
        return row

    async def happen(self, about, day, *, tenant=None, **changes):
        at = self.at(day)
        row = event((tenant or self.tenant).id, about, at=at, received_at=at, **changes)
        async with connected(self.database) as connection:
            assert await log_events(connection, [row]) == {}

    async def learn(self, tenant=None):
        """Simulate the learner, because most points here are not declared."""
        owner = (tenant or self.tenant).id
        async with connected(self.database, "worker", owner) as connection:
            await connection.execute("DELETE FROM work WHERE tenant = $1", owner)

    async def queue(self, row, due):
        async with connected(self.database, "worker", row.tenant) as connection:
            await connection.execute(
                "INSERT INTO work (tenant, skill, point, decision, due_at) "
                "VALUES ($1, $2, $3, $4, $5)",
                *(row.tenant, row.skill, row.point, row.id, due),
            )

    async def compact(self, *tenants):
        chosen = [tenant.id for tenant in tenants or (self.tenant,)]
        await compact(
            self.database, self.destination, tenants=chosen, until=self.first + timedelta(days=9)
        )

    async def keep(self, days=30, **options):
        return await keep(
            *(self.database,), days=days, now=self.now, destination=self.destination, **options
        )

    def names(self, *days):
        return [
            f"{table}_{self.first + timedelta(days=day):%Y%m%d}"
            for table in ("event", "decision")
            for day in days
        ]

    async def existing(self):
        async with connected(self.database, "owner") as connection:
            return [
                name
                for name in self.names(0, 1, 2)
                if await connection.fetchval("SELECT to_regclass($1)", name)
            ]
