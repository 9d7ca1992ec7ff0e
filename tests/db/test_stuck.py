"""Stuck recovery detection from process titles (real server: `tests/faults/test_embedded.py`)."""

import pytest

from steersman.platform.postgres import embedded as stuck
from steersman.platform.postgres.embedded import is_stuck

SERVER = 700


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Return a builder of fake /proc entries, and the data of a running server."""
    processes, data = tmp_path / "proc", tmp_path / "data"
    processes.mkdir()
    data.mkdir()
    monkeypatch.setattr(stuck, "_PROCESSES", processes)

    def process(pid, parent, title, directory=data):
        (processes / str(pid)).mkdir()
        (processes / str(pid) / "stat").write_text(f"{pid} (post (g) res) S {parent} {pid} 0")
        (processes / str(pid) / "cmdline").write_bytes(title.encode() + bytes(3))
        (processes / str(pid) / "cwd").symlink_to(directory)

    def status(line):
        lines = [str(SERVER), str(data), "1795405952", "5432", str(data), "", " 2312477", line]
        (data / "postmaster.pid").write_text("\n".join([*lines, ""]))

    status("ready   ")
    process(1, 0, "init")
    process(SERVER + 1, SERVER, "postgres: io worker 0")
    return process, status, data


def test_a_server_that_nobody_recovers_is_stuck(kernel):
    process, _, data = kernel
    process(SERVER, 1, "/bin/postgres -D data")
    process(SERVER + 9, 12, "postgres: startup")  # of another server
    assert is_stuck(data)


def test_a_recovery_takes_as_long_as_it_takes(kernel):
    process, _, data = kernel
    process(SERVER, 1, "/bin/postgres -D data")
    process(SERVER + 2, SERVER, "postgres: startup recovering 000000010000000000000001")
    assert not is_stuck(data)


def test_a_server_that_stops_is_not_stuck(kernel):
    process, status, data = kernel
    process(SERVER, 1, "/bin/postgres -D data")
    status("stopping")
    assert not is_stuck(data)


def test_another_process_with_that_id_is_let_be(kernel, tmp_path):
    process, _, data = kernel
    process(SERVER, 1, "/bin/sleep 60", directory=tmp_path)
    assert not is_stuck(data)


def test_nothing_is_stuck_where_nothing_can_be_seen(kernel):
    _, _, data = kernel
    assert not is_stuck(data)  # no such process, as where the kernel shows none
    (data / "postmaster.pid").write_text("")
    assert not is_stuck(data)
