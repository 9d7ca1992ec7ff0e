"""A controller to be killed and paused: ``python -m tests.rollouts.controlling_process URL …``.

Then ``HOLDER WHAT AT``: a signal that it sends itself after its query number ``AT``, counted from
the first one that moves a rollout on; `none` sends none. With several numbers there is a process
for each, one after the other. They live in the time of everybody.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from steersman.platform.postgres.database import Database
from steersman.workers.rollout_controller import ControllerSettings, run_controller

LEASE_S = 1.0
queries = 0


class Watched(Database):
    """A database whose connections count their queries, and signal this process after one."""

    at = 0

    async def connect(self, role: Any = "app", **options: Any) -> Any:
        """Return a connection that counts."""
        connection = await super().connect(role, **options)
        connection.add_query_logger(count)
        return connection


def count(record: Any) -> None:
    """Count a query from the first one that acts on."""
    global queries  # noqa: PLW0603
    if queries or ("INSERT INTO verdict" in record.query and "next_stage" in str(record.args)):
        queries += 1
    if queries and queries == Watched.at:
        os.kill(os.getpid(), signal.Signals[sys.argv[3]])


async def control(at: int) -> None:
    """Control until told to stop."""
    Watched.at = at
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


def main() -> None:
    """Run one process for each number; the last one is this."""
    *others, last = map(int, sys.argv[4].split(","))
    for at in others:
        child = os.fork()  # what was imported need not be imported again
        if not child:
            asyncio.run(control(at))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), status
    asyncio.run(control(last))


if __name__ == "__main__":
    main()
