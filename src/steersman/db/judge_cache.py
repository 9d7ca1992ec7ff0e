"""Judge cache: model answers by content hash in SQLite, so that no request is paid twice."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import DataError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_log = logging.getLogger(__name__)
_PAGE = 4096
_BUSY_S = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answer(
    key BLOB PRIMARY KEY, text BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
"""
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_MISMATCH")
_FOR_NOW = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR")


class JudgeCache:
    """Answers in a SQLite file, by the hash of everything they depend on.

    Only hashes of prompts are stored; answers are readable only by this user. Threads and processes
    may share the file; a killed process loses no stored answers, a power failure at most the last
    ones. The first answer to a prompt is permanent, also an unusable one: to repeat the request,
    delete the file. A full cache stores no more answers, which is counted and logged once.

    Args:
        file: cache file; created with its folder.
        max_bytes: maximum file size in bytes, ≥ 65,536.

    Attributes:
        unstored: number of answers that could not be stored.

    Raises:
        InputError: `max_bytes` is too small.
        DataError: the file is damaged, not a judge cache, or not writable.
    """

    def __init__(self, file: Path, *, max_bytes: int = 1_000_000_000) -> None:
        if max_bytes < 16 * _PAGE:
            raise InputError(f"max_bytes is {max_bytes!r}; the minimum is {16 * _PAGE:,}")
        self.file = file
        self.unstored = 0
        self._max_pages = max_bytes // _PAGE
        self._lock = threading.Lock()
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # For this user only; SQLite journals inherit the file mode. Opening and closing an
            # existing file would release the locks of this process's other connections.
            with suppress(FileExistsError):
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with self._using() as connection:
                _write_ahead(connection)
                connection.execute(_SCHEMA)
            self._close_to_others()
        except (OSError, sqlite3.Error) as error:
            message = f"the judge cache {file} cannot be used: {error}"
            raise DataError(
                f"{message}; give this user write access to the folder, or use another"
            ) from error

    def get(self, key: bytes) -> str | None:
        """Return an answer, or None if it is not cached.

        Raises:
            DataError: the file or this row is damaged, or the file cannot be read.
        """
        row = self._row("SELECT CAST(text AS BLOB), crc FROM answer WHERE key = ?", key)
        if row is None:
            return None
        if zlib.crc32(key + row[0]) != row[1]:
            raise self._damaged("the checksum of an answer does not match")
        return bytes(row[0]).decode("utf-8", "surrogatepass")

    def put(self, key: bytes, text: str) -> str:
        """Store an answer unless one exists, and return the stored one.

        Raises:
            DataError: the file is damaged.
        """
        blob = text.encode("utf-8", "surrogatepass")
        try:
            with self._using() as connection:
                row = (key, blob, zlib.crc32(key + blob))
                connection.execute("INSERT OR IGNORE INTO answer VALUES (?, ?, ?)", row)
        except sqlite3.Error as error:
            self._tell(error)
            return text
        found = self.get(key)
        return text if found is None else found

    def __len__(self) -> int:
        (count,) = self._row("SELECT count(*) FROM answer") or (0,)
        return int(count)

    def _row(self, query: str, *values: bytes) -> tuple[Any, ...] | None:
        try:
            with self._using() as connection:
                row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
        except sqlite3.Error as error:
            message = f"the judge cache {self.file} cannot be read: {error}"
            raise DataError(f"{message}; judge without a cache, or use another file") from error
        return row

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        # A new connection per use: cheap beside a model call, and threads or forked
        # children do not share one.
        # Never created here: a deleted file would come back readable for everyone.
        there = f"{self.file.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(there, timeout=_BUSY_S, isolation_level=None, uri=True)
        try:
            connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
            connection.execute("PRAGMA synchronous = NORMAL")
            yield connection
        except sqlite3.Error as error:
            if _named(error, _DAMAGE):
                raise self._damaged(str(error)) from error
            raise
        finally:
            connection.close()

    def _close_to_others(self) -> None:
        """Remove permissions of other users from the file."""
        for end in ("", "-wal", "-shm"):
            beside = self.file.with_name(self.file.name + end)
            with suppress(FileNotFoundError):
                about = beside.stat()
                if about.st_mode & 0o077 and about.st_uid == os.geteuid():
                    beside.chmod(0o600)

    def _damaged(self, why: str) -> DataError:
        # Not deleted here: a wrong path in a setting must not destroy another file.
        return DataError(
            f"{self.file} is damaged, or is not a judge cache: {why}; while no process uses it, "
            f"delete it together with {self.file.name}-wal and {self.file.name}-shm; its answers "
            "must be requested and paid again"
        )

    def _tell(self, error: sqlite3.Error) -> None:
        with self._lock:
            self.unstored += 1
            first = self.unstored == 1
        if not _named(error, _FOR_NOW):
            raise DataError(f"the judge cache {self.file} cannot be written: {error}") from error
        if first:
            message = "cannot store judge answers in %s now; they must be paid again next time: %s"
            _log.warning(message, self.file, error)


def key_of(backend: str, prompt: str, max_tokens: int, version: str) -> bytes:
    """Return the SHA-256 of everything that an answer depends on.

    >>> key_of("a", "b", 1, "1").hex()[:16]
    '9eea9b372dbdf55a'
    """
    parts = msgspec.json.encode([version, max_tokens, len(backend.encode())])
    # The backend refuses lone surrogates, as it does without a cache.
    asked = prompt.encode("utf-8", "surrogatepass")
    return hashlib.sha256(parts + b"\n" + backend.encode() + asked).digest()


def _write_ahead(connection: sqlite3.Connection) -> None:
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # A change of the journal mode does not wait for other connections, despite the timeout.
            if not _named(error, ("SQLITE_BUSY",)) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _named(error: BaseException, names: tuple[str, ...]) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(names)
