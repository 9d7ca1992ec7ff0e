"""Embedded server: start, reuse, stop, kill and access rights."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from steersman.db.migrate import migrate
from steersman.errors import StoreError
from steersman.platform.postgres import embedded
from steersman.platform.postgres.database import Database
from tests.db.rows import connected


@pytest.fixture
def home():
    # Not tmp_path: pytest closes its folders to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="steersman-embedded-"))
    yield folder / "state"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server(home):
    started = embedded.start(home)
    yield started
    if home.exists():
        started.stop()


async def value(url, query):
    async with connected(Database(url), None) as connection:
        return await connection.fetchval(query)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def postmaster(home):
    return int((home / "data" / "postmaster.pid").read_text().split()[0])


@pytest.mark.slow
def test_a_server_is_started_joined_and_stopped(home, server):
    assert server.started
    joined = embedded.start(home)
    assert (joined.started, joined.url) == (False, server.url)
    assert "FATAL" not in (home / "log").read_text()
    assert asyncio.run(value(joined.url, "SELECT 1")) == 1
    server.stop()
    server.stop()
    with pytest.raises(StoreError, match="cannot connect"):
        asyncio.run(value(server.url, "SELECT 1"))


@pytest.mark.slow
@pytest.mark.parametrize(("pause_s", "spared"), [(0.0, True), (0.002, False)])
def test_the_log_is_filled_in_advance_where_holes_are_dear(tmp_path, pause_s, spared):
    """Simulated disk: a hole has fewer blocks than its size until it is written."""

    def flush(handle):
        status = os.fstat(handle)
        if 512 * status.st_blocks < status.st_size:
            time.sleep(pause_s)

    assert embedded.spares_zeros(tmp_path, flush=flush) is spared
    assert list(tmp_path.iterdir()) == []

    def broken(_handle):
        raise OSError(28, "No space left on device")

    assert embedded.spares_zeros(tmp_path, flush=broken) is False


@pytest.mark.slow
@pytest.mark.parametrize("spared", [True, False])
async def test_what_the_disk_told_is_what_the_server_does(home, monkeypatch, spared):
    monkeypatch.setattr(embedded, "spares_zeros", lambda _folder: spared)
    started = embedded.start(home)
    try:
        assert await value(started.url, "SHOW wal_init_zero") == ("off" if spared else "on")
    finally:
        started.stop()


async def test_a_store_that_was_never_made_is_told_how_to_be(server):
    with pytest.raises(StoreError, match="does not exist; run `steersman doctor --migrate`"):
        await Database(server.url).connect("worker")


async def test_nobody_else_gets_in(home, server):
    assert mode(home / "data") == mode(home / "socket") == 0o700
    assert mode(home / "log") == 0o600
    sockets = [path for path in (home / "socket").iterdir() if path.is_socket()]
    assert [mode(path) for path in sockets] == [0o700]
    assert await value(server.url, "SHOW listen_addresses") == ""
    assert await value(server.url, "SHOW data_checksums") == "on"
    assert (home / "data").owner() != "root"


@pytest.mark.slow
def test_what_was_committed_survives_kill_9(home, server):
    database = Database(server.url)
    asyncio.run(migrate(database))
    asyncio.run(value(server.url, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n"))
    killed = postmaster(home)
    os.kill(killed, signal.SIGKILL)
    again = embedded.start(home)
    assert again.started
    assert postmaster(home) != killed
    assert asyncio.run(value(again.url, "SELECT count(*) FROM kept")) == 1000
    assert asyncio.run(migrate(database)) == []


@pytest.mark.slow
def test_processes_that_start_at_once_share_one_server(home):
    program = (
        "import sys, pathlib; from steersman.platform.postgres import embedded;"
        "print(embedded.start(pathlib.Path(sys.argv[1])))"
    )
    starting = [
        subprocess.Popen([sys.executable, "-c", program, home], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [process.communicate(timeout=120)[0] for process in starting]
    try:
        assert [process.returncode for process in starting] == [0, 0, 0]
        assert sorted("started=True" in line for line in said) == [False, False, True]
    finally:
        embedded.start(home).stop()


@pytest.mark.slow
def test_a_start_that_was_killed_half_way_can_be_done_again(home):
    home.mkdir(parents=True)
    half = home / "data.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")  # initdb writes it early
    (home / "data").mkdir()
    server = embedded.start(home)
    try:
        assert not half.exists()
        assert asyncio.run(value(server.url, "SELECT 1")) == 1
    finally:
        server.stop()


@pytest.mark.slow
def test_a_server_that_does_not_start_shows_its_log(home, server):
    server.stop()
    with (home / "data" / "postgresql.auto.conf").open("a") as settings:
        settings.write("nonsense = 3\n")
    with pytest.raises(StoreError, match=r'(?s)end of its log.*parameter "nonsense"'):
        embedded.start(home)


@pytest.mark.slow
def test_a_long_path_has_its_socket_elsewhere_and_closed(home):
    deep = home / ("d" * 60) / ("e" * 60)
    server = embedded.start(deep)
    try:
        folder = Path(server.url.partition("host=")[2])
        assert len(str(folder)) < 90
        assert mode(folder) == 0o700
        assert asyncio.run(value(server.url, "SELECT 1")) == 1
        assert embedded.start(deep).url == server.url
    finally:
        server.stop()
        shutil.rmtree(folder)


def test_a_folder_that_somebody_else_put_there_is_refused(home):
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    home.mkdir()
    (home / "socket").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="is a link or belongs to"):
        embedded.start(home)
    assert mode(elsewhere) == 0o755
    if os.geteuid() == 0:
        (home / "socket").unlink()
        (home / "socket").mkdir()
        os.chown(home / "socket", 54_321, 54_321)
        with pytest.raises(StoreError, match="belongs to user id 54321"):
            embedded.start(home)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root takes on another user")
def test_the_server_of_root_is_no_root(home, server):
    status = Path(f"/proc/{postmaster(home)}/status").read_text()
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert "0" not in lines["Uid"].split()
    assert "0" not in lines["Gid"].split() + lines["Groups"].split()
