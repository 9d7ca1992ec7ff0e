"""Lease of the sender: a lock that the operating system releases when the process dies."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

from steersman_client.queue_file import connect_to, queue_error

if TYPE_CHECKING:
    from pathlib import Path


class Lease:
    """Right to send from a queue, held by one process at a time.

    It is a transaction on a second, empty SQLite file.

    Args:
        path: path of that file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._open: sqlite3.Connection | None = None

    def take(self) -> bool:
        """Return whether this process holds the lease now."""
        with self._lock:
            if self._open is None:
                self._open = _locked(self._path)
            return self._open is not None

    def release(self) -> None:
        """Release the lease."""
        with self._lock:
            self._release()

    def before_fork(self) -> None:
        """Release the lease, because SQLite's locks must not be copied; see `DiskQueue`."""
        self._lock.acquire()
        self._release()

    def after_fork_in_parent(self) -> None:
        """Allow the lease to be taken again."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Use a new lock."""
        self._lock = threading.Lock()

    def _release(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()


def _locked(path: Path) -> sqlite3.Connection | None:
    connection = connect_to(path, 0.0)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        connection.close()
        if error.sqlite_errorname == "SQLITE_BUSY":
            return None
        raise queue_error(path, error) from error
    return connection
