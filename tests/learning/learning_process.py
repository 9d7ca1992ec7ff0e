"""Learner process for kill and pause tests: ``learning_process URL HOLDER WHAT AT``.

``WHAT`` is the signal that the process sends itself after query number ``AT``, counted from the
first batch: `SIGKILL`, `SIGSTOP` or `none`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from steersman.platform.postgres.database import Database
from steersman.workers.learner import LearnerSettings, run_learner

LEASE_S = 1.0


class Watched(Database):
    """Database whose connections count queries and signal this process after one."""

    async def connect(self, role: Any = "app", **options: Any) -> Any:
        connection = await super().connect(role, **options)
        connection.add_query_logger(count)
        return connection


queries = 0


def count(record: Any) -> None:
    """Count a query from the first batch on."""
    global queries  # noqa: PLW0603
    if queries or "UPDATE learner AS l SET seen_at" in record.query:
        queries += 1
    if queries == int(sys.argv[4]) and sys.argv[3] != "none":
        os.kill(os.getpid(), signal.Signals[sys.argv[3]])


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = LearnerSettings(
        batch=6, checkpoint_every=8, lease_s=LEASE_S, poll_s=0.05, holder=sys.argv[2]
    )
    await run_learner(Watched(sys.argv[1]), stop=stop, settings=settings)


if __name__ == "__main__":
    asyncio.run(main())
