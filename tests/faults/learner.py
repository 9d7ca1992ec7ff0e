"""A learner process to kill and pause: ``python -m tests.faults.learner URL NAME LEASE_S``."""

from __future__ import annotations

import asyncio
import signal
import sys

from steersman.platform.postgres.database import Database
from steersman.platform.telemetry.logs import configure_logging
from steersman.workers.learner import LearnerSettings, run_learner


async def main(url, name, lease_s):
    """Learn until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = LearnerSettings(lease_s=float(lease_s), holder=name, checkpoint_every=50, batch=20)
    await run_learner(Database(url), stop=stop, settings=settings)


if __name__ == "__main__":
    configure_logging()
    asyncio.run(main(*sys.argv[1:]))
