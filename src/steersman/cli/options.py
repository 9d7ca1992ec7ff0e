"""Options that several commands share, and access to the database.

The store is imported late: without it, a command that calls a service starts in a third of the
time.
"""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from steersman.cli.arguments import Folder
from steersman.cli.local_store import close, open_store
from steersman.errors import InputError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")

home_option = click.option(
    "--home",
    envvar="STEERSMAN_HOME",
    type=Folder(),
    default=Path(".steersman"),
    show_default=True,
    show_envvar=True,
    help="Directory of all state: database, keys, caches.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
ray_option = click.option(
    "--ray",
    "ray_address",
    metavar="ADDRESS",
    default=None,
    help="Run the work on the Ray cluster at ADDRESS: HOST:PORT, or auto on one of its nodes.",
)


def _checked_name(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001 (click's)
    """Refuse a name that would point to another folder of keys or registries."""
    from steersman.db.tenants import check_tenant_name  # noqa: PLC0415

    try:
        check_tenant_name(value)
    except InputError as error:
        raise click.BadParameter(str(error)) from None
    return value


tenant_option = click.option(
    "--tenant",
    "tenant_name",
    default="sample",
    show_default=True,
    callback=_checked_name,
    help="Tenant name.",
)


def _checked_host(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse an empty address, which would listen on every address."""
    if not value.strip():
        raise click.BadParameter(
            "must not be empty; use 0.0.0.0 to listen on every address", ctx, param
        )
    return value


host_option = click.option(
    "--host",
    callback=_checked_host,
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
port_option = click.option(
    "--port",
    default=8712,
    show_default=True,
    type=click.IntRange(0, 65_535),
    help="Port to listen on; 0 chooses a free port.",
)


def _checked_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return the URL without a slash at its end, so that paths can be appended."""
    try:
        parts = urlsplit(value)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise click.BadParameter(
            f"invalid URL {value!r}: expected http(s)://host[:port]", ctx, param
        )
    return value.rstrip("/")


url_option = click.option(
    "--url",
    callback=_checked_url,
    envvar="STEERSMAN_URL",
    show_envvar=True,
    default="http://127.0.0.1:8712",
    show_default=True,
    help="URL of the service.",
)
key_option = click.option(
    "--api-key",
    envvar="STEERSMAN_API_KEY",
    show_envvar=True,
    help="API key. Prefer the environment variable: other users can see command lines.",
)


def administers(command: F) -> F:
    """Add the options ``--home`` and ``--json`` to a command."""
    return home_option(json_option(command))


def url_of(host: str, port: int) -> str:
    """Return the URL of a service.

    >>> url_of("::1", 8712)
    'http://[::1]:8712'
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def actor() -> str:
    """Return the name that the audit log records for this user."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return "cli"


def run(work: Coroutine[Any, Any, T], by: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run) -> T:
    """Run a coroutine and turn database errors into `StoreError`.

    Raises:
        StoreError: the database reported an error; other errors pass through.
    """
    import asyncpg  # noqa: PLC0415

    try:
        return by(work)
    except asyncpg.UndefinedTableError as error:
        message = f"the database schema is missing or too old ({error}); run `steersman up` or "
        raise StoreError(message + "`steersman doctor --migrate`") from error
    except (
        *(asyncpg.PostgresError, asyncpg.InterfaceError),
        asyncpg.InternalClientError,  # raised while a connection is being lost
    ) as error:
        message = f"database error: {error}; run `steersman doctor` to check the database"
        raise StoreError(message) from error


def in_store(
    home: Path, work: Callable[[Database], Coroutine[Any, Any, T]], *, make: bool = False
) -> T:
    """Run work with the database of a home; start the embedded server if needed, then stop it.

    Args:
        make: whether to create an empty database if the home has none.

    Raises:
        StoreError: no database, or it does not start, answer or match this version.
    """
    database = open_store(home, make=make)
    try:
        return run(lending(database, work))
    finally:
        close(database)


async def lending(database: Database, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    """Run work with a database that reuses its connections; most commands take several."""
    from steersman.platform.postgres.idle_pool import LendingDatabase  # noqa: PLC0415

    lends = LendingDatabase(of=database)
    try:
        return await work(lends)
    finally:
        await lends.close()


def for_tenant(
    home: Path, name: str, work: Callable[[Database, Tenant], Coroutine[Any, Any, T]]
) -> T:
    """Run work like `in_store`, for the tenant with a name.

    Raises:
        StoreError: the tenant does not exist, or as `in_store`.
    """
    from steersman.db.tenants import find_tenant  # noqa: PLC0415

    async def found(database: Database) -> T:
        return await work(database, await find_tenant(database, name))

    return in_store(home, found)


async def find_point(database: Database, tenant: Tenant, skill: str, point: str) -> PointRow:
    """Return a decision point of a tenant as it is declared.

    Raises:
        StoreError: the point does not exist.
        SpecError: its declaration cannot be read.
    """
    from steersman.db.points import find_declared  # noqa: PLC0415
    from steersman.platform.postgres.database import as_tenant  # noqa: PLC0415

    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            row = await find_declared(connection, (tenant.id, skill, point))
    finally:
        await connection.close()
    if row is not None:
        return row
    message = f"not found: decision point {skill}/{point} of tenant {tenant.name}; "
    raise StoreError(message + f"`steersman tenant points {tenant.name}` lists the declared ones")
