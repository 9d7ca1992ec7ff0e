"""PostgreSQL pipeline mode: sends requests before earlier ones are answered.

asyncpg waits for every answer, which leaves the server idle for a tenth of its time under load.
Here asyncpg only connects. Then this module executes one prepared statement, each time in its own
transaction, answered in order. It uses asyncpg's transport through a private interface: measured,
92,000 events a second become 109,000. Lock files pin asyncpg's version and
``tests/db/test_pipeline.py`` checks the interface.
"""

from __future__ import annotations

import asyncio
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.platform.postgres.database import Database

Row = tuple[bytes | None, ...]
"""A row of an answer: the bytes of each column in PostgreSQL's binary format, or None."""

_NAME = b"pipeline\0"
_SIZE = Struct(">I")
_SHORT = Struct(">H")
_LENGTH = Struct(">i")
_ALL_BINARY = b"\0\1\0\1"  # one format for all parameters: binary
_EXECUTE_AND_SYNC = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\4"
_GOODBYE = b"X\0\0\0\4"
_NOTHING_TO_US = frozenset(b"12CnINSA")  # done, nothing, notices, settings, notifications
_FIELD = 5  # message type and length
_LOCK_MS = 500


class Pipeline(asyncio.Protocol):
    """Connection of role app that executes one statement.

    Args:
        connection: asyncpg connection, used by the pipeline only.
        element: id of the row type.
    """

    def __init__(self, connection: Any, element: int) -> None:
        self.element = element
        self._connection = connection
        self._former = connection._protocol  # noqa: SLF001 (see above)
        self._transport: asyncio.Transport = connection._transport  # noqa: SLF001
        self._loop = asyncio.get_running_loop()
        self._asked: deque[asyncio.Future[list[Row]]] = deque()
        self._came = bytearray()
        self._rows: list[Row] = []
        self._error: Exception | None = None
        self._closing = False
        self._lost = self._loop.create_future()
        self._transport.set_protocol(self)

    @classmethod
    async def open(
        cls, database: Database, statement: str, *, row_type: str, limit_s: float = 15.0
    ) -> Pipeline:
        """Return a new pipeline.

        An execution that waits half a second for a lock fails (`asyncpg.LockNotAvailableError`),
        because all later ones wait for it.

        Raises:
            StoreError: the database is unreachable.
            PostgresError: the statement is invalid.
        """
        connection = await database.connect("app")
        try:
            element = await connection.fetchval(
                "SELECT oid::int8 FROM pg_type WHERE typrelid = to_regclass($1)", row_type
            )
            await connection.execute(
                f"SET statement_timeout = {int(limit_s * 1000)}; SET lock_timeout = {_LOCK_MS}"
            )
            pipeline = cls(connection, element)
            await pipeline._prepare(statement)
        except BaseException:  # also on cancellation, to avoid a leak
            connection.terminate()
            raise
        return pipeline

    async def _prepare(self, statement: str) -> None:
        await self._send(_message(b"P", _NAME, statement.encode(), b"\0\0\0"), b"S\0\0\0\4")

    def ask(self, parameters: Sequence[bytes]) -> asyncio.Future[list[Row]]:
        """Execute the statement after all earlier requests.

        Args:
            parameters: parameters in PostgreSQL's binary format, at most 65,535.
        """
        values = [_SHORT.pack(len(parameters))]
        for parameter in parameters:
            values += (_LENGTH.pack(len(parameter)), parameter)
        bind = _message(b"B", b"\0", _NAME, _ALL_BINARY, *values, _ALL_BINARY)
        return self._send(bind, _EXECUTE_AND_SYNC)

    def _send(self, *messages: bytes) -> asyncio.Future[list[Row]]:
        future: asyncio.Future[list[Row]] = self._loop.create_future()
        if self.is_closed():
            future.set_exception(ConnectionResetError("the connection to the server is closed"))
            return future
        together = b"".join(messages)
        self._asked.append(future)
        try:
            self._transport.write(together)
        except BaseException:  # one answer less will come
            self.terminate()
            raise
        return future

    def is_closed(self) -> bool:
        """Return whether the pipeline is closed."""
        return self._closing or self._lost.done()

    async def close(self, *, timeout: float = 10.0) -> None:  # noqa: ASYNC109 (as asyncpg's)
        """Close the connection after all earlier requests are done.

        Args:
            timeout: time limit in seconds.

        Raises:
            TimeoutError: it is still busy; call `terminate`.
        """
        if not self.is_closed():
            self._transport.write(_GOODBYE)
        self._closing = True
        async with asyncio.timeout(timeout):
            await asyncio.shield(self._lost)

    def terminate(self) -> None:
        """Close the connection at once."""
        self._closing = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse server messages; called by the event loop."""
        self._came += data
        at, length = 0, len(self._came)
        try:
            while length - at >= _FIELD:
                end = at + 1 + _SIZE.unpack_from(self._came, at + 1)[0]
                if end > length:
                    break
                self._hear(self._came[at], bytes(self._came[at + _FIELD : end]))
                at = end
        except Exception as error:  # noqa: BLE001 (passed to the waiters)
            # Answers can no longer be matched to requests.
            self._error = asyncpg.InternalClientError(
                f"unexpected reply from the server: {error!r}"
            )
            self.terminate()
        del self._came[:at]

    def _hear(self, kind: int, body: bytes) -> None:
        if kind == ord("D"):
            self._rows.append(_columns(body))
        elif kind == ord("E"):
            self._error = _error(body)
        elif kind == ord("Z"):
            self._settle()
        elif kind not in _NOTHING_TO_US:
            raise ValueError(f"message type {chr(kind)!r}")

    def _settle(self) -> None:
        future = self._asked.popleft()
        rows, error = self._rows, self._error
        self._rows, self._error = [], None
        if isinstance(error, asyncpg.InvalidCachedStatementError):
            # A migration replaced the function: the next caller reconnects and prepares again.
            error = ConnectionResetError(f"the prepared statement became invalid: {error}")
            self.terminate()
        if future.done():  # the waiter is gone
            return
        if error is None:
            future.set_result(rows)
        else:
            future.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all waiting requests; called by the event loop."""
        error = self._error or ConnectionResetError(f"lost the server connection: {exc!r}")
        if isinstance(error, asyncpg.PostgresError):
            # The reason of the disconnect does not concern the waiting row.
            ended = f"the server closed the connection: {error} ({error.sqlstate})"
            error = asyncpg.ConnectionDoesNotExistError(ended)
        for future in self._asked:
            if not future.done():
                future.set_exception(error)
            error = ConnectionResetError("the connection to the server was lost")
        self._asked.clear()
        if not self._lost.done():
            self._lost.set_result(None)
        self._former.connection_lost(exc)


class SharedPipeline:
    """Pipeline shared by all callers, opened again after a loss.

    Args:
        database: a migrated database.
        statement: the statement to execute.
        row_type: row type, as for `Pipeline.open`.
    """

    def __init__(self, database: Database, statement: str, *, row_type: str) -> None:
        self._database = database
        self._statement = statement
        self._row_type = row_type
        self._opening = asyncio.Lock()
        self._pipeline: Pipeline | None = None

    async def connect(self) -> Pipeline:
        """Return the pipeline; open it if needed.

        Raises:
            StoreError: as `Pipeline.open`.
            PostgresError: as `Pipeline.open`.
        """
        async with self._opening:
            if self._pipeline is None or self._pipeline.is_closed():
                self._pipeline = await Pipeline.open(
                    self._database, self._statement, row_type=self._row_type
                )
            return self._pipeline


def _message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + _SIZE.pack(len(body) + 4) + body


def _columns(body: bytes) -> Row:
    columns: list[bytes | None] = []
    at = 2
    for _ in range(_SHORT.unpack_from(body)[0]):
        (length,) = _LENGTH.unpack_from(body, at)
        at += 4
        columns.append(None if length < 0 else body[at : at + length])
        at += max(length, 0)
    return tuple(columns)


def _error(body: bytes) -> Exception:
    fields = {
        field[:1].decode(): field[1:].decode(errors="replace")
        for field in body.split(b"\0")
        if field
    }
    return cast("Exception", asyncpg.PostgresError.new(fields))
