"""Durable queue on disk that survives kill -9 and is shared by processes.

SQLite in WAL mode with ``synchronous=NORMAL``: a commit hands its pages to the operating system
before
`DiskQueue.put` returns, so a killed process loses nothing. A power failure may lose the last rows
but never corrupts the rest.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from steersman_client.errors import QueueError, QueueFullError
from steersman_client.items import Backlog, Item, RefusedItem, Row
from steersman_client.queue_file import open_file, queue_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from steersman_client.items import Drop, Kind, Settlement

REFUSED_KEPT = 1000
_PAGE = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS record(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS event(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS refused(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, id TEXT NOT NULL,
    body BLOB NOT NULL, problem BLOB NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS counter(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 1;
"""
# AUTOINCREMENT: a number is never given twice, so settling a batch cannot remove a newer row.


class DiskQueue:
    """Queue of records and events in insertion order.

    Args:
        path: path of the file; its folder is created for this user only.
        max_bytes: maximum size of the rows in bytes.
        drop: behaviour when it is full: raise an error, or drop the oldest rows.
    """

    def __init__(self, path: Path, max_bytes: int, drop: Drop = "never") -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._drop = drop
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._closed = False

    def put(self, items: Sequence[Item]) -> int:
        """Store all items or none; return the number of dropped old rows.

        Raises:
            QueueFullError: no space.
            QueueError: the file cannot be written.
        """
        needed = sum(len(item.body) + len(item.id) + 16 for item in items)
        with self._transaction() as connection:
            dropped = self._make_room(connection, needed)
            for item in items:
                _append(connection, item)
        return dropped

    def take(self, limit: int, max_bytes: int) -> list[Row]:
        """Return the oldest rows without removing them: records first, then events.

        Events are returned only after all records, because they may be about one.

        Args:
            limit: maximum number of rows, at least 1.
            max_bytes: maximum size of the bodies in bytes; a single row may be larger.
        """
        rows: list[Row] = []
        size = 0
        with self._transaction("DEFERRED") as connection:
            kinds: tuple[Kind, ...] = ("record", "event")
            for kind in kinds:
                found = connection.execute(
                    f"SELECT seq, id, body FROM {kind} ORDER BY seq LIMIT ?",  # noqa: S608
                    (limit - len(rows),),
                )
                for seq, name, body in found:
                    size += len(body)
                    if rows and size > max_bytes:
                        return rows
                    rows.append(Row(seq, Item(kind, name, body)))
        return rows

    def settle(self, settlement: Settlement, now: float) -> None:
        """Apply a settlement in one transaction.

        Args:
            settlement: results of rows that `take` returned.
            now: seconds since 1970, stored with refused items.
        """
        with self._transaction() as connection:
            for row in settlement.done:
                _remove(connection, row)
            for row, problem in settlement.refused:
                # Another process may have settled it before: then it is counted already.
                if _remove(connection, row):
                    _set_aside(connection, row.item, problem, now)
            for row in settlement.later:
                if _remove(connection, row):
                    _append(connection, row.item)

    def is_empty(self) -> bool:
        """Return whether nothing is left to deliver."""
        with self._transaction("DEFERRED") as connection:
            query = "SELECT EXISTS(SELECT 1 FROM event) OR EXISTS(SELECT 1 FROM record)"
            return not connection.execute(query).fetchone()[0]

    def backlog(self) -> Backlog:
        """Return the counts of the queue."""
        with self._transaction("DEFERRED") as connection:
            counters = dict(connection.execute("SELECT name, value FROM counter").fetchall())
            (records,) = connection.execute("SELECT count(*) FROM record").fetchone()
            (events,) = connection.execute("SELECT count(*) FROM event").fetchone()
            used = _used_bytes(connection)
        return Backlog(
            records, events, used, counters.get("refused", 0), counters.get("dropped", 0)
        )

    def refused(self) -> list[RefusedItem]:
        """Return the last refused items, oldest first."""
        with self._transaction("DEFERRED") as connection:
            found = connection.execute(
                "SELECT kind, id, body, problem, at FROM refused ORDER BY seq"
            ).fetchall()
        return [RefusedItem(*row) for row in found]

    def close(self) -> None:
        """Close the file permanently."""
        with self._lock:
            self._closed = True
            self._disconnect()

    def before_fork(self) -> None:
        """Close the file and block other threads.

        SQLite keeps file locks in process memory. A child with a copy would believe that it holds
        the parent's locks, and rows would be lost.
        """
        self._lock.acquire()
        self._disconnect()

    def after_fork_in_parent(self) -> None:
        """Unblock other threads."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Use a new lock; the next use opens the file."""
        self._lock = threading.RLock()

    def _make_room(self, connection: sqlite3.Connection, needed: int) -> int:
        dropped = 0
        while (used := _used_bytes(connection)) + needed > self._max_bytes:
            if _forget_refused(connection):
                continue  # they are not delivered, and are counted already
            gone = _drop_oldest(connection) if self._drop == "oldest" else 0
            if not gone:
                raise QueueFullError(
                    f"the queue {self.path} holds {used} bytes; {needed} more exceed its limit of "
                    f"{self._max_bytes}; check that the service is reachable and "
                    "drains the queue, increase queue_bytes, or set drop='oldest'"
                )
            dropped += gone
        if dropped:
            _count(connection, "dropped", dropped)
        return dropped

    @contextmanager
    def _transaction(
        self, mode: Literal["DEFERRED", "IMMEDIATE"] = "IMMEDIATE"
    ) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                connection = self._connect()
                connection.execute(f"BEGIN {mode}")
                try:
                    yield connection
                except BaseException:
                    # A full disk has ended the transaction already.
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                # A failed COMMIT leaves the transaction open; closing ends it.
                self._disconnect()
                raise queue_error(self.path, error) from error

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise QueueError(
                f"the queue {self.path} is closed because its client is closed; create a new client"
            )
        if self._open is None:
            self._open = open_file(self.path, _SCHEMA)
        return self._open

    def _disconnect(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return int(pages - free) * _PAGE


def _append(connection: sqlite3.Connection, item: Item) -> None:
    connection.execute(
        f"INSERT INTO {item.kind}(id, body) VALUES (?, ?)",  # noqa: S608 (one of two names)
        (item.id, item.body),
    )


def _remove(connection: sqlite3.Connection, row: Row) -> bool:
    query = f"DELETE FROM {row.item.kind} WHERE seq = ?"  # noqa: S608 (one of two names)
    return connection.execute(query, (row.seq,)).rowcount > 0


def _set_aside(connection: sqlite3.Connection, item: Item, problem: bytes, now: float) -> None:
    connection.execute(
        "INSERT INTO refused(kind, id, body, problem, at) VALUES (?, ?, ?, ?, ?)",
        (item.kind, item.id, item.body, problem, now),
    )
    connection.execute(
        "DELETE FROM refused WHERE seq <= (SELECT max(seq) FROM refused) - ?", (REFUSED_KEPT,)
    )
    _count(connection, "refused", 1)


def _forget_refused(connection: sqlite3.Connection) -> int:
    """Delete the oldest refused items, up to 64 rows."""
    return connection.execute(
        "DELETE FROM refused WHERE seq IN (SELECT seq FROM refused ORDER BY seq LIMIT 64)"
    ).rowcount


def _drop_oldest(connection: sqlite3.Connection) -> int:
    """Delete up to 64 rows, events before records, because events may be about a record."""
    for table in ("event", "record"):
        gone = connection.execute(
            f"DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} ORDER BY seq LIMIT 64)"  # noqa: S608
        ).rowcount
        if gone:
            return gone
    return 0


def _count(connection: sqlite3.Connection, name: str, more: int) -> None:
    connection.execute(
        "INSERT INTO counter VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = value + ?",
        (name, more, more),
    )
