"""Vectors in a file of SQLite, which many processes may use and any of them may die in.

In WAL mode with ``synchronous=NORMAL`` the death of a process loses nothing that was stored; losing
power may lose the last rows, and never corrupts the rest.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_log = logging.getLogger(__name__)
PAGE = 4096
"""Bytes of a page of the file."""
_BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS embedding(
    embedder TEXT NOT NULL, text BLOB NOT NULL, vector BLOB NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (embedder, text));
"""
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = ("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_READONLY", "SQLITE_AUTH")


class VectorFile:
    """Vectors by embedder and hash of the text.

    Args:
        path: of the file; it is made with its folder, for this user alone.
        max_pages: the most pages that the file may have.

    Raises:
        DataError: the file is something else or damaged, or may not be written.
    """

    def __init__(self, path: Path, max_pages: int) -> None:
        self.path = path
        self._max_pages = max_pages
        self._open: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        _living.add(self)
        try:
            with self._using():
                pass
        except (OSError, sqlite3.Error) as error:
            # A full disk may have room again later; a folder that is not ours will not become so.
            if _named(error, _FORBIDDEN) or getattr(error, "errno", errno.ENOSPC) not in _FULL:
                message = f"the embedding cache {path} cannot be written: {error}; "
                raise DataError(
                    message + "give this user write access to the folder, or use another"
                ) from error
            _log.warning("the embedding cache %s cannot be used now: %s", path, error)

    def read(
        self, embedder: str, keys: Sequence[bytes], size: int
    ) -> dict[bytes, NDArray[np.float16]]:
        """Return those of some vectors that are there.

        Args:
            keys: hashes of texts, 1 to 10,000.

        Returns:
            Key -> (size,) float16, of the keys that are there.

        Raises:
            DataError: the file or one of these rows is damaged.
        """
        marks = ",".join("?" * len(keys))
        # As bytes, whatever a damaged row says it is.
        query = (
            "SELECT text, CAST(vector AS BLOB), crc FROM embedding WHERE embedder = ? AND text IN "
        )
        with self._using() as connection:
            rows = connection.execute(f"{query}({marks})", (embedder, *keys)).fetchall()
        return {key: self._checked(key, blob, crc, size) for key, blob, crc in rows}

    def write(self, embedder: str, vectors: Mapping[bytes, NDArray[np.float16]]) -> None:
        """Store vectors, all or none; what is there already stays.

        Raises:
            sqlite3.Error: the disk is full, or another process holds the write lock too long.
            DataError: the file is damaged.
        """
        blobs = {key: vector.astype("<f2").tobytes() for key, vector in vectors.items()}
        rows = [(embedder, key, blob, zlib.crc32(key + blob)) for key, blob in blobs.items()]
        with self._using() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR IGNORE INTO embedding VALUES (?, ?, ?, ?)", rows)
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file until the next use."""
        with self._lock:
            connection, self._open = self._open, None
            if connection is not None:
                connection.close()

    def before_fork(self) -> None:
        """Close the file and keep everybody out.

        SQLite keeps the locks of a file in the process's memory: a child that inherited them would
        believe to hold what only the parent holds.
        """
        self._lock.acquire()
        self.close()

    def after_fork_in_parent(self) -> None:
        """Let everybody in again."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin with a separate lock."""
        self._lock = threading.RLock()

    def _checked(self, key: bytes, blob: bytes, crc: int, size: int) -> NDArray[np.float16]:
        if len(blob) == 2 * size and zlib.crc32(key + blob) == crc:
            vector = np.frombuffer(blob, "<f2").astype(np.float16)
            if np.isfinite(vector).all():
                return vector
        raise self._damaged(
            f"a row of {len(blob)} bytes has a wrong length, checksum or value; "
            f"expected {2 * size} valid bytes"
        )

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection; whatever fails ends it, and with it the transaction."""
        with self._lock:
            try:
                if self._open is None:
                    self._open = _connected(self.path, self._max_pages)
                yield self._open
            except BaseException as error:
                self.close()
                if _named(error, _DAMAGE):
                    raise self._damaged(str(error)) from error
                raise

    def _damaged(self, why: str) -> DataError:
        # Not removed here: a wrong path in a setting must not cost somebody another file.
        return DataError(
            f"{self.path} is damaged, or is not an embedding cache: {why}; while unused, "
            f"delete it together with {self.path.name}-wal and {self.path.name}-shm: "
            "the embeddings will be computed again"
        )


def _connected(path: Path, max_pages: int) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # For this user alone; SQLite gives its journals the mode of the file. To open and close one
    # that is there would give up the locks of this process's other connections.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(f"PRAGMA max_page_count = {max_pages}")
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        connection.execute(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Changing the mode does not wait for other openers, whatever the timeout.
            if not _named(error, ("SQLITE_BUSY",)) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _named(error: BaseException, names: tuple[str, ...]) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(names)


_living: WeakSet[VectorFile] = WeakSet()
_held: list[VectorFile] = []


def _before_fork() -> None:
    _held.extend(_living)
    for file in _held:
        file.before_fork()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()


def _after_fork_in_child() -> None:
    while _held:
        _held.pop().after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
