"""Backup files: checksum and migration list, read before a restore."""

from __future__ import annotations

import os
import re
from hashlib import file_digest, sha256
from typing import TYPE_CHECKING

from steersman.errors import StoreError
from steersman.platform.postgres.programs import run

if TYPE_CHECKING:
    from pathlib import Path

_APPLIED = re.compile(r"^(\S+\.sql)\t\\\\x([0-9a-f]*)\t", re.MULTILINE)
_SEAL = b"\nsteersman: SHA-256 of what is before this line "
_CHUNK = 1 << 20
_WAY_OUT = "use a file written by `steersman backup`"


def seal(file: Path) -> int:
    """Append the hash of a dump to its file and flush it to disk.

    PostgreSQL checks the rows of a dump, but not its SQL. Its programs ignore data after the dump.

    Returns:
        File size in bytes.

    >>> from tempfile import NamedTemporaryFile
    >>> from pathlib import Path
    >>> with NamedTemporaryFile() as made:
    ...     size = seal(Path(made.name))
    ...     check_seal(Path(made.name))
    >>> size
    80
    """
    with file.open("r+b") as written:
        digest = file_digest(written, "sha256").digest()
        written.seek(0, os.SEEK_END)
        written.write(_SEAL + digest)
        written.flush()
        os.fsync(written.fileno())
        return os.fstat(written.fileno()).st_size


def check_seal(file: Path) -> None:
    """Check a dump against its hash; dumps of earlier versions have none.

    Raises:
        StoreError: the file cannot be read or was changed.
    """
    digest = sha256()
    try:
        with file.open("rb") as sealed:
            left = os.fstat(sealed.fileno()).st_size - len(_SEAL) - digest.digest_size
            sealed.seek(max(left, 0))
            end = sealed.read(len(_SEAL) + digest.digest_size)
            if not end.startswith(_SEAL):
                return
            sealed.seek(0)
            while left and (chunk := sealed.read(min(_CHUNK, left))):
                digest.update(chunk)
                left -= len(chunk)
    except OSError as error:
        message = f"cannot read {file}: {error.strerror}; {_WAY_OUT}"
        raise StoreError(message) from error
    if end != _SEAL + digest.digest():
        message = f"{file} is damaged: its SHA-256 differs from the recorded one; use another copy"
        raise StoreError(message)


async def migrations_of(file: Path) -> dict[str, bytes]:
    """Return the migrations applied in a backup.

    Raises:
        StoreError: the file cannot be read or is a dump of another database.
    """
    rows = ("--data-only", "--schema=steersman", "--table=migration", "--file=-")
    try:
        script = await run("pg_restore", *rows, str(file))
    except StoreError as error:
        message = f"{file} is not a readable backup: {error}; {_WAY_OUT}"
        raise StoreError(message) from error
    found = {name: bytes.fromhex(digest) for name, digest in _APPLIED.findall(script)}
    if not found:
        message = f"{file} is not a Steersman backup: it has no applied migrations; "
        raise StoreError(message + _WAY_OUT)
    return found
