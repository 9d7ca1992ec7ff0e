"""Whether a PostgreSQL server waits for a recovery that nobody does.

PostgreSQL 18 restarts by itself when one of its processes crashes. If the process that recovers
fails at once, as on a full disk, and the server hears of its start and of its end together, it
waits for it and refuses everybody for ever. Only a look at its processes tells this from a recovery
that takes long.
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
    """Return whether a server that refuses connections has no process that recovers.

    It is so for a moment too whenever a server starts or cleans up after a crash: ask for a while.

    Args:
        data: Its data directory.

    Returns:
        False also where it stops, where the process that ``postmaster.pid`` names is no server of
        this directory, and on systems that do not show processes as files (macOS).
    """
    with suppress(OSError, ValueError, IndexError):
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        pid, status = int(lines[0]), lines[_STATUS_LINE].strip()
        ours = (_PROCESSES / str(pid) / "cwd").samefile(data)
        return ours and status != "stopping" and b"startup" not in set(_tasks(pid))
    return False


def _tasks(server: int) -> Iterator[bytes]:
    """Yield what the processes of a server do, by the first word of their titles."""
    for process in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = (process / "stat").read_bytes().rpartition(b")")[2].split()[1]
            if int(parent) == server:
                _, _, title = (process / "cmdline").read_bytes().partition(b"postgres: ")
                yield title.rstrip(b"\0").split()[0]
