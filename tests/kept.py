"""One event loop for all tests of a process, and connections in it that are kept for the next one.

A connection costs its server some ten milliseconds before it has read what it needs of the
catalogue. Tests open 25,000, one after the other, most of them to set something up or to look at a
row; a service opens its pools with more. As behind a pooler, one that is closed is reset, and lent
again. For that it clears two private fields of asyncpg's connection: 25,000 new connections would
cost four minutes of a processor.
Tests of connecting itself, and of connections that are lost, take `Database` as it is.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.platform.postgres.database import Database, reset

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from steersman.platform.postgres.database import Role

_runner = asyncio.Runner()
_idle: dict[tuple[Any, ...], list[Kept]] = defaultdict(list)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns, as `asyncio.run` does, in the loop of all tests.

    Tasks and threads that it leaves behind end with it.
    """
    threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
    _runner.get_loop().set_default_executor(threads)
    try:
        return _runner.run(work, context=copy_context())
    finally:
        _runner.run(_end_what_is_left())
        threads.shutdown()


async def _end_what_is_left() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@contextmanager
def kept(database: Database) -> Iterator[Database]:
    """Lend connections to a database that are kept until the end of the context."""
    yield _Kept(database.url, database.server)
    run(_close(database.url))


async def _close(url: str) -> None:
    for key in [key for key in _idle if key[0] == url]:
        for connection in _idle.pop(key):
            connection.terminate()


class Kept(asyncpg.Connection):
    """A connection that is lent again when it has been closed."""

    __slots__ = ("key",)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 (as it is there)
        """Give it back as it was; one that is lost, or within a transaction, is closed."""
        if self.is_closed() or self.is_in_transaction():
            await super().close(timeout=timeout)
            return
        try:
            self._termination_listeners.clear()
            self._pool_holder = None
            await self.reset(timeout=timeout)
        except BaseException:
            self.terminate()
            raise
        _idle[self.key].append(self)


class _Kept(Database):
    __slots__ = ()

    async def connect(self, role: Role | None = "app", **options: Any) -> Any:
        if asyncio.get_running_loop() is not _runner.get_loop():
            return await super().connect(role, **options)
        key = self.url, role, *options.items()
        while _idle[key]:
            if not (one := _idle[key].pop()).is_closed():
                return one
        made = await super().connect(role, connection_class=Kept, **options)
        made.key = key
        return made

    async def pool(self, role: Role, *, least: int = 1, most: int = 4) -> Any:
        if asyncio.get_running_loop() is not _runner.get_loop():
            return await super().pool(role, least=least, most=most)

        async def lend(*_: Any, **__: Any) -> Any:
            return await self.connect(role, command_timeout=60)

        return await asyncpg.create_pool(
            min_size=least,
            max_size=most,
            connect=lend,
            connection_class=Kept,
            reset=reset,
            max_inactive_connection_lifetime=0,  # nobody may close what is lent to others by then
        )
