"""A controller to be killed and paused: ``python -m tests.rollout.controlling_process URL HOLDER …``

Then ``WHAT AT``: a signal that it sends itself after its query number ``AT``, counted from the first
query that moves a rollout on; `none` sends none. It lives in the time of everybody.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from steersman.rollout import ControllerSettings, run_controller
from steersman.store import Database

LEASE_S = 1.0


class Watched(Database):
    """A database whose connections count their queries, and signal this process after one."""

    async def connect(self, role: Any = "app", **options: Any) -> Any:
        """Return a connection that counts."""
        connection = await super().connect(role, **options)
        connection.add_query_logger(count)
        return connection


queries = 0


def count(record: Any) -> None:
    """Count a query from the first one that acts on."""
    global queries  # noqa: PLW0603
    if queries or ("INSERT INTO verdict" in record.query and "next_stage" in str(record.args)):
        queries += 1
    if queries == int(sys.argv[4]) and sys.argv[3] != "none":
        os.kill(os.getpid(), signal.Signals[sys.argv[3]])


async def main() -> None:
    """Control until told to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = ControllerSettings(
        poll_s=0.05,
        lease_s=LEASE_S,
        keep_s=0.2,
        settle_s=0.2,
        evidence_s=0.2,
        reload_s=1.0,
        holder=sys.argv[2],
    )
    await run_controller(Watched(sys.argv[1]), stop=stop, settings=settings)


if __name__ == "__main__":
    asyncio.run(main())
