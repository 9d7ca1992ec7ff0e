"""A service process to kill and pause: ``python -m tests.faults.service URL HOME PORT``."""

from __future__ import annotations

import sys
from pathlib import Path

from steersman.service.logs import configure_logging
from steersman.service.server import serve
from steersman.store import Database

if __name__ == "__main__":
    configure_logging()
    url, home, port = sys.argv[1:]
    sys.exit(serve(Database(url), Path(home), port=int(port)))
