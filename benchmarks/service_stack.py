"""Programs of `benchmarks.service`: PostgreSQL, service processes and a learner.

The service process has one core to itself; PostgreSQL, the learner and the load share the other,
where the machine lets processes be pinned.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from benchmarks.http_load import drive, post
from steersman.db.decisions import DecisionRow, find_decision, log_decisions
from steersman.db.declarations import declare
from steersman.db.group_commit import GroupCommit
from steersman.db.keys import create_key
from steersman.db.migrate import migrate
from steersman.db.secret import load_secret
from steersman.db.tenants import create_tenant
from steersman.platform.postgres.database import Database, as_tenant
from steersman.wire import new_id

if TYPE_CHECKING:
    from contextlib import ExitStack

__all__ = ["ROUTE_CONTEXT", "Stack", "flush_seconds", "raw_inserts", "wide_point"]

ROOT = Path(__file__).parent.parent
ROUTE = ROOT / "configs" / "assistant" / "route.yaml"
ROUTE_CONTEXT = {
    "intent": "weather",
    "language": "en",
    "guardian_state": "normal",
    "text_len": 88,
    "confidence": 0.5,
    "score_gap": 0.1,
    "dense_gap": 0.05,
    "agreement": 1,
    "tool_score": 0.7,
    "latency_ms": 12.5,
    "cost_usd": 0.001,
}
_START_S = 30.0
_BARE = """
import uvicorn
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error", access_log=False)
"""


@dataclass
class Stack:
    """Running programs with their home.

    Args:
        home: Home directory.
        database: Embedded PostgreSQL server.
        port: Port of the service process.
        key: API key of the sample tenant.
        tenant: Sample tenant.
        processes: Started processes, by name.
    """

    home: Path
    database: Database
    port: int
    key: str = ""
    tenant: UUID = field(default_factory=new_id)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def start(cls, closing: ExitStack) -> Stack:
        """Start server and one service process, with the assistant's route declared.

        Args:
            closing: Stops the programs when it closes.

        Returns:
                The ready stack.
        """
        home = Path(tempfile.mkdtemp(prefix="steersman-bench-"))
        closing.callback(shutil.rmtree, home, ignore_errors=True)
        database = Database.open(home)
        if database.server is not None:
            closing.callback(database.server.stop)
            _pin(_postmaster(home), 1)
        _pin(os.getpid(), 1)
        stack = cls(home, database, _free_port())
        closing.callback(stack._stop_all)
        stack.tenant, stack.key = asyncio.run(stack._prepare())
        stack._start_service("service", stack.port, core=0)
        return stack

    async def _prepare(self) -> tuple[UUID, str]:
        await migrate(self.database)
        return await self._tenant("bench")

    async def _tenant(self, name: str) -> tuple[UUID, str]:
        tenant = await create_tenant(self.database, name, actor="benchmark")
        await declare(self.database, tenant.id, ROUTE.read_text(), actor="benchmark")
        _, text = await create_key(
            self.database,
            tenant.id,
            secret=load_secret(self.home),
            name="load",
            actor="benchmark",
        )
        return tenant.id, text

    async def more_tenants(self, count: int) -> list[str]:
        """Return the keys of new tenants, each with the route declared.

        Args:
            count: Number of tenants.
        """
        return [(await self._tenant(f"tenant-{n}"))[1] for n in range(count)]

    async def declare(self, document: str) -> None:
        """Declare another point for the sample tenant.

        Args:
            document: Declaration as YAML.
        """
        await declare(self.database, self.tenant, document, actor="benchmark")
        await asyncio.sleep(2.5)  # until the service has polled

    async def update_numbers(self, decisions: list[str]) -> dict[str, int]:
        """Return the first update of each decision, waiting until all are numbered or 20 s.

        Args:
            decisions: Ids of the decisions.
        """
        connection = await self.database.connect("app")
        numbers: dict[str, int] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                while len(numbers) < len(decisions):
                    await asyncio.sleep(0.2)
                    async with as_tenant(connection, self.tenant):
                        rows = await connection.fetch(
                            "SELECT decision, min(seq) FROM update GROUP BY 1"
                        )
                    known = {str(decision): seq for decision, seq in rows}
                    numbers = {one: known[one] for one in decisions if one in known}
        await connection.close()
        return numbers

    def start_bare(self) -> int:
        """Start a bare ASGI application where the service would run; return its port."""
        port = _free_port()
        self._spawn("bare", [sys.executable, "-c", _BARE.replace("PORT", str(port))], core=0)
        _wait(port, "/")
        return port

    def stop_bare(self) -> None:
        """Stop it."""
        self._stop("bare")

    def stop_service(self) -> None:
        """Stop the service process."""
        self._stop("service")

    def start_learning(self) -> tuple[int, int]:
        """Start two service processes and a learner; return the ports."""
        ports = (_free_port(), _free_port())
        for n, port in enumerate(ports):
            self._start_service(f"service {n}", port, core=n)
        self._spawn("learner", [*_STEERSMAN, "learn", "run", "--home", str(self.home)], core=1)
        return ports

    def resident_bytes(self) -> int:
        """Return the resident memory of the service process."""
        status = Path(f"/proc/{self.processes['service'].pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def cpu_seconds(self, name: str = "service") -> float:
        """Return the processor time of a process so far, user and system.

        Args:
            name: Name of the process.
        """
        fields = (
            Path(f"/proc/{self.processes[name].pid}/stat").read_text().rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _start_service(self, name: str, port: int, *, core: int) -> None:
        call = [*_STEERSMAN, "serve", "--home", str(self.home), "--port", str(port)]
        self._spawn(name, call, core=core)
        _wait(port, "/readyz")

    def _spawn(self, name: str, call: list[str], *, core: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (self.home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(call, stdout=log, stderr=log, env=environment, cwd=ROOT)
        _pin(process.pid, core)
        self.processes[name] = process

    def _stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()

    def _stop_all(self) -> None:
        for name in list(self.processes):
            self._stop(name)


_STEERSMAN = [str(Path(sys.executable).with_name("steersman"))]


def flush_seconds(folder: Path, *, times: int = 500) -> float:
    """Return the median time to write and flush 8 KiB, as a commit does.

    Args:
        folder: Folder on the measured disk.
        times: Number of repeats.
    """
    file = folder / "flush"
    took = []
    handle = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    for n in range(times):
        begun = time.perf_counter()
        os.pwrite(handle, b"x" * 8192, (n % 16) * 8192)
        os.fdatasync(handle)
        took.append(time.perf_counter() - begun)
    os.close(handle)
    file.unlink()
    return sorted(took)[times // 2]


async def raw_inserts(stack: Stack, count: int, *, clients: int) -> float:
    """Return decision rows per second through group commit, without HTTP, drawing or encoding.

    Args:
        stack: Running stack.
        count: Number of rows.
        clients: Number of concurrent clients.
    """
    row = await _some_row(stack)
    commits: GroupCommit[DecisionRow, Any] = GroupCommit(
        lambda: stack.database.connect("app"), log_decisions, lambda one: one.id
    )
    commits.start()

    async def client() -> None:
        for _ in range(count // clients):
            await commits.submit([replace(row, id=new_id())])

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - begun
    await commits.close()
    return count / seconds


async def _some_row(stack: Stack) -> DecisionRow:
    body = {"skill": "assistant", "decision": "route", "context": ROUTE_CONTEXT}
    request = post("/v1/decide", stack.key, msgspec.json.encode({**body, "deadline_ms": 5000}))
    load = await drive("127.0.0.1", stack.port, lambda _: iter([request]), clients=1, keep=True)
    identifier = UUID(msgspec.json.decode(load.kept[0])["decision_id"])
    connection = await stack.database.connect("app")
    row = await find_decision(connection, stack.tenant, identifier)
    await connection.close()
    if row is None:
        raise RuntimeError("the decision just logged is not there")
    return row


def wide_point() -> str:
    """Return the declaration of a point with d = 256 and K = 50."""
    names = ", ".join(f"a{n}" for n in range(50))
    return f"""
format: 1
skill: assistant
decision: wide
context: {{dim: 256, fields: {{v: {{type: vector, size: 200}}}}}}
actions: {{kind: choice, names: [{names}]}}
policy: {{algorithm: lin_ucb}}
floor: 0.02
fallback: {{rules: [], otherwise: a0}}
reward: {{terms: {{success: {{weight: 1}}}}}}
"""


def _pin(pid: int, core: int) -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    everything = os.cpu_count() or 1
    if everything > core and cores:
        with suppress(OSError):
            os.sched_setaffinity(pid, {core})


def _postmaster(home: Path) -> int:
    return int((home / "postgres" / "data" / "postmaster.pid").read_text().split()[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(port: int, path: str) -> None:
    until = time.monotonic() + _START_S
    while True:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1).close()
            return
        if time.monotonic() > until:
            message = f"nothing answers on port {port}; see the logs in its home"
            raise TimeoutError(message)
        time.sleep(0.05)
