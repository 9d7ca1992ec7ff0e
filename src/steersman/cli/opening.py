"""The store of a home, opened and left: whoever is the last to leave the embedded server stops it.

Every command that uses it holds a shared lock while it does, which ends with its process however
that ends. So a command that looked at a home before `up` ran there does not take the store away
from it; and a server whose command was killed is stopped by the next one that ends. A server that
no command started, but a program of somebody's own, is left to that.
"""

from __future__ import annotations

import os
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from typing import IO, TYPE_CHECKING

from steersman.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.store import Database

_held: dict[int, IO[str]] = {}
_NEXT = "the next one"


def open_store(home: Path, *, make: bool = False) -> Database:
    """Return the database of a home, whose embedded server is started if need be; `close` it.

    Args:
        home: directory of all state; ``DATABASE_URL`` names another server.
        make: whether an empty one is made where there is none: in a wrong directory it would be
            taken for the installation that is somewhere else.

    Raises:
        StoreError: there is none, or the server does not start.
    """
    # Only by who goes there; see `options`.
    from steersman.store import Database  # noqa: PLC0415

    if os.environ.get("DATABASE_URL"):
        return Database.open(home)
    if not make and not (home / "postgres" / "data").is_dir():
        message = f"there is no store in {home.absolute()}; name its home by --home or "
        message += "STEERSMAN_HOME, or make one: `steersman up`, `steersman doctor --migrate`"
        raise StoreError(message)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "postgres").mkdir(exist_ok=True, mode=0o700)
    use = (home / "postgres" / "users").open("a", encoding="utf-8")
    flock(use, LOCK_SH)  # before it is looked at: whoever stops it has the lock alone
    ours, run = _ours(home / "postgres"), _run_of(home / "postgres")
    if not run:
        ours.write_text(_NEXT, encoding="utf-8")
    try:
        database = Database.open(home)
    except BaseException as error:
        with use:
            if not run and isinstance(error, Exception):
                ours.unlink(missing_ok=True)
            elif not run:  # told to end while the server begins
                _leave(use, Database.open(home))
        raise
    if database.server is not None and database.server.started:
        ours.write_text(_run_of(database.server.home), encoding="utf-8")
    _held[id(database)] = use
    return database


def close(database: Database) -> None:
    """Leave a database: stop its embedded server if a command started it and nobody else uses it.

    Args:
        database: of `open_store`.
    """
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
    """Return the file that names the run of a server which a command started, or begins to."""
    return home / "run"


def _run_of(home: Path) -> str:
    """Return what tells one run of a server from every other: its process and when it began."""
    lines = _said(home / "data" / "postmaster.pid").splitlines()
    return f"{lines[0]} {lines[2]}" if len(lines) > 2 else ""


def _said(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
