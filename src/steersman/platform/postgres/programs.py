"""PostgreSQL client programs: pg_dump, pg_restore and psql.

The programs of the embedded server have no TLS support. For encrypted connections the system's
programs are used.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from urllib.parse import parse_qs, unquote, unquote_plus, urlsplit

from steersman.errors import StoreError
from steersman.platform.postgres.embedded import binaries

_CHUNK = 1 << 20
_PREAMBLE = 32
_LONGEST = 1500
_ENCRYPTED = {"require", "verify-ca", "verify-full"}
_OPEN_KEY = (
    "DATABASE_URL has an sslpassword, which the PostgreSQL programs would show to every "
    "user of this machine; set sslkey= to a key without a pass phrase that only its owner can read"
)
# pg_restore sets it on every server, but versions before 17 reject it.
_UNKNOWN = b"SET transaction_timeout = 0;\n"


async def run(program: str, *arguments: str, url: str | None = None) -> str:
    """Run a program and return its output.

    Raises:
        StoreError: it failed, with its message; or the URL has an ``sslpassword``.
    """
    process = await _start(program, *arguments, url=url)
    try:
        output, said = await process.communicate()
    except asyncio.CancelledError:
        await _kill(process)
        raise
    _check(program, process, said)
    return output.decode(errors="replace")


async def replay(file: Path, url: str, *, first: str = "") -> None:
    """Run the SQL of a dump in one transaction.

    Raises:
        StoreError: the file is damaged, or its SQL failed.
    """
    source = await _start("pg_restore", "--file=-", str(file))
    sink = await _start(
        *("psql", "--no-psqlrc", "--quiet", "--output=/dev/null", "--set=ON_ERROR_STOP=1"),
        "--file=-",
        url=url,
        stdin=PIPE,
    )
    said = asyncio.gather(_read(source.stderr), _read(sink.stderr))
    target = _stdin(sink)
    try:
        # The end of input must not commit, because it also comes if this process is killed.
        target.write(f"BEGIN;\n{first}\n".encode())
        if await _copy(source, sink) and await source.wait() == 0:
            target.write(b"\nCOMMIT;\n")
            target.close()
            await sink.wait()
    finally:
        await _kill(source)
        await _kill(sink)
        target.close()
        with suppress(OSError):
            await target.wait_closed()
        source_said, sink_said = await said
    if sink.returncode != -SIGKILL:  # else the dump is invalid
        _check("psql", sink, sink_said)
    _check("pg_restore", source, source_said)


async def _start(
    program: str, *arguments: str, url: str | None = None, stdin: int = DEVNULL
) -> Process:
    environment = dict(os.environ)
    command = [str(_folder(url) / program), *arguments]
    if url is not None:
        # A password among the arguments could be read by every user of this machine.
        bare, password = _apart(url)
        if "sslpassword" in parse_qs(urlsplit(url).query):
            raise StoreError(_OPEN_KEY)
        if password:
            environment["PGPASSWORD"] = password
        command.append(f"--dbname={bare}")
    return await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=stdin, stdout=PIPE, stderr=PIPE, limit=_CHUNK
    )


def _apart(url: str) -> tuple[str, str]:
    """Return a URL without its password, and the password."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query).get("password", [""])[-1]
    user, at, host = parts.netloc.rpartition("@")
    fields = parts.query.split("&")
    query = "&".join(one for one in fields if unquote_plus(one.partition("=")[0]) != "password")
    # Not by geturl: it leaves out the // of a URL without a host.
    bare = f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}"
    return f"{bare}?{query}" if query else bare, unquote(parts.password or "") or asked


def _folder(url: str | None) -> Path:
    """Return the folder of programs that can connect to ``url``."""
    mode = parse_qs(urlsplit(url or "").query).get("sslmode", [os.environ.get("PGSSLMODE", "")])[-1]
    if url is None or mode not in _ENCRYPTED:
        return binaries()
    found = shutil.which("pg_dump")
    if found is None or shutil.which("psql", path=str(Path(found).parent)) is None:
        message = (
            f"sslmode={mode} needs pg_dump and psql with TLS, but PATH has none; install "
            "client programs of the server's version or newer (Debian: postgresql-client)"
        )
        raise StoreError(message)
    return Path(found).parent


async def _copy(source: Process, sink: Process) -> bool:
    """Send the script; return False if the reader stopped at an error."""
    script, target = _stdout(source), _stdin(sink)
    try:
        for _ in range(_PREAMBLE):
            line = await script.readline()
            if line != _UNKNOWN:
                target.write(line)
        while chunk := await script.read(_CHUNK):
            target.write(chunk)
            await target.drain()
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _stdin(process: Process) -> asyncio.StreamWriter:
    assert process.stdin is not None  # noqa: S101 (it was asked for)
    return process.stdin


def _stdout(process: Process) -> asyncio.StreamReader:
    assert process.stdout is not None  # noqa: S101 (it was asked for)
    return process.stdout


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


async def _kill(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    # Read all output first; unread output would block the program.
    while process.stdout is not None and await process.stdout.read(_CHUNK):
        pass
    await process.wait()


def _check(program: str, process: Process, said: bytes) -> None:
    if process.returncode != 0:
        reason = said.decode(errors="replace").strip()
        # The error comes first; a query with every table name may follow.
        reason = reason if len(reason) <= _LONGEST else f"{reason[:1000]} … {reason[-500:]}"
        message = f"{program} failed with status {process.returncode}: {reason}"
        raise StoreError(message)
