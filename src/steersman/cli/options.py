"""Options that several commands take, and the way from a click command into the store.

The store is imported by who goes there: without it, a command that asks a service starts in a third
of the time.
"""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from steersman.cli.arguments import Folder
from steersman.cli.opening import close, open_store
from steersman.errors import InputError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from steersman.store import Database, PointRow, Tenant

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")

home_option = click.option(
    "--home",
    envvar="STEERSMAN_HOME",
    type=Folder(),
    default=Path(".steersman"),
    show_default=True,
    show_envvar=True,
    help="Directory of all state.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
ray_option = click.option(
    "--ray",
    "ray_address",
    metavar="ADDRESS",
    default=None,
    help="Spread the work over the Ray cluster at ADDRESS: auto on one of its nodes, or HOST:PORT.",
)


def _checked_name(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001 (click's)
    """Refuse a name that would be another folder's where keys and registries lie."""
    from steersman.store import check_tenant_name  # noqa: PLC0415

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
    help="Whose it is.",
)


def _checked_host(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse no address at all: it would be every one, of which nobody could be told."""
    if not value.strip():
        raise click.BadParameter("is empty; give 0.0.0.0 for every address", ctx, param)
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
    help="Port to listen on; 0: any that is free.",
)


def _checked_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return the address without the stroke at its end: paths are put behind it."""
    try:
        parts = urlsplit(value)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise click.BadParameter(f"{value!r} is no http(s)://host[:port]", ctx, param)
    return value.rstrip("/")


url_option = click.option(
    "--url",
    callback=_checked_url,
    envvar="STEERSMAN_URL",
    show_envvar=True,
    default="http://127.0.0.1:8712",
    show_default=True,
    help="Address of the service.",
)
key_option = click.option(
    "--api-key",
    envvar="STEERSMAN_API_KEY",
    show_envvar=True,
    help="Better in the environment, where other users of the machine do not see it.",
)


def administers(command: F) -> F:
    """Give a command what every administrative one takes: ``--home`` and ``--json``.

    Args:
        command: takes ``home`` and ``as_json``.

    Returns:
        The same command.
    """
    return home_option(json_option(command))


def url_of(host: str, port: int) -> str:
    """Return the address of a service.

    Args:
        host: address that it listens on.
        port: likewise.

    >>> url_of("::1", 8712)
    'http://[::1]:8712'
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def actor() -> str:
    """Return who acts, for the audit."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return "cli"


def run(work: Coroutine[Any, Any, T], by: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run) -> T:
    """Run something asynchronous to its end.

    Args:
        work: what to run.
        by: runs it; that of an ``asyncio.Runner`` where a connection is to be used again.

    Returns:
        What it returned.

    Raises:
        StoreError: the database refused it; every other error goes through as it is.
    """
    import asyncpg  # noqa: PLC0415

    try:
        return by(work)
    except asyncpg.UndefinedTableError as error:
        message = f"the database has no schema of this version ({error}); run `steersman up` or "
        raise StoreError(message + "`steersman doctor --migrate`") from error
    except (
        *(asyncpg.PostgresError, asyncpg.InterfaceError),
        asyncpg.InternalClientError,  # what is called while a connection is being lost
    ) as error:
        message = f"the database refused: {error}; `steersman doctor` tells whether it is sound"
        raise StoreError(message) from error


def in_store(
    home: Path, work: Callable[[Database], Coroutine[Any, Any, T]], *, make: bool = False
) -> T:
    """Run something over the database of a home, started if need be and stopped again then.

    Args:
        home: directory of all state.
        work: gets the database.
        make: whether an empty one is made where there is none.

    Returns:
        What it returned.

    Raises:
        StoreError: there is no database, or it does not start, answer or fit.
    """
    database = open_store(home, make=make)
    try:
        return run(lending(database, work))
    finally:
        close(database)


async def lending(database: Database, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    """Run something over a database that lends its connections again: most commands take several.

    Args:
        database: of `open_store`.
        work: gets it.

    Returns:
        What it returned.
    """
    from steersman.store import LendingDatabase  # noqa: PLC0415

    lends = LendingDatabase(of=database)
    try:
        return await work(lends)
    finally:
        await lends.close()


def for_tenant(
    home: Path, name: str, work: Callable[[Database, Tenant], Coroutine[Any, Any, T]]
) -> T:
    """Run something as `in_store`, for the tenant of a name.

    Args:
        home: directory of all state.
        name: of the tenant.
        work: gets the database and the tenant.

    Returns:
        What it returned.

    Raises:
        StoreError: there is no such tenant, or as `in_store`.
    """
    from steersman.store import find_tenant  # noqa: PLC0415

    async def found(database: Database) -> T:
        return await work(database, await find_tenant(database, name))

    return in_store(home, found)


async def find_point(database: Database, tenant: Tenant, skill: str, point: str) -> PointRow:
    """Return a decision point of a tenant.

    Args:
        database: migrated.
        tenant: whose.
        skill: the application capability.
        point: the decision point's name.

    Returns:
        The point as it is declared.

    Raises:
        StoreError: there is no such point.
        SpecError: its declaration cannot be read.
    """
    from steersman.store import as_tenant, find_declared  # noqa: PLC0415

    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            row = await find_declared(connection, (tenant.id, skill, point))
    finally:
        await connection.close()
    if row is not None:
        return row
    message = f"{tenant.name} has no decision point {skill}/{point}; "
    raise StoreError(message + f"`steersman tenant points {tenant.name}` shows those there are")
