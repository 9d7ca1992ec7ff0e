"""A file of SQLite for this user alone, that several processes open at once."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from steersman.errors import QueueError, QueueFullError

if TYPE_CHECKING:
    from pathlib import Path

BUSY_S = 5.0


def open_file(path: Path, schema: str) -> sqlite3.Connection:
    """Return a connection to a file in WAL mode, made with its tables if it is not there.

    Args:
        path: of the file.
        schema: statements that make a new file; they set ``user_version`` above 0.

    Returns:
        A connection as `connect_to` makes it.

    Raises:
        QueueError: the file cannot be made.
        sqlite3.Error: it cannot be used.
    """
    connection = connect_to(path, BUSY_S)
    try:
        _prepare(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Return a connection to a file that is made for this user alone, if it is not there.

    Args:
        path: of the file.
        timeout_s: how long to wait for a lock of another.

    Returns:
        A connection without transactions of its own making, for any thread.

    Raises:
        QueueError: the file cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its journals the mode of the file. One that is there must not be opened here:
        # to close any descriptor of a file gives up all locks that this process has on it, SQLite's
        # too, and another process would then take the journal away from under its connections.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise queue_error(path, error) from error
    return sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)


def queue_error(path: Path, error: Exception) -> QueueError:
    """Return the error that tells what is wrong with a file of the queue."""
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
        return QueueFullError(f"the disk of the queue {path} is full ({error}); free some space")
    return QueueError(
        f"the queue {path} cannot be used: {error}; check that its folder is writable by this "
        "user and that the disk works, or set another queue_dir"
    )


def _prepare(connection: sqlite3.Connection, schema: str) -> None:
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            # Changing the mode does not wait for other openers, whatever the timeout.
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_size_limit = 4194304")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        connection.executescript(f"BEGIN IMMEDIATE;{schema}COMMIT;")
