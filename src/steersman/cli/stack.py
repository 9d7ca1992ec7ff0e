"""All processes of one machine: store, service, learner, controller and janitor.

`prepare` sets up a home directory; the commands `up` and `demo` then run the processes.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from importlib.util import find_spec
from typing import TYPE_CHECKING

import urllib3

from steersman.cli.options import actor, lending
from steersman.cli.supervisor import Child
from steersman.db.declarations import declare
from steersman.db.keys import create_key, list_keys
from steersman.db.migrate import migrate
from steersman.db.points import find_declared
from steersman.db.secret import load_secret
from steersman.db.tenants import create_tenant, list_tenants
from steersman.errors import StoreError
from steersman.platform.postgres.database import as_tenant
from steersman.spec.loader import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

KEY_NAME = "made by steersman up"
_SCOPES = ("decide", "events", "read")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A home directory that is ready to serve.

    Attributes:
        tenant: the first tenant.
        points: its declared decision points.
        key: text of its new API key; None: the tenant had a key.
        migrations: names of the migrations that were applied.
        renewed: points that lost what they had learned, because this version encodes their
            contexts differently.
    """

    tenant: Tenant
    points: tuple[PointRow, ...]
    key: str | None
    migrations: tuple[str, ...]
    renewed: tuple[PointRow, ...]


async def prepare(
    database: Database, home: Path, tenant_name: str, documents: Sequence[str]
) -> Prepared:
    """Migrate the schema; create the tenant, its decision points and its API key if absent.

    `documents` are the tenant's declarations in YAML. A document is declared only if the point is
    new, or if its contexts are encoded differently by this version. Points that were changed by
    hand or by a promotion stay as they are.

    Raises:
        StoreError: the database refuses.
        SpecError: a declaration is invalid.
        RolloutError: a point must restart from nothing, but has an active rollout.
    """
    return await lending(database, lambda lends: _prepared(lends, home, tenant_name, documents))


async def _prepared(
    database: Database, home: Path, tenant_name: str, documents: Sequence[str]
) -> Prepared:
    migrations = await migrate(database)
    known = {tenant.name: tenant for tenant in await list_tenants(database)}
    tenant = known.get(tenant_name)
    if tenant is None:
        tenant = await create_tenant(database, tenant_name, actor=actor())
    rows = [await _declared(database, tenant, text) for text in documents]
    points = tuple(row for row, _ in rows)
    renewed = tuple(row for row, begins_anew in rows if begins_anew)
    key = None
    if not await list_keys(database, tenant.id):
        _, key = await create_key(
            database,
            tenant.id,
            secret=load_secret(home),
            name=KEY_NAME,
            actor=actor(),
            scopes=_SCOPES,
        )
    return Prepared(tenant, points, key, tuple(migrations), renewed)


async def _declared(database: Database, tenant: Tenant, document: str) -> tuple[PointRow, bool]:
    """Return the declared point, and whether it lost what it had learned."""
    spec = loads(document, source="declaration")
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            row = await find_declared(connection, (tenant.id, spec.skill, spec.decision))
    finally:
        await connection.close()
    if row is not None and row.spec_hash.hex() != spec.spec_hash:
        return row, False
    declared = await declare(database, tenant.id, document, actor=actor())
    return declared, row is not None and declared.snapshot != row.snapshot


def service_child(
    home: Path, host: str, port: int, *, processes: int = 1, name: str = "service"
) -> Child:
    """Return the child that serves on one port; `processes` share it."""
    listening = ["--host", host, "--port", str(port), "--processes", str(processes)]
    return Child(name, ["serve", "--home", str(home), *listening], stops_first=True)


def learner_child(home: Path) -> Child:
    """Return the child that learns."""
    return Child("learner", ["learn", "run", "--home", str(home)])


def controller_child(home: Path) -> Child:
    """Return the child that controls rollouts and publishes snapshots."""
    return Child("controller", ["rollout", "run", "--home", str(home)])


def janitor_child(home: Path, cold: str | None) -> Child:
    """Return the janitor: it creates partitions and compacts old days.

    `cold` is a directory or an S3 URL; None: a directory in the home directory.
    """
    where = ["--cold", cold] if cold else []
    return Child("janitor", ["data", "keep", "--home", str(home), *where])


def wait_until_ready(
    urls: Sequence[str], alive: Callable[[], bool], logs: Path, *, within_s: float = 60.0
) -> None:
    """Wait until every URL is ready, or until `alive` returns False.

    Raises:
        StoreError: a service is not ready within `within_s` seconds; the message quotes its log.
    """
    deadline = time.monotonic() + within_s
    with urllib3.PoolManager(retries=False, timeout=2.0) as pool:
        for url in urls:
            while not _is_ready(pool, url):
                if not alive():
                    return
                if time.monotonic() > deadline:
                    raise StoreError(f"{url} did not become ready; {_tail(logs)}")
                time.sleep(0.05)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port of an address.

    Raises:
        StoreError: this machine does not have the address.
    """
    with _bound(host, 0) as probe:
        port: int = probe.getsockname()[1]
        return port


def check_port(host: str, port: int) -> None:
    """Refuse a port in use: a second service would take a share of its requests.

    Raises:
        StoreError: the port is in use, or this user may not listen on it.
    """
    _bound(host, port).close()


def _bound(host: str, port: int) -> socket.socket:
    probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    # As a server that was just stopped leaves it behind; it is free all the same.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        probe.close()
        why = getattr(error, "strerror", None) or error
        message = f"cannot listen on {host}:{port}: {why}; choose another --host or --port"
        raise StoreError(message) from error
    return probe


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Lock a home directory, so that only one process runs it. Create it if it does not exist.

    Raises:
        StoreError: another process holds the lock.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home / "up.lock").open("a+") as handle:
        try:
            flock(handle, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            message = f"{home} is in use by process {handle.read().strip() or 'unknown'}; "
            raise StoreError(message + "stop this process, or choose another --home") from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def can_compact() -> bool:
    """Return whether the extra ``[data]`` is installed."""
    return all(find_spec(name) is not None for name in ("duckdb", "pyarrow"))


def _is_ready(pool: urllib3.PoolManager, url: str) -> bool:
    try:
        return pool.request("GET", f"{url}/readyz").status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _tail(logs: Path) -> str:
    files = sorted({*logs.glob("service.log"), *logs.glob("service-*.log")})
    texts = [file.read_text(encoding="utf-8", errors="replace")[-800:].strip() for file in files]
    said = next((text for text in texts if text), "its log is empty")
    return f"the end of its log in {logs}:\n{said}"
