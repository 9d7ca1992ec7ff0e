"""Compactions that are killed at their n-th step; used by test_faults.

Usage: die_at.py URL FOLDER TENANT DAY. For each input line STEP SECONDS it forks (faster than a new
Python process), compacts in the child and writes the child's exit status. A step is the time before
or after one operation on the destination. The child kills itself at that step, or after SECONDS at
any place, by SIGKILL. 0 means never.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import date
from uuid import UUID

import duckdb  # noqa: F401 (here, so that no child has to)
import pyarrow.parquet  # noqa: F401

from steersman.db.archive.compaction import compact
from steersman.db.archive.destination import Directory
from steersman.platform.postgres.database import Database


class Deadly(Directory):
    """Directory that kills its process before, during or after an operation."""

    def __init__(self, root: str, step: int) -> None:
        super().__init__(root)
        self.left = step

    def publish(self, file, path):
        self._step()
        super().publish(file, path)
        self._step()

    def remove(self, path):
        self._step()
        super().remove(path)
        self._step()

    def fetch(self, path, folder):
        self._step()
        return super().fetch(path, folder)

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    url, folder, tenant, day = sys.argv[1:]
    for line in sys.stdin:
        step, seconds = line.split()
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, float(seconds))  # nobody handles its signal
            place = Deadly(folder, int(step))
            until = date.fromisoformat(day)
            asyncio.run(compact(Database(url), place, tenants=[UUID(tenant)], until=until))
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
