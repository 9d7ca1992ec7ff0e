"""A whole installation to be broken: PostgreSQL, service processes and learners of its own.

Everything runs in a home of its own under the temporary directory, each process with its own log,
so that tests may kill, stop and starve any part without touching anything else on the machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from steersman.db.declarations import declare
from steersman.db.keys import create_key
from steersman.db.secret import load_secret
from steersman.db.tenants import create_tenant
from tests.clusters import copy_cluster, open_database
from tests.forked import run_module

if TYPE_CHECKING:
    from steersman.platform.postgres.database import Database

POINT = """
format: 1
skill: search
decision: depth
context:
  dim: 12
  fields:
    intent: {type: category, missing: bucket}
    length: {type: number, scale: zscore, mean: 0.0, sd: 1.0, missing: mean}
actions: {kind: choice, names: [shallow, middle, deep]}
policy: {algorithm: lin_ucb, alpha: 0.5, ridge: 1.0}
explore: floor
floor: 0.3
fallback: {rules: [], otherwise: shallow}
reward:
  terms:
    success: {weight: 3.0}
    clicked: {weight: 1.0, missing: 0}
  window_s: 600
  trigger: first
  scope: decision
  missing: drop
learning: {mode: online}
budgets: {deadline_ms: 400}
"""
# One that only some tenants have.
SECRET = POINT.replace("skill: search", "skill: hidden")
_START_S = 60.0


@dataclass
class Access:
    """A tenant and its keys.

    Attributes:
        tenant: Its id.
        key: Text of a key that may do everything.
    """

    tenant: object
    key: str


@dataclass
class Installation:
    """A home with its processes; `installation` makes it.

    Attributes:
        home: Its directory.
        database: Its server.
        processes: Those that were started and not killed, by name.
        ports: Of the services, by name.
        environment: For all processes that are started from now on; those with one begin anew.
    """

    home: Path
    database: Database
    processes: dict = field(default_factory=dict)
    ports: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)

    async def tenant(self, name, *documents):
        """Return a new tenant with decision points; `POINT` if none are given."""
        tenant = await create_tenant(self.database, name, actor="test")
        for document in documents or (POINT,):
            await declare(self.database, tenant.id, document, actor="test")
        _, key = await create_key(
            self.database,
            tenant.id,
            secret=load_secret(self.home),
            name="all",
            role="operator",
            actor="test",
        )
        return Access(tenant.id, key)

    def url(self, name):
        """Return where a service is."""
        return f"http://127.0.0.1:{self.ports[name]}"

    @property
    def urls(self):
        """Where the services are."""
        return [self.url(name) for name in self.ports]

    def start_service(self, name="service", *, wait=True):
        """Start a service; the same name again gets the same port."""
        port = self.ports.setdefault(name, free_port())
        self.start(name, "tests.faults.service", self.database.url, self.home, port)
        if wait:
            self.wait_ready(name)

    def start_learner(self, name="learner", *, lease_s=1.0):
        """Start a learner."""
        self.start(name, "tests.faults.learner", self.database.url, name, lease_s)

    def start(self, name, module, *arguments):
        """Start a module as a process whose output goes to a log of its name."""
        self.log(name).touch()
        if not self.environment:
            self.processes[name] = run_module(module, *arguments, output=self.log(name))
            return
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "OMP_NUM_THREADS": "1", **self.environment},
            )

    def wait_ready(self, name):
        """Wait until a service says that it is ready."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            assert self.processes[name].poll() is None, self.log(name).read_text()[-3000:]
            with suppress(OSError, urllib.error.HTTPError):
                urllib.request.urlopen(f"{self.url(name)}/readyz", timeout=5).close()  # noqa: S310
                return
            time.sleep(0.05)
        pytest.fail(f"{name} is not ready:\n{self.log(name).read_text()[-3000:]}")

    def kill(self, name):
        """Kill a process as the kernel would: it cleans up nothing."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name):
        """Ask a process to end; return its exit status."""
        process = self.processes.pop(name)
        process.terminate()
        return process.wait(timeout=40)

    def signal(self, name, number):
        """Send a signal to a process."""
        self.processes[name].send_signal(number)

    def log(self, name):
        """Return the file of a process's output."""
        return self.home / f"{name}.out"

    def postgres(self):
        """Return the server's processes, postmaster first."""
        pid = int((self.home / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
        return [pid, *children(pid)]

    def signal_postgres(self, number):
        """Send a signal to every process of the server."""
        for pid in self.postgres():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_postgres(self):
        """Kill every process of the server at once, and wait until they run no more."""
        pids = self.postgres()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 20
        while any(map(runs, pids)) and time.monotonic() < until:
            time.sleep(0.01)

    def stop_postgres(self):
        """Stop the server in order."""
        self.database.server.stop()

    def start_postgres(self):
        """Start the server again."""
        open_database(self.home)

    def close(self):
        """End everything that is left."""
        for name in list(self.processes):
            with suppress(ProcessLookupError):
                self.signal(name, signal.SIGCONT)
            self.kill(name)
        with suppress(OSError):
            self.signal_postgres(signal.SIGCONT)
        self.stop_postgres()


@contextmanager
def small_disk(folder, megabytes):
    """Give a folder a disk of its own; where that is not allowed CI fails, others skip the test."""
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    options = f"size={megabytes}m,mode=0700,uid={os.geteuid()},gid={os.getegid()}"
    mount = [*as_root, "mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    folder.mkdir(parents=True)
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False)
        if mounted.returncode != 0:
            _without_disk(mounted.stderr.decode())
    except FileNotFoundError as error:
        _without_disk(str(error))
    try:
        yield
    finally:
        subprocess.run([*as_root, "umount", "-l", folder], check=True)


def _without_disk(why):
    message = f"a small disk cannot be mounted here: {why}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def installation(cluster, home=None):
    """Start a server on a copy of a cluster, and end everything that was started in its home."""
    home = home or Path(tempfile.mkdtemp(prefix="steersman-faults-"))
    copy_cluster(cluster, home)
    made = Installation(home, open_database(home))
    try:
        yield made
    finally:
        made.close()
        if not os.environ.get("STEERSMAN_TEST_KEEP"):  # for whoever has to see the logs
            shutil.rmtree(home, ignore_errors=True)


def free_port():
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def children(pid):
    """Return the processes that a process has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = status.read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid:
                found.append(int(status.parent.name))
    return found


def resident_bytes(pid):
    """Return the memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def runs(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
