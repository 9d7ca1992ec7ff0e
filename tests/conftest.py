"""Shared fixtures: a PostgreSQL server per test process, new tenants, and async tests.

``STEERSMAN_TEST_DATABASE_URL`` selects an existing server. Its user must be able to create
databases and roles, and roles must log in without a password. ``STEERSMAN_TEST_POSTGRES=15``
selects Debian's 15, the oldest supported version. The default is an embedded server in a temporary
directory.
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
from tests.nightly import nightly

if TYPE_CHECKING:
    from collections.abc import Iterator

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of our own in it
_ENOUGH = 6 << 30
"""Bytes needed for four test processes with some servers each."""


_SERVERS = {"database", "database_alone", "database_15"}
_SERVER_FOLDERS = {"cli", "client", "examples", "faults", "api"}
_OF_PROGRAMS = {"cli", "client", "deploy", "examples", "faults"}


def pytest_configure() -> None:
    """Put temporary directories in memory and delete them after the tests.

    Servers create and delete thousands of files: on a disk, tests of the store take twice as long.
    ``TMPDIR`` sets another folder, ``--basetemp`` a folder of `tmp_path` that is kept.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # set by the controller process
    in_memory = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ENOUGH
    where = _IN_MEMORY if in_memory and "TMPDIR" not in os.environ else None
    short = Path(tempfile.mkdtemp(prefix="st-", dir=where))  # socket paths are limited to 107 bytes
    short.chmod(0o711)  # the server's user needs access
    tempfile.tempdir = os.environ["TMPDIR"] = str(short)
    # After multiprocessing has removed its directory inside, at priority -100.
    Finalize(None, shutil.rmtree, [short], {"ignore_errors": True}, exitpriority=-200)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip folders in which every test needs a server, if these tests are deselected."""
    expression = config.getoption("markexpr")
    unwanted = "not server" in expression and " or " not in expression
    is_of_servers = (
        collection_path.name in _SERVER_FOLDERS and collection_path.parent == Path(__file__).parent
    )
    return True if unwanted and is_of_servers else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server, so that `make quick` can skip them."""
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        if isinstance(item, pytest.Function) and hasattr(
            item, "callspec"
        ):  # fixtures requested by a parameter
            asked |= {value for value in item.callspec.params.values() if isinstance(value, str)}
        if _SERVERS & asked or _SERVER_FOLDERS & set(item.path.parts):
            item.add_marker("server")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that only the nightly run has time for, before its fixtures are set up."""
    if item.get_closest_marker("nightly") and not nightly():
        pytest.skip("runs in `make nightly`")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run ``async def`` tests in a shared event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session", autouse=True)
def rounds() -> Iterator[int]:
    """Reduce the key derivation rounds: 600,000 per key take a twentieth of all tests' time.

    Return the product's number, which `tests/registry/test_keys.py` tests.
    """
    as_shipped = locking.ROUNDS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locking, "ROUNDS", 1_000)
        yield as_shipped


@pytest.fixture(scope="session")
def cluster() -> Path:
    """Return the data of a migrated server, to copy into homes: see `clusters`."""
    return stopped_cluster()


@pytest.fixture(scope="session")
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Return a migrated database of this test process."""
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
    """Return a migrated database for one file, for commands and counts over all tenants."""
    with _own_database(database) as made:
        yield made


@pytest.fixture
def tenant(database: Database) -> Tenant:
    """Return a new tenant of `database`."""
    return run(create_tenant(database, f"t-{uuid4().hex}", actor="test"))


@pytest.fixture(autouse=True)
def _no_work_of_others(request: pytest.FixtureRequest) -> None:
    """Finish the due learning work of earlier tests, because some tests wait until none is due.

    Where whole programs run, they go on learning between tests.
    """
    if "database" in request.fixturenames and not _OF_PROGRAMS & set(request.path.parts):
        run(_clear(request.getfixturevalue("database")))


async def _clear(database: Database) -> None:
    connection = await database.connect("worker")
    await connection.execute("DELETE FROM work")
    await connection.close()


@pytest.fixture(scope="session")
def database_15() -> Iterator[Database]:
    """Return a migrated database on Debian's PostgreSQL 15, the oldest supported version."""
    if not (PROGRAMS / "initdb").exists():
        message = "no PostgreSQL 15 of Debian; `tools/postgres-15` installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with debian_15() as made:
        yield made


@contextmanager
def _embedded(cluster: Path) -> Iterator[Database]:
    # Not in pytest's directory, which the server's user cannot access.
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
    """Create a migrated database on a shared server, and drop it afterwards."""
    name = f"steersman_test_{uuid4().hex[:12]}"
    template = f" TEMPLATE {MIGRATED} STRATEGY file_copy" if server.server is not None else ""
    run(execute(server, f'CREATE DATABASE "{name}"{template}'))
    try:
        with kept(on(server, name)) as made:
            run(migrate(made))  # after a copy of the template this changes nothing
            yield made
    finally:
        run(execute(server, f'DROP DATABASE "{name}" WITH (FORCE)'))
