"""SQLite file of the queue, private to the user and shared by processes."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from steersman_client.errors import QueueError, QueueFullError

if TYPE_CHECKING:
    from pathlib import Path

BUSY_S = 5.0


def open_file(path: Path, schema: str) -> sqlite3.Connection:
    """Return a connection to a file in WAL mode; create it with its tables if missing.

    Args:
        path: path of the file.
        schema: statements for a new file; they set ``user_version`` above 0.

    Raises:
        QueueError: the file cannot be created.
        sqlite3.Error: the file cannot be used.
    """
    connection = connect_to(path, BUSY_S)
    try:
        _prepare(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Return a connection without implicit transactions; create the file if missing.

    Args:
        path: path of the file.
        timeout_s: timeout in seconds for a lock of another process.

    Raises:
        QueueError: the file cannot be created.
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
    """Return the error that describes a problem with a queue file."""
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
