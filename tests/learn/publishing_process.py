"""A publisher to be killed: counts what it writes, to the database and the registry, and dies."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

from steersman.learn import publish
from steersman.registry import DirectoryPlace, Keys, Publisher
from steersman.store import Database
from tests.learn.shipping_world import WHY
from tests.learn.world import point_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

_WRITES = ("INSERT", "UPDATE", "COMMIT")


class Countdown:
    """Kills this process when it has counted down.

    Args:
        steps: after how many.
    """

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> None:
        """Count one."""
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Watched(Database):
    """A database whose connections count what they have written."""

    count: Callable[[], None]

    async def connect(self, role: Any = "app", **options: Any) -> Any:
        """Return a connection that counts."""
        connection = await super().connect(role, **options)

        def note(record: Any) -> None:
            if record.query.lstrip().startswith(_WRITES):
                self.count()

        connection.add_query_logger(note)
        return connection


class WatchedPlace(DirectoryPlace):
    """A directory that counts before and after every write."""

    count: Callable[[], None]

    def write_new(self, path: str, data: bytes) -> str | None:
        """Write a file."""
        self.count()
        done = super().write_new(path, data)
        self.count()
        return done

    def replace(self, path: str, data: bytes, *, expected_tag: str | None) -> str | None:
        """Replace a file."""
        self.count()
        done = super().replace(path, data, expected_tag=expected_tag)
        self.count()
        return done


def publish_until_killed(
    url: str, tenant: UUID, root: Path, name: str, spec: str | None, steps: int
) -> None:
    """Publish the one point of a tenant, and be killed after some steps, if it has so many."""
    count = Countdown(steps)
    database = Watched(url)
    object.__setattr__(database, "count", count)
    place = WatchedPlace(root / "registry" / name)
    place.count = count
    publisher = Publisher(place, Keys(root / "keys" / name))

    async def work() -> None:
        row = await point_of(database, tenant)
        await publish(database, row, publisher, WHY, spec=spec)

    asyncio.run(work())
