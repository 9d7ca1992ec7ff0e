"""Fixtures of the cold store: seeded rows of one tenant over some days."""

from __future__ import annotations

import hashlib
import http.client
import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from steersman.db.archive.destination import Bucket, Directory, open_destination
from steersman.db.decisions import DecisionRow, log_decisions
from steersman.db.packed_events import EventRow, log_events
from steersman.platform.postgres.database import Database, as_tenant
from tests.db.rows import decision, event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.db.archive.destination import Destination
    from steersman.db.tenants import Tenant

FIRST = date(2026, 3, 1)


def decision_id(at: datetime, rng: random.Random) -> UUID:
    random_bits = rng.getrandbits(74)
    high, low = random_bits >> 62, random_bits & ((1 << 62) - 1)
    milliseconds = int(at.timestamp() * 1000)
    return UUID(int=(milliseconds << 80) | (7 << 76) | (high << 64) | (2 << 62) | low)


@dataclass
class Past:
    """Writes rows of one tenant, and records them."""

    database: Database
    tenant: UUID
    rng: random.Random
    decisions: list[DecisionRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    rewards: list[tuple[UUID, int]] = field(default_factory=list)

    async def add(self, day: date, count: int) -> list[DecisionRow]:
        """Write decisions of a day, each with an event and a reward."""
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        moments = [
            begin + timedelta(milliseconds=self.rng.randrange(86_400_000)) for _ in range(count)
        ]
        rows = [self.decision(at) for at in moments]
        events = [self.event(row) for row in rows]
        connection = await self.database.connect("app")
        try:
            assert await log_decisions(connection, rows) == {}
            assert await log_events(connection, events) == {}
        finally:
            await connection.close()
        await self.reward([row.id for row in rows])
        self.decisions += rows
        self.events += events
        return rows

    async def reward(self, decisions: Sequence[UUID], revision: int = 1) -> None:
        connection = await self.database.connect("worker")
        try:
            async with as_tenant(connection, self.tenant):
                # Their point is not declared: no learner would ever do this work.
                await connection.execute("DELETE FROM work WHERE tenant = $1", self.tenant)
                await connection.executemany(
                    "INSERT INTO reward (tenant, decision, revision, spec_hash, value, status, "
                    "terms, final) VALUES ($1, $2, $3, $4, 0.5, 'scored', $5, true)",
                    [(self.tenant, d, revision, bytes(32), {"ok": 1.0}) for d in decisions],
                )
        finally:
            await connection.close()
        self.rewards += [(decision, revision) for decision in decisions]

    async def erase(self, rows: Sequence[DecisionRow], *, named: bool = True) -> None:
        """Record an erasure; hot rows may stay for a while.

        Args:
            rows: rows to erase.
            named: whether the episode is known.
        """
        connection = await self.database.connect("owner")
        try:
            async with as_tenant(connection, self.tenant):
                await connection.executemany(
                    "INSERT INTO erasure (tenant, decision, episode, reason) "
                    "VALUES ($1, $2, $3, 'asked')",
                    [(self.tenant, row.id, row.episode if named else None) for row in rows],
                )
        finally:
            await connection.close()
        gone, episodes = {row.id for row in rows}, {row.episode for row in rows}
        self.decisions = [row for row in self.decisions if row.id not in gone]
        self.events = [
            row
            for row in self.events
            if row.decision not in gone and (row.decision or row.episode not in episodes)
        ]
        self.rewards = [key for key in self.rewards if key[0] not in gone]

    async def forget(self, day: date) -> None:
        """Delete a day's hot rows, as retention does."""
        connection = await self.database.connect("owner")
        try:
            async with as_tenant(connection, self.tenant):
                for table, column in (
                    ("decision", "id >= first_id($1) AND id"),
                    ("reward", "decision >= first_id($1) AND decision"),
                ):
                    sql = f"DELETE FROM {table} WHERE {column} < first_id($1 + 1)"
                    await connection.execute(sql, day)
                await connection.execute("DELETE FROM event WHERE received_at::date = $1", day)
        finally:
            await connection.close()

    def decision(self, at: datetime) -> DecisionRow:
        number = self.rng.randrange(10**6)
        return decision(
            self.tenant,
            id=decision_id(at, self.rng),
            skill="assistant",
            point="route",
            episode=f"e{number}",
            unit=f"u{number % 7}",
            update_seq=number,
            spec_hash=bytes(range(32)),
            context={"question": f"what is {number}?", "score": number / 7, "é": ["ü", None]},
            eligible=None if number % 2 else ["a", "b"],
            action="ab"[number % 2],
            p=self.rng.random() * 0.9 + 0.1,
            x=[0.5, float(number % 97), -1.25],
            u=self.rng.random(),
            at=at,
            window_ends=at + timedelta(minutes=10),
        )

    def event(self, row: DecisionRow) -> EventRow:
        whole = self.rng.random() < 0.2
        return event(
            self.tenant,
            None if whole else row.id,
            id=f"event-{row.id.hex}",
            episode=row.episode if whole else None,
            type="task_result",
            at=row.at,
            received_at=row.at + timedelta(milliseconds=1),
            outcomes={"ok": 1, "latency_ms": row.update_seq / 3},
            body={"note": f"of {row.id}"},
            body_hash=hashlib.blake2b(row.id.bytes, digest_size=16).digest(),
        )

    def keys(self) -> dict[str, list[str]]:
        """Return the keys of all expected rows, as `stored_keys` reads them."""
        return {
            "decision": sorted(str(row.id) for row in self.decisions),
            "event": sorted(row.id for row in self.events),
            "reward": sorted(f"{decision}/{revision}" for decision, revision in self.rewards),
        }


@pytest.fixture
def past(database: Database, tenant: Tenant) -> Past:
    return Past(database, tenant.id, random.Random(7))


@pytest.fixture
def past_of(database: Database) -> Callable[[UUID], Past]:
    return lambda tenant: Past(database, tenant, random.Random(11))


@pytest.fixture
def cold(tmp_path) -> Directory:
    return Directory(tmp_path / "cold")


@pytest.fixture
def days() -> list[date]:
    return [FIRST + timedelta(days=number) for number in range(3)]


@pytest.fixture(scope="module")
def endpoint():
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    connection = http.client.HTTPConnection(host, port)
    connection.request("PUT", "/cold")
    connection.getresponse().read()
    connection.close()
    yield url
    server.stop()


@pytest.fixture
def bucket(endpoint, tmp_path):
    options = {
        "endpoint": endpoint,
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
        "client_options": {"allow_http": True},
        "retry_config": {"max_retries": 0},
    }
    place = open_destination(f"s3://cold/{tmp_path.name}", **options)
    assert isinstance(place, Bucket)
    return place


@pytest.fixture(params=["cold", "bucket"])
def place(request) -> Destination:
    """Return a directory and a bucket, in turn."""
    return request.getfixturevalue(request.param)
