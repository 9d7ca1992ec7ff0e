"""A connection that is asked again before it has answered: PostgreSQL's pipeline mode.

asyncpg waits for every answer before it sends what comes next, and meanwhile the server waits for
us: a tenth of its time under a load of events. So asyncpg connects, with all that a URL may ask
for, and what follows is sent and read here: one statement, prepared once, each execution in a
transaction of its own, answered in order. asyncpg does not promise how to get at its transport; the
locks pin its version, and ``tests/store/test_pipeline.py`` fails if the way is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.store.database import Database

Row = tuple[bytes | None, ...]
"""A row of an answer: the bytes of each column in PostgreSQL's binary format, or None."""

_NAME = b"pipeline\0"
_SIZE = Struct(">I")
_SHORT = Struct(">H")
_LENGTH = Struct(">i")
_ALL_BINARY = b"\0\1\0\1"  # one format for all of them, and that is the binary one
_EXECUTE_AND_SYNC = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\4"
_GOODBYE = b"X\0\0\0\4"
_NOTHING_TO_US = frozenset(b"12CnINSA")  # done, nothing, notices, settings, notifications
_FIELD = 5  # of a message: its kind and its length
_LOCK_MS = 500


class Pipeline(asyncio.Protocol):
    """A connection of role app that executes one statement, as often as it is asked.

    Args:
        connection: of asyncpg, of which nothing else is asked from now on.
        element: the id of the row type that `Pipeline.open` was told.
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
        """Return a new connection.

        An execution that waits for a lock for half a second is given up
        (`asyncpg.LockNotAvailableError`), since all others wait behind it.

        Args:
            database: migrated.
            statement: what it executes.
            row_type: a table; the id of its rows' type is kept as ``element``.
            limit_s: the server gives an execution up after so long, whoever still waits for it.

        Raises:
            StoreError: the server does not answer.
            PostgresError: it does not take the statement.
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
        except BaseException:  # also where its caller stops waiting: nobody else would close it
            connection.terminate()
            raise
        return pipeline

    async def _prepare(self, statement: str) -> None:
        await self._send(_message(b"P", _NAME, statement.encode(), b"\0\0\0"), b"S\0\0\0\4")

    def ask(self, parameters: Sequence[bytes]) -> asyncio.Future[list[Row]]:
        """Execute the statement, after all that was asked before.

        Args:
            parameters: its parameters in PostgreSQL's binary format, at most 65,535.

        Returns:
            Resolves to its rows once they are on the server's disk, or to the server's
            `asyncpg.PostgresError`; what was asked besides has nothing to do with that. To
            `ConnectionResetError` if the connection is lost before: then it may have been done.
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
        except BaseException:  # an answer less will come than is waited for
            self.terminate()
            raise
        return future

    def is_closed(self) -> bool:
        """Return whether nothing can be asked any more."""
        return self._closing or self._lost.done()

    async def close(self, *, timeout: float = 10.0) -> None:  # noqa: ASYNC109 (as asyncpg's)
        """Tell the server goodbye and wait until it has gone; what was asked before is done first.

        Args:
            timeout: seconds to wait.

        Raises:
            TimeoutError: it is busy still; `terminate`.
        """
        if not self.is_closed():
            self._transport.write(_GOODBYE)
        self._closing = True
        async with asyncio.timeout(timeout):
            await asyncio.shield(self._lost)

    def terminate(self) -> None:
        """Let go of the connection at once."""
        self._closing = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read what the server says; called by the event loop.

        Args:
            data: some of it.
        """
        self._came += data
        at, length = 0, len(self._came)
        try:
            while length - at >= _FIELD:
                end = at + 1 + _SIZE.unpack_from(self._came, at + 1)[0]
                if end > length:
                    break
                self._hear(self._came[at], bytes(self._came[at + _FIELD : end]))
                at = end
        except Exception as error:  # noqa: BLE001 (told to whoever waits)
            # From here on nobody knows what answers what.
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
            # A migration made the function anew: whoever asks again connects and prepares anew.
            error = ConnectionResetError(f"the prepared statement is no longer valid: {error}")
            self.terminate()
        if future.done():  # nobody waits any longer
            return
        if error is None:
            future.set_result(rows)
        else:
            future.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who wait; called by the event loop.

        Args:
            exc: why, if not in order.
        """
        error = self._error or ConnectionResetError(f"lost the server connection: {exc!r}")
        if isinstance(error, asyncpg.PostgresError):
            # Why the server ended the connection says nothing of the row that just waited.
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
    """Connects all who ask to one pipeline, and to a new one when it has gone.

    Args:
        database: migrated.
        statement: what it executes.
        row_type: as for `Pipeline.open`.
    """

    def __init__(self, database: Database, statement: str, *, row_type: str) -> None:
        self._database = database
        self._statement = statement
        self._row_type = row_type
        self._opening = asyncio.Lock()
        self._pipeline: Pipeline | None = None

    async def connect(self) -> Pipeline:
        """Return the pipeline, opened if there is none.

        Raises:
            StoreError: as `Pipeline.open`.
            PostgresError: likewise.
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
