"""Processes that share a port: started, killed, started again, drained."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from steersman.db.declarations import declare
from steersman.db.keys import create_key
from steersman.db.secret import load_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

POINT = """
format: 1
skill: search
decision: depth
context: {dim: 8, fields: {}}
actions: {kind: choice, names: [shallow, deep]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {rules: [], otherwise: shallow}
reward: {terms: {clicked: {weight: 1}}}
budgets: {deadline_ms: 20000}
"""
PROGRAM = """
import os, signal, sys
from pathlib import Path
from steersman.platform.telemetry.logs import configure_logging
from steersman.api.server import serve
from steersman.platform.postgres.database import Database
if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have set it aside
    configure_logging()
    database = Database(os.environ["URL"])
    show = lambda port: print(port, flush=True)
    count = int(sys.argv[1])
    sys.exit(serve(database, Path(os.environ["HOME_"]), port=0, processes=count, ready=show))
"""
DECIDE = {"skill": "search", "decision": "depth"}


class Served:
    """A service in processes of its own."""

    def __init__(self, process: subprocess.Popen[str], key: str, log: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        self.key = key
        self.log = log

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        # multiprocessing keeps a process of its own beside those that serve.
        return [pid for pid in map(int, path.read_text().split()) if b"fork" in _line(pid)]

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while await self.status("/readyz") != 200:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.1)

    async def status(self, path: str) -> int:
        try:
            async with aiohttp.request("GET", self.url + path) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def decide(self, http: aiohttp.ClientSession) -> dict[str, object]:
        headers = {"authorization": f"Bearer {self.key}"}
        async with http.post(f"{self.url}/v1/decide", json=DECIDE, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


def _line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture
def served(database, tenant):
    """Return what starts a service in so many processes."""

    @contextmanager
    def start(processes: int) -> Iterator[Served]:
        home = Path(tempfile.mkdtemp(prefix="steersman-serve-"))
        asyncio.run(declare(database, tenant.id, POINT, actor="test"))
        made = create_key(
            database, tenant.id, secret=load_secret(home), name="k", role="operator", actor="test"
        )
        _, key = asyncio.run(made)
        program = home / "program.py"
        program.write_text(PROGRAM, encoding="utf-8")
        log = home / "log"
        with log.open("w") as said:
            process = subprocess.Popen(
                [sys.executable, program, str(processes)],
                env={**os.environ, "URL": database.url, "HOME_": str(home)},
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )
        try:
            yield Served(process, key, log)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()
            process.stdout.close()

    return start


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sigterm_drains_and_nothing_answered_is_lost(served, database, tenant, processes) -> None:
    with served(processes) as s:

        async def load() -> list[str]:
            """Decide without end, stop the service in the middle, return what was logged."""
            await s.ready()
            logged: list[str] = []

            async def one() -> None:
                async with aiohttp.ClientSession() as http:
                    try:
                        while True:
                            answer = await s.decide(http)
                            if answer["logged"] is True:
                                logged.append(answer["decision_id"])
                    except aiohttp.ClientError:
                        return

            tasks = [asyncio.create_task(one()) for _ in range(8)]
            await asyncio.sleep(0.5)
            s.process.send_signal(signal.SIGTERM)
            await asyncio.gather(*tasks)
            return logged

        logged = asyncio.run(load())
        assert s.process.wait(40) == 0
        assert len(logged) > 10
        assert asyncio.run(stored(database, tenant)) >= set(logged)
        said = s.log.read_text()
        assert s.key not in said
        for line in said.splitlines():
            assert json.loads(line)["level"] in {"INFO", "WARNING"}, line


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_while_processes_are_starting_is_no_failure(served, number) -> None:
    with served(2) as s:
        until = time.monotonic() + 30
        while len(s.children()) < 2:
            assert time.monotonic() < until
        if number == signal.SIGTERM:
            s.process.send_signal(number)
        else:  # a terminal sends it to all of its group
            os.killpg(s.process.pid, number)
        assert s.process.wait(40) == 0
        assert "Traceback" not in s.log.read_text()


def test_a_terminal_that_is_gone_lets_it_drain(served) -> None:
    with served(1) as s:
        asyncio.run(s.ready())
        os.killpg(s.process.pid, signal.SIGHUP)
        assert s.process.wait(40) == 0
        assert "Traceback" not in s.log.read_text()


async def stored(database, tenant) -> set[str]:
    connection = await database.connect("app")
    async with connection.transaction():
        await connection.execute("SELECT set_config('app.tenant', $1, true)", str(tenant.id))
        rows = await connection.fetch("SELECT id FROM decision")
    await connection.close()
    return {str(row["id"]) for row in rows}


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_the_other_serves_meanwhile(served) -> None:
    with served(2) as s:

        async def run() -> None:
            await s.ready()
            await processes_seen(s, {"0", "1"})
            first, second = s.children()
            os.kill(first, signal.SIGKILL)
            async with asyncio.timeout(60):
                while len(alive := s.children()) < 2 or first in alive:
                    await asyncio.sleep(0.1)
                    # Connections to the dead process fail; others are answered.
                    assert await s.status("/healthz") in {200, 0}
            assert second in s.children()
            await processes_seen(s, {"0", "1"})

        asyncio.run(run())
        assert "restarting it" in s.log.read_text()
        assert b"postgres" not in b"".join(map(_line, s.children()))


@pytest.mark.slow
def test_processes_do_not_outlive_a_killed_supervisor(served) -> None:
    with served(2) as s:
        asyncio.run(s.ready())
        children = s.children()
        assert len(children) == 2
        s.process.kill()
        s.process.wait()

        async def gone() -> None:
            async with asyncio.timeout(30):
                while alive(children):  # noqa: ASYNC110 (other processes)
                    await asyncio.sleep(0.1)

        asyncio.run(gone())


def alive(processes: list[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in processes)


async def processes_seen(s: Served, wanted: set[str]) -> None:
    """Wait until the metrics of any process show all of them."""
    async with asyncio.timeout(60):
        seen: set[str] = set()
        while not seen >= wanted:
            async with aiohttp.request("GET", f"{s.url}/metrics") as answer:
                seen = set(re.findall(r'process="(\w+)"', await answer.text()))
            await asyncio.sleep(0.1)
