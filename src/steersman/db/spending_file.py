"""Spending of tenants by day, and money held for running requests, in a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WAIT_S = 10.0
_SPENT = (
    "CREATE TABLE IF NOT EXISTS spent (tenant TEXT, day TEXT, usd REAL NOT NULL, "
    "calls INTEGER NOT NULL, PRIMARY KEY (tenant, day))"
)
_HELD = (
    "CREATE TABLE IF NOT EXISTS held (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, "
    "usd REAL NOT NULL, calls INTEGER NOT NULL, until REAL NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class Spending:
    """Open transaction on a spending file.

    Attributes:
        connection: its connection.
    """

    connection: sqlite3.Connection

    def spend(self, tenant: str, day: str, usd: float, calls: int) -> None:
        """Add to the spending of a day."""
        self.connection.execute(
            "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT (tenant, day) DO UPDATE SET "
            "usd = usd + excluded.usd, calls = calls + excluded.calls",
            (tenant, day, usd, calls),
        )

    def hold(self, number: int, tenant: str, usd: float, calls: int, until: float) -> None:
        """Set what a request may still spend, and until when."""
        self.connection.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "usd = excluded.usd, calls = excluded.calls, until = excluded.until",
            (number, tenant, usd, calls, until),
        )

    def release(self, number: int) -> None:
        """Delete the hold of a request."""
        self.connection.execute("DELETE FROM held WHERE id = ?", (number,))

    def expire(self, day: str, now: float) -> None:
        """Delete the spending of earlier days and the holds that have expired."""
        self.connection.execute("DELETE FROM spent WHERE day < ?", (day,))
        self.connection.execute("DELETE FROM held WHERE until < ?", (now,))

    def total(self, tenant: str, day: str) -> tuple[float, int]:
        """Return dollars and calls that a tenant has spent on a day or holds."""
        usd, calls = self.connection.execute(
            "SELECT total(usd), CAST(total(calls) AS INTEGER) FROM ("
            "SELECT usd, calls FROM spent WHERE tenant = ? AND day = ? "
            "UNION ALL SELECT usd, calls FROM held WHERE tenant = ?)",
            (tenant, day, tenant),
        ).fetchone()
        return usd, calls


@contextmanager
def spending(file: Path) -> Iterator[Spending]:
    """Run a transaction on a spending file, which is created when needed.

    Raises:
        OSError: the folder cannot be written.
        sqlite3.Error: the file cannot be written; nothing of the transaction is stored.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(sqlite3.connect(file, timeout=_WAIT_S, isolation_level=None)) as connection:
        connection.execute(_SPENT)
        connection.execute(_HELD)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield Spending(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
