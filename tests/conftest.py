"""What tests share: a PostgreSQL server per test process, fresh tenants, and tests that await.

Set ``STEERSMAN_TEST_DATABASE_URL`` to test against a server of your own, by a user that may make
databases and roles, on a server that lets roles in without a password; or
``STEERSMAN_TEST_POSTGRES=15`` for Debian's 15, the oldest that is supported. Without either an
embedded server is started in a temporary directory.
"""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from steersman.db.migrate import migrate
from steersman.db.tenants import Tenant, create_tenant
from steersman.platform.postgres.database import Database
from steersman.registry import keys as locking
from tests.clusters import MIGRATED, copy_cluster, execute, on, open_database, stopped_cluster
from tests.debian_15 import PROGRAMS, debian_15
from tests.kept import kept, run

if TYPE_CHECKING:
    from collections.abc import Iterator

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of our own in it
_ENOUGH = 6 << 30
"""Bytes: four test processes of some servers each."""


_SERVERS = {"database", "database_alone", "database_15"}
_SERVER_FOLDERS = {"cli", "client", "examples", "faults", "api"}
_OF_PROGRAMS = {"cli", "client", "deploy", "examples", "faults"}


def pytest_configure() -> None:
    """Let all that tests leave in temporary directories end with them, and lie in memory till then.

    Servers make and delete files by the thousand: on a disk, tests of the store take twice as long.
    ``TMPDIR`` names another place, ``--basetemp`` a directory of `tmp_path` that is kept.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # what the controlling process set holds
    in_memory = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ENOUGH
    where = _IN_MEMORY if in_memory and "TMPDIR" not in os.environ else None
    short = Path(tempfile.mkdtemp(prefix="st-", dir=where))  # sockets lie below: 107 bytes at most
    short.chmod(0o711)  # the server's user goes through
    tempfile.tempdir = os.environ["TMPDIR"] = str(short)
    # After multiprocessing's own directory below it, which goes at -100: it would miss it.
    Finalize(None, shutil.rmtree, [short], {"ignore_errors": True}, exitpriority=-200)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folders whose every test needs a server unread where none of them is wanted."""
    expression = config.getoption("markexpr")
    unwanted = "not server" in expression and " or " not in expression
    is_of_servers = (
        collection_path.name in _SERVER_FOLDERS and collection_path.parent == Path(__file__).parent
    )
    return True if unwanted and is_of_servers else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server, so that `make quick` can leave them out."""
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        if isinstance(item, pytest.Function) and hasattr(
            item, "callspec"
        ):  # fixtures named by a parameter
            asked |= {value for value in item.callspec.params.values() if isinstance(value, str)}
        if _SERVERS & asked or _SERVER_FOLDERS & set(item.path.parts):
            item.add_marker("server")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run ``async def`` tests, one after the other in the event loop of them all."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session", autouse=True)
def rounds() -> Iterator[int]:
    """Let passphrases open keys at once: 600,000 rounds each are a twentieth of all tests' time.

    Return how many the product takes; `tests/registry/test_keys.py` looks at a key with as many.
    """
    as_shipped = locking.ROUNDS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locking, "ROUNDS", 1_000)
        yield as_shipped


@pytest.fixture(scope="session")
def cluster() -> Path:
    """Return the data of a migrated server, to be copied into homes: see `clusters`."""
    return stopped_cluster()


@pytest.fixture(scope="session")
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Return a migrated database that this test process has for itself."""
    if url := os.environ.get("STEERSMAN_TEST_DATABASE_URL"):
        with _own_database(Database(url)) as made:
            yield made
    elif os.environ.get("STEERSMAN_TEST_POSTGRES") == "15":
        with _own_database(request.getfixturevalue("database_15")) as made:
            yield made
    else:
        with _embedded(request.getfixturevalue("cluster")) as made:
            yield made


@pytest.fixture(scope="module")
def database_alone(database: Database) -> Iterator[Database]:
    """Return a migrated database for one file: some commands and counts look at all tenants."""
    with _own_database(database) as made:
        yield made


@pytest.fixture
def tenant(database: Database) -> Tenant:
    """Return a new tenant of `database`, which nobody else knows."""
    return run(create_tenant(database, f"t-{uuid4().hex}", actor="test"))


@pytest.fixture(autouse=True)
def _no_work_of_others(request: pytest.FixtureRequest) -> None:
    """Leave learners nothing that other tests left: some wait until nothing at all is due.

    Where whole programs run, they learn on from test to test.
    """
    if "database" in request.fixturenames and not _OF_PROGRAMS & set(request.path.parts):
        run(_clear(request.getfixturevalue("database")))


async def _clear(database: Database) -> None:
    connection = await database.connect("worker")
    await connection.execute("DELETE FROM work")
    await connection.close()


@pytest.fixture(scope="session")
def database_15() -> Iterator[Database]:
    """Return a migrated database on Debian's PostgreSQL 15, the oldest that is supported."""
    if not (PROGRAMS / "initdb").exists():
        message = "no PostgreSQL 15 of Debian; `tools/postgres-15` installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with debian_15() as made:
        yield made


@contextmanager
def _embedded(cluster: Path) -> Iterator[Database]:
    # Not in pytest's own directory: pytest closes that to every other user, the server's too.
    home = Path(tempfile.mkdtemp(prefix="steersman-test-"))
    copy_cluster(cluster, home)
    made = open_database(home)
    try:
        with kept(made) as lent:
            yield lent
    finally:
        if made.server is not None:
            made.server.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _own_database(server: Database) -> Iterator[Database]:
    """Make a migrated database on a server that others use too, and drop it afterwards."""
    name = f"steersman_test_{uuid4().hex[:12]}"
    template = f" TEMPLATE {MIGRATED} STRATEGY file_copy" if server.server is not None else ""
    run(execute(server, f'CREATE DATABASE "{name}"{template}'))
    try:
        with kept(on(server, name)) as made:
            run(migrate(made))  # where there was a template, it looks and leaves all as it is
            yield made
    finally:
        run(execute(server, f'DROP DATABASE "{name}" WITH (FORCE)'))
