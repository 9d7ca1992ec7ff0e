"""Publisher process that kills itself after a number of database and registry writes."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

from steersman.platform.postgres.database import Database
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.registry.storage import DirectoryPlace
from steersman.snapshots.publish import publish
from tests.learning.shipping_world import WHY
from tests.learning.world import point_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

_WRITES = ("INSERT", "UPDATE", "COMMIT")


class Countdown:
    """Kills this process at zero.

    Args:
        steps: number of steps until then.
    """

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Watched(Database):
    """Database whose connections count writes."""

    count: Callable[[], None]

    async def connect(self, role: Any = "app", **options: Any) -> Any:
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
        self.count()
        done = super().write_new(path, data)
        self.count()
        return done

    def replace(self, path: str, data: bytes, *, expected_tag: str | None) -> str | None:
        self.count()
        done = super().replace(path, data, expected_tag=expected_tag)
        self.count()
        return done


def publish_until_killed(
    url: str, tenant: UUID, root: Path, name: str, spec: str | None, steps: int
) -> None:
    """Publish the tenant's point and die after some steps, if there are so many."""
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
