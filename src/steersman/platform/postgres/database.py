"""Database connections: a PostgreSQL server, its roles and tenant transactions.

`DATABASE_URL` names a server (version 15 or later); otherwise the embedded server of a home
directory is started. Each connection acts as one role under row-level security. The tenant is set
per transaction (`as_tenant`), never per session.
"""

from __future__ import annotations

import os
import re
import time
from array import array
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import asyncpg

from steersman.errors import StoreError
from steersman.platform.breaker import Breaker
from steersman.platform.postgres import codecs, embedded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from datetime import datetime
    from uuid import UUID

    from asyncpg import Connection, Pool

    Worker = Literal["learner", "controller", "publisher"]
    from collections.abc import Mapping

MOST_BYTES = 256 << 20
_PAGE = 100
_NAME = 100  # approximate bytes of a name in a list


async def newest_rows(
    connection: Any, query: str, *arguments: Any, most_bytes: int = MOST_BYTES
) -> list[tuple[Any, ...]]:
    """Return decision rows within a memory limit, oldest first.

    Args:
        most_bytes: approximate limit for features and steps in bytes; the newest row is
            always included.

    Returns:
        The columns of each row; features as float32.
    """
    found: list[tuple[Any, ...]] = []
    held = 0
    async for row in connection.cursor(query, *arguments, prefetch=_PAGE):
        held += _size(row)
        if found and held > most_bytes:
            break
        found.append(tuple(_small(name, value) for name, value in row.items()))
    found.reverse()
    return found


def _small(name: str, value: Any) -> Any:
    return array("f", value) if name == "features" and value is not None else value


def _size(row: Mapping[str, Any]) -> int:
    features, steps = row.get("features"), row.get("steps")
    return 4 * len(features or ()) + _NAME * sum(len(one["eligible"]) for one in steps or ())


_WITH_TRANSACTION_TIMEOUT = 17
_LEASES = 6
"""Maximum duration of a transaction, far longer than a batch."""

_END_UNFINISHED = """
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = session_user
  AND application_name = current_setting('application_name') AND pid <> pg_backend_pid()
  AND state = 'active' AND wait_event = 'ClientRead'
  AND state_change < clock_timestamp() - make_interval(secs => $1)
"""


async def work_under_lease(connection: Any, worker: Worker, lease_s: float) -> None:
    """Name a session and limit its open transactions by its lease.

    Args:
        lease_s: lease in seconds, above 0.
    """
    lease_ms = round(lease_s * 1000)
    await connection.execute(f"SET application_name = 'steersman {worker}'")
    await connection.execute(f"SET idle_in_transaction_session_timeout = {lease_ms}")
    if not _is_old(connection):
        await connection.execute(f"SET transaction_timeout = {_LEASES * lease_ms}")
    await connection.execute(f"SET lock_timeout = {max(1, lease_ms // 4)}")


async def end_unfinished(connection: Any, lease_s: float) -> int:
    """End sessions of the same work that stopped within a statement; does nothing from 17 on.

    Args:
        lease_s: lease of this work in seconds.
    """
    if not _is_old(connection):
        return 0
    async with connection.transaction():
        # A user can see and end its own sessions; the current role does not matter.
        await connection.execute("SET LOCAL ROLE NONE")
        ended: int = await connection.fetchval(_END_UNFINISHED, _LEASES * lease_s)
    return ended


async def plan_by_index(connection: Any) -> None:
    """Make a session plan index look-ups, because tables empty at planning time soon grow."""
    for method in ("seqscan", "hashjoin", "mergejoin"):
        await connection.execute(f"SET enable_{method} = off")


async def ping(pool: Any, timeout_s: float) -> None:
    """Run a statement on a pool, to see whether the server responds."""
    await pool.fetchval("SELECT 1", timeout=timeout_s)


async def setting(connection: Any, name: str) -> str:
    """Return a setting of the server."""
    value: str = await connection.fetchval(f"SHOW {name}")
    return value


async def server_time(connection: Any) -> datetime:
    """Return the server's clock, which does not stand still within a transaction."""
    now: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return now


async def allow_long(connection: Any) -> None:
    """Remove the time limit of the current transaction, except for idling."""
    if not _is_old(connection):
        await connection.execute("SET LOCAL transaction_timeout = 0")


def _is_old(connection: Any) -> bool:
    major: int = connection.get_server_version().major
    return major < _WITH_TRANSACTION_TIMEOUT


Role = Literal["owner", "app", "worker"]
_OLDEST = 15
OF_SERVER = (
    *(asyncpg.PostgresError, asyncpg.InterfaceError),
    asyncpg.InternalClientError,  # raised while a connection is being lost
)
"""Errors of a server or of a lost connection."""
AWAY = (*(OSError, TimeoutError), *OF_SERVER)
"""Errors of an unavailable, stopping or hanging server."""
_OUTAGES = ("08", "25006", "53", "57", "58", "XX")
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


def store_is_away(error: BaseException) -> bool:
    """Return whether an error means that the database is unreachable.

    >>> store_is_away(ConnectionRefusedError()), store_is_away(ValueError())
    (True, False)
    """
    if isinstance(error, StoreError):
        # `Database.connect` sets the cause; a StoreError about rows has none.
        return error.__cause__ is not None and store_is_away(error.__cause__)
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "XX").startswith(_OUTAGES)
    return isinstance(error, AWAY)


def store_breaker(
    clock: Callable[[], float] = time.monotonic,
    *,
    failures: int = 5,
    open_s: float = 2.0,
    timeout_s: float = 5.0,
) -> Breaker:
    """Return a circuit breaker for the database; only outages count as failures.

    Args:
        clock: monotonic time in seconds.
        failures: consecutive failures that open the breaker.
        open_s: pause in seconds.
        timeout_s: timeout of one call in seconds.
    """
    return Breaker(
        "store",
        clock,
        is_broken=store_is_away,
        failures=failures,
        open_s=open_s,
        timeout_s=timeout_s,
    )


@dataclass(frozen=True, slots=True)
class Database:
    """PostgreSQL server and its connection settings.

    Attributes:
        url: URL of a user that may act as the three roles; secret, because it can have a
            password.
        server: the embedded server; None for an external one.
    """

    url: str = field(repr=False)
    server: embedded.EmbeddedServer | None = None

    @classmethod
    def open(cls, home: Path | None = None, url: str | None = None) -> Database:
        """Return the database to use; start the embedded server if no URL is given.

        Args:
            home: state directory; default: `state_home()`.
            url: URL of an external server; default: `DATABASE_URL`, else the embedded server.

        Raises:
            StoreError: the embedded server does not start, or the URL is not a PostgreSQL URL.
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

        Commits are flushed to disk even if the server's default is ``synchronous_commit = off``,
        because ``logged: true`` is a promise.

        Args:
            role: role; None: the URL's user, only for migrations.
            **options: options of ``asyncpg.connect``, such as ``timeout`` in seconds.

        Raises:
            StoreError: the URL is invalid, or the server is unreachable, too old or without the
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
        """Open a connection for one operation, and explain the loss of it.

        Raises:
            StoreError: as `connect`; or the connection was lost or the server rejected
                something. Missing tables (before `migrate`) raise the original error.
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
    """Run a transaction as one tenant; afterwards the connection has no tenant."""
    async with connection.transaction():
        await set_tenant(connection, tenant)
        yield


async def set_tenant(connection: Any, tenant: UUID) -> None:
    """Set the tenant until the end of the open transaction."""
    await connection.execute("SELECT set_config('app.tenant', $1, true)", str(tenant))


def state_home() -> Path:
    """Return the directory for state: `STEERSMAN_HOME`, or `.steersman` in the working directory.

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
        "jit": "off",  # plans are small; JIT costs more than execution
        # Independent of server defaults: after a lock wait, a statement must see later commits,
        # and numbers sent as text must keep full precision.
        "default_transaction_isolation": "read committed",
        "extra_float_digits": "1",
    }
    if role is not None:
        settings["role"] = f"steersman_{role}"
    return settings


@contextmanager
def _told(role: Role | None) -> Iterator[None]:
    """Explain a connection failure and what to do next, without the password."""
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
        # The parsed port may be part of the password, so it is not shown.
        raise StoreError(_NO_URL) from None


async def _prepare(connection: Connection[Any]) -> None:
    try:
        codecs.register(connection)
        await connection.execute(_WAIT_FOR_DISK)
        _refuse_old(connection.get_server_version().major)
    except BaseException:  # also on cancellation, to avoid a leak
        connection.terminate()
        raise


async def reset(connection: Connection[Any]) -> None:
    """Reset a connection for reuse; asyncpg's own reset would undo our settings."""
    await connection.execute(f"{connection.get_reset_query()};{_WAIT_FOR_DISK}")


def _refuse_old(version: int) -> None:
    if version < _OLDEST:
        raise StoreError(f"PostgreSQL {version} is too old; use {_OLDEST} or later")
