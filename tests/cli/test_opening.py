"""The embedded server of a home: start, shared use and stop."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.cli.local_store import close, open_store
from steersman.platform.postgres.database import Database
from tests.clusters import copy_cluster, open_database

pytestmark = pytest.mark.slow
PATIENCE_S = 60
# Whoever runs the tests may ignore these (`nohup`, a background job); children inherit that.
HEARING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); from steersman.cli import main; main()"
)


@pytest.fixture
def home(cluster, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    folder = Path(tempfile.mkdtemp(prefix="st-open-"))
    copy_cluster(cluster, folder)
    yield folder
    if runs(folder):
        open_database(folder).server.stop()
    shutil.rmtree(folder)


def runs(home):
    return (home / "postgres" / "data" / "postmaster.pid").exists()


async def asked(database):
    connection = await database.connect(None)
    try:
        return await connection.fetchval("SELECT 1")
    finally:
        await connection.close()


@contextmanager
def watching(home):
    """A command of another process that uses the store, until it is told to end."""
    watch = subprocess.Popen(
        [sys.executable, "-c", HEARING, "monitor", "--json", "--home", str(home)],
        env={name: value for name, value in os.environ.items() if name != "DATABASE_URL"},
        stdout=subprocess.PIPE,
    )
    try:
        assert watch.stdout.readline()
        yield watch
    finally:
        watch.kill()
        watch.wait()
        watch.stdout.close()


def end(watch, number):
    watch.send_signal(number)
    return watch.wait(PATIENCE_S)


@pytest.mark.parametrize(
    "command", ["tenant list", "learn run", "serve", "data backup x", "status"]
)
def test_a_wrong_directory_is_told_and_gets_no_store(tmp_path, monkeypatch, command):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("STEERSMAN_HOME", raising=False)
    monkeypatch.delenv("STEERSMAN_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(main, command.split())
    assert ran.exit_code == (2 if command == "status" else 1)
    assert "no store in" in ran.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_is_told_to_end_stops_the_server_that_it_started(home, number):
    with watching(home) as watch:
        assert runs(home)
        status = end(watch, number)
    assert status == (0 if number == signal.SIGINT else 128 + number)
    assert not runs(home)


def test_who_started_the_server_leaves_it_to_those_who_go_on(home):
    with watching(home) as watch:
        database = open_store(home)
        assert not database.server.started
        end(watch, signal.SIGINT)
        assert asyncio.run(asked(database)) == 1
        close(database)
    assert not runs(home)  # and the last one stops it


def test_who_only_joined_stops_nothing(home):
    with watching(home) as watch:
        close(open_store(home))
        assert watch.stdout.readline()
        assert runs(home)


def test_the_server_of_a_killed_command_is_stopped_by_the_next_one(home):
    with watching(home) as watch:
        end(watch, signal.SIGKILL)
    assert runs(home)
    close(open_store(home))
    assert not runs(home)


@pytest.mark.parametrize("told", [KeyboardInterrupt, SystemExit])
def test_who_is_told_to_end_while_the_server_begins_leaves_none(home, monkeypatch, told):
    opened, calls = Database.open, []

    def interrupted(folder):
        calls.append(folder)
        database = opened(folder)
        if len(calls) == 1:
            raise told
        return database

    monkeypatch.setattr(Database, "open", interrupted)
    with pytest.raises(told):
        open_store(home)
    assert not runs(home)


def test_a_server_that_a_killed_command_began_is_stopped_by_the_next_one(home, monkeypatch):
    def killed(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Database, "open", killed)
        with pytest.raises(KeyboardInterrupt):
            open_store(home)
    open_database(home)
    close(open_store(home))
    assert not runs(home)


def test_a_server_that_no_command_started_is_left_alone(home):
    database = Database.open(home)
    close(open_store(home))
    assert runs(home)
    close(database)  # none of `open_store`
    assert runs(home)


def test_a_port_where_somebody_listens_is_not_shared(tmp_path):
    with socket.socket() as taken:  # as a service of another home has it
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asked = ["serve", "--home", str(tmp_path), "--port", str(taken.getsockname()[1])]
        ran = CliRunner().invoke(main, asked)
    assert ran.exit_code == 1
    assert "cannot listen on" in ran.output
    assert "choose another" in ran.output
