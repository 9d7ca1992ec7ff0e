"""PostgreSQL 15 as Debian ships it, the oldest that is supported, reached by a socket alone."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.db.migrate import migrate
from steersman.platform.postgres.database import Database
from tests.clusters import made_once

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = Path("/usr/lib/postgresql/15/bin")


@contextmanager
def debian_15() -> Iterator[Database]:
    """Run a server on a copy of migrated data."""
    cluster = made_once("cluster-15", _make)
    home = Path(tempfile.mkdtemp(prefix="steersman-15-"))
    copy = ["cp", "-a", f"{cluster}/.", home]  # with its owner and rights
    subprocess.run(copy, check=True)
    try:
        with _running(home) as database:
            yield database
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _make(home: Path) -> None:
    data = home / "data"
    data.mkdir(parents=True)
    for path in (home, data):
        os.chown(path, _owner().pw_uid, _owner().pw_gid)
    options = ("--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "-U", "postgres")
    _run(home, "initdb", *options)
    with _running(home) as database:
        asyncio.run(migrate(database))


@contextmanager
def _running(home: Path) -> Iterator[Database]:
    settings = f"-k {home} -c listen_addresses='' -c timezone=UTC -c fsync=off"
    _run(home, "pg_ctl", "-w", "-l", str(home / "log"), "-o", settings, "start")
    try:
        yield Database(f"postgresql://postgres@/postgres?host={home}")
    finally:
        _run(home, "pg_ctl", "-w", "-m", "fast", "stop")


def _run(home: Path, program: str, *arguments: str) -> None:
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": _owner().pw_uid, "group": _owner().pw_gid, "extra_groups": []}
    command = [PROGRAMS / program, "-D", home / "data", *arguments]
    with (home / "said").open("ab") as said:
        subprocess.run(command, check=True, cwd="/", stdout=said, stderr=said, **user)


def _owner() -> pwd.struct_passwd:
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
