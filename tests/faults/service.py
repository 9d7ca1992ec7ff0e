"""A service process to kill and pause: ``python -m tests.faults.service URL HOME PORT``."""

from __future__ import annotations

import sys
from pathlib import Path

from steersman.api.server import serve
from steersman.platform.postgres.database import Database
from steersman.platform.telemetry.logs import configure_logging

if __name__ == "__main__":
    configure_logging()
    url, home, port = sys.argv[1:]
    sys.exit(serve(Database(url), Path(home), port=int(port)))
