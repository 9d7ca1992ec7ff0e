"""Where the rows are: a PostgreSQL server, its roles, and connections that act as one of them.

Two ways to a server and one code path: `DATABASE_URL` names one (15 or later), or the embedded one
of a home directory is started. Every connection takes on a role that row-level security binds; the
tenant is set per transaction (`as_tenant`), never for a session.
"""

from __future__ import annotations

import os
import re
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import asyncpg

from steersman.errors import StoreError
from steersman.store import embedded, known_types

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from uuid import UUID

    from asyncpg import Connection, Pool

Role = Literal["owner", "app", "worker"]
_OLDEST = 15
OF_SERVER = (
    *(asyncpg.PostgresError, asyncpg.InterfaceError),
    asyncpg.InternalClientError,  # what is called while a connection is being lost
)
"""What a server, and a connection to it that is lost, make of a call."""
AWAY = (*(OSError, TimeoutError), *OF_SERVER)
"""What a server that is gone, stopping or hanging makes of a call."""
_WAIT_FOR_DISK = """
SELECT set_config('synchronous_commit', 'local', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
_ROLE_MISSING = re.compile(r'role "steersman_\w+" does not exist')
_PASSWORD = re.compile(r"(?<=:)[^:@/]+(?=@)")
_NO_URL = (
    "invalid DATABASE_URL: expected postgresql://user:password@host:port/database; "
    "write @ : / ? # [ % in a password as %40 %3A %2F %3F %23 %5B %25"
)
_SCHEMES = ("postgresql:", "postgres:")


@dataclass(frozen=True, slots=True)
class Database:
    """A server, and how to connect to it.

    Attributes:
        url: of a user that may take on the three roles; secret, since it may hold a password.
        server: the embedded server, if it is one.
    """

    url: str = field(repr=False)
    server: embedded.Embedded | None = None

    @classmethod
    def open(cls, home: Path | None = None, url: str | None = None) -> Database:
        """Return the database to use, starting the embedded server if none is named.

        Args:
            home: the state directory; default: `state_home()`.
            url: of an external server; default: `DATABASE_URL`, and without it the embedded one.

        Returns:
            A database that answers; its schema may still be missing (`migrate`).

        Raises:
            StoreError: the embedded server does not start, or the URL is none of PostgreSQL's: who
                waits for a server to come back would wait for it for ever.
        """
        url = url or os.environ.get("DATABASE_URL")
        if url:
            if not url.lower().startswith(_SCHEMES):
                raise StoreError(_NO_URL)
            return cls(url)
        server = embedded.start((home or state_home()) / "postgres")
        return cls(server.url, server)

    async def connect(self, role: Role | None = "app", **options: Any) -> Connection[Any]:
        """Return a new connection that acts as a role.

        What it commits is on the server's disk then, even where the server's default is to answer
        before (``synchronous_commit = off``): what we answer as logged is a promise.

        Args:
            role: whose rights it has; None: those of the URL's own user, for migrations alone.
            **options: for ``asyncpg.connect``, such as ``timeout`` in seconds.

        Returns:
            A connection; JSON columns are Python values, and no tenant is set.

        Raises:
            StoreError: the URL is none, or the server does not answer, is too old, or lacks the
                roles.
        """
        with _told(role):
            connection = await asyncpg.connect(
                self.url,
                server_settings=_settings(role),
                timeout=options.pop("timeout", 10),
                **options,
            )
            await _prepare(connection)
        opened: Connection[Any] = connection
        return opened

    @asynccontextmanager
    async def connected(
        self, role: Role | None, what: str, way_out: str
    ) -> AsyncIterator[Connection[Any]]:
        """Lend a connection for one thing, and say in words if that ends with the connection.

        Args:
            role: as for `connect`.
            what: is done with it, to be told: "the export".
            way_out: likewise, what counts of it then and what to do next.

        Returns:
            A context, whose end closes the connection.

        Raises:
            StoreError: as `connect`; or the server was lost on the way, or refused something. Only
                tables that are not there, as before the first `migrate`, go through as they are.
        """
        connection = await self.connect(role)
        try:
            try:
                yield connection
            finally:
                await connection.close()
        except asyncpg.UndefinedTableError:
            raise
        except AWAY as error:
            raise StoreError(f"{what} stopped: {error}; {way_out}") from error

    async def pool(self, role: Role, *, least: int = 1, most: int = 4) -> Pool[Any]:
        """Return a pool of connections that act as a role.

        Args:
            role: whose rights they have.
            least: connections kept open.
            most: connections at a time.

        Returns:
            An open pool; close it.

        Raises:
            StoreError: as `connect`.
        """
        with _told(role):
            return await asyncpg.create_pool(
                self.url,
                min_size=least,
                max_size=most,
                init=_prepare,
                reset=reset,
                server_settings=_settings(role),
                timeout=10,
                command_timeout=60,
            )


@asynccontextmanager
async def as_tenant(connection: Any, tenant: UUID) -> AsyncIterator[None]:
    """Run a transaction as one tenant; afterwards the connection belongs to nobody again.

    Args:
        connection: of any role, not within a transaction.
        tenant: whose rows are seen and written.

    Returns:
        A context; its end commits, or rolls back on an exception.
    """
    async with connection.transaction():
        await set_tenant(connection, tenant)
        yield


async def set_tenant(connection: Any, tenant: UUID) -> None:
    """Set the tenant until the end of the transaction that is open.

    Args:
        connection: within a transaction.
        tenant: whose rows are seen and written.
    """
    await connection.execute("SELECT set_config('app.tenant', $1, true)", str(tenant))


def state_home() -> Path:
    """Return the directory for state: `STEERSMAN_HOME`, or `.steersman` in the working directory.

    Returns:
        An absolute path; nothing is made there yet.

    >>> os.environ["STEERSMAN_HOME"] = "/srv/steersman"
    >>> str(state_home())
    '/srv/steersman'
    >>> del os.environ["STEERSMAN_HOME"]
    """
    return Path(os.environ.get("STEERSMAN_HOME") or ".steersman").expanduser().absolute()


def _settings(role: Role | None) -> dict[str, str]:
    settings = {
        "application_name": "steersman",
        "search_path": "steersman, pg_temp",
        "timezone": "UTC",
        "jit": "off",  # plans here are small; compiling them would cost more than running them
        # Whatever the server's defaults are: who waited for a lock has to see what was committed
        # meanwhile, and numbers that are handed out as texts have to be whole.
        "default_transaction_isolation": "read committed",
        "extra_float_digits": "1",
    }
    if role is not None:
        settings["role"] = f"steersman_{role}"
    return settings


@contextmanager
def _told(role: Role | None) -> Iterator[None]:
    """Say of a server that cannot be had what to do next, and nothing of its password."""
    try:
        yield
    except AWAY as error:
        if isinstance(error, asyncpg.ClientConfigurationError) and "invalid DSN" in str(error):
            raise StoreError(_NO_URL) from None
        message = f"cannot connect to PostgreSQL as {role or 'the URL user'}: {error!r:.300}; "
        message += (
            "its schema does not exist; run `steersman doctor --migrate`"
            if _ROLE_MISSING.search(str(error))
            else "check DATABASE_URL and the server, or run `steersman doctor`"
        )
        raise StoreError(_PASSWORD.sub("***", message)) from error
    except (ValueError, IndexError):
        # What was taken for a port may be part of the password: none of it is told.
        raise StoreError(_NO_URL) from None


async def _prepare(connection: Connection[Any]) -> None:
    try:
        known_types.register(connection)
        await connection.execute(_WAIT_FOR_DISK)
        _refuse_old(connection.get_server_version().major)
    except BaseException:  # also where its caller stops waiting: nobody else would close it
        connection.terminate()
        raise


async def reset(connection: Connection[Any]) -> None:
    """Make a connection as it was, to be lent again: asyncpg's own way undoes what was set here.

    Args:
        connection: of `Database.connect` or a pool, not within a transaction.
    """
    await connection.execute(f"{connection.get_reset_query()};{_WAIT_FOR_DISK}")


def _refuse_old(version: int) -> None:
    if version < _OLDEST:
        raise StoreError(f"PostgreSQL {version} is too old; use {_OLDEST} or later")
