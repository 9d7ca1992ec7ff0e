"""Opening and closing the database of a home; the last command to leave stops the embedded server.

Each command holds a shared lock while it uses the server, and the lock ends with its process. So a
command that opened a home before `up` ran there does not stop the server of `up`. If a command was
killed, the next command that ends stops its server. A server that no command started keeps running.
"""

from __future__ import annotations

import os
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from typing import IO, TYPE_CHECKING

from steersman.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.platform.postgres.database import Database

_held: dict[int, IO[str]] = {}
_NEXT = "the next one"


def open_store(home: Path, *, make: bool = False) -> Database:
    """Open the database of a home, and start its embedded server if needed; then `close` it.

    Args:
        make: whether to create an empty database if the home has none. In a wrong directory, a new
            one would be mistaken for the existing installation.

    Raises:
        StoreError: no database, or the server does not start.
    """
    # Imported late; see `options`.
    from steersman.platform.postgres.database import Database  # noqa: PLC0415

    if os.environ.get("DATABASE_URL"):
        return Database.open(home)
    if not make and not (home / "postgres" / "data").is_dir():
        message = f"no store in {home.absolute()}; set --home or STEERSMAN_HOME to the right "
        message += "directory, or create one: `steersman up` or `steersman doctor --migrate`"
        raise StoreError(message)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "postgres").mkdir(exist_ok=True, mode=0o700)
    use = (home / "postgres" / "users").open("a", encoding="utf-8")
    flock(use, LOCK_SH)  # before reading its run: a command needs the exclusive lock to stop it
    ours, run = _ours(home / "postgres"), _run_of(home / "postgres")
    if not run:
        ours.write_text(_NEXT, encoding="utf-8")
    try:
        database = Database.open(home)
    except BaseException as error:
        with use:
            if not run and isinstance(error, Exception):
                ours.unlink(missing_ok=True)
            elif not run:  # a signal to end came while the server starts
                _leave(use, Database.open(home))
        raise
    if database.server is not None and database.server.started:
        ours.write_text(_run_of(database.server.home), encoding="utf-8")
    _held[id(database)] = use
    return database


def close(database: Database) -> None:
    """Close a database; stop its embedded server if a command started it and no other uses it."""
    use = _held.pop(id(database), None)
    if use is not None:
        with use:
            _leave(use, database)


def _leave(use: IO[str], database: Database) -> None:
    server = database.server
    if server is None:
        return
    run = _run_of(server.home)
    if not run or _said(_ours(server.home)) not in {run, _NEXT}:
        return
    try:
        flock(use, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return
    server.stop()


def _ours(home: Path) -> Path:
    """Return the file that names the run of a server that a command started or is starting."""
    return home / "run"


def _run_of(home: Path) -> str:
    """Return a unique name of a server's run: its process and start time."""
    lines = _said(home / "data" / "postmaster.pid").splitlines()
    return f"{lines[0]} {lines[2]}" if len(lines) > 2 else ""


def _said(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
