"""What the file of a backup says of itself, read before anything is changed by it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from steersman.errors import StoreError
from steersman.store.programs import run

if TYPE_CHECKING:
    from pathlib import Path

_APPLIED = re.compile(r"^(\S+\.sql)\t\\\\x([0-9a-f]*)\t", re.MULTILINE)
_WAY_OUT = "name a file that `backup` wrote"


async def migrations_of(file: Path) -> dict[str, bytes]:
    """Return the migrations that had been applied to what a backup holds.

    Args:
        file: of `backup`.

    Returns:
        The hash of each, by its name.

    Raises:
        StoreError: the file cannot be read, or is the dump of another database.

    No doctest: it runs a program; ``tests/store/test_backup.py`` shows it.
    """
    rows = ("--data-only", "--schema=steersman", "--table=migration", "--file=-")
    try:
        script = await run("pg_restore", *rows, str(file))
    except StoreError as error:
        message = f"{file} is no backup that can be read: {error}; {_WAY_OUT}"
        raise StoreError(message) from error
    found = {name: bytes.fromhex(digest) for name, digest in _APPLIED.findall(script)}
    if not found:
        message = f"{file} is no backup of Steersman: it holds no migration that was applied; "
        raise StoreError(message + _WAY_OUT)
    return found
