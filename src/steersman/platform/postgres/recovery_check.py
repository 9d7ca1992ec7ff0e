"""Detection of a PostgreSQL server that waits for a recovery that does not run.

PostgreSQL 18 restarts after a crash of one of its processes. If the recovery process fails at once,
as on a full disk, the server can wait for it for ever and reject all connections. Only the process
list distinguishes this from a long recovery.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATUS_LINE = 7  # of postmaster.pid
_PROCESSES = Path("/proc")


def is_stuck(data: Path) -> bool:
    """Return whether a server that rejects connections has no recovery process.

    This is also true for a moment during a normal start, so ask repeatedly.
    """
    with suppress(OSError, ValueError, IndexError):
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        pid, status = int(lines[0]), lines[_STATUS_LINE].strip()
        ours = (_PROCESSES / str(pid) / "cwd").samefile(data)
        return ours and status != "stopping" and b"startup" not in set(_tasks(pid))
    return False


def _tasks(server: int) -> Iterator[bytes]:
    """Yield the first word of each server process title."""
    for process in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = (process / "stat").read_bytes().rpartition(b")")[2].split()[1]
            if int(parent) == server:
                _, _, title = (process / "cmdline").read_bytes().partition(b"postgres: ")
                yield title.rstrip(b"\0").split()[0]
