"""The embedded server after it was killed: started again, whatever its process id has become."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from steersman.errors import StoreError
from steersman.store import embedded
from tests.clusters import open_database


@pytest.mark.slow
async def test_a_server_that_was_killed_a_moment_ago_is_started_again(made):
    for _ in range(3):
        made.kill_postgres()
        connection = await open_database(made.home).connect("app")
        await connection.close()


@pytest.mark.slow
def test_a_process_that_is_no_server_is_not_taken_for_one(made, monkeypatch):
    (postmaster, *_) = made.postgres()
    made.kill_postgres()
    while Path(f"/proc/{postmaster}").exists():  # as a zombie, until its parent has heard
        time.sleep(0.01)
    owner = (made.home / "postgres" / "data").stat().st_uid
    other = subprocess.Popen(["/bin/sleep", "60"], user=owner if os.geteuid() == 0 else None)
    pid_file = made.home / "postgres" / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(other.pid), *lines[1:], ""]))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(embedded, "_START_S", 0.5)
            with pytest.raises(StoreError, match="no server answers"):
                open_database(made.home)
    finally:
        other.kill()
        other.wait()
    assert open_database(made.home).server.started
