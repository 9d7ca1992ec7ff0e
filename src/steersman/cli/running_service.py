"""Running service as a context manager, for the demo and for tests."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.cli import stack
from steersman.cli.local_store import close, open_store
from steersman.cli.options import run
from steersman.cli.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Served:
    """A running service.

    Attributes:
        urls: base URL of each service process.
        key: API key of the tenant, with the scopes decide, events and read.
        tenant: owner of the decision points.
        database: the store.
        home: directory of all state.
    """

    urls: tuple[str, ...]
    key: str
    tenant: Tenant
    database: Database
    home: Path


@contextmanager
def served(
    home: Path,
    tenant_name: str,
    documents: Sequence[str],
    *,
    processes: int = 2,
    controller: bool = False,
    say: Callable[[str], None] = lambda _: None,
    before: Callable[[Database, Tenant], None] = lambda _database, _tenant: None,
) -> Iterator[Served]:
    """Run the store, service processes on one port each, and a learner; stop them at the end.

    The home directory and the tenant are created if they do not exist. `documents` are the
    tenant's declarations in YAML. `controller` adds a rollout controller. `say` receives a line
    when a process dies. `before` is called when the store is ready, before any process starts.

    Raises:
        StoreError: a service does not start; the message quotes the end of its log.
    """
    with ExitStack() as exits:
        exits.enter_context(stack.alone(home))
        database = open_store(home, make=True)
        exits.callback(close, database)
        prepared = run(stack.prepare(database, home, tenant_name, documents))
        before(database, prepared.tenant)
        ports = [stack.free_port(_HOST) for _ in range(processes)]
        services = [
            stack.service_child(home, _HOST, port, name=f"service-{number}")
            for number, port in enumerate(ports, 1)
        ]
        children = [*services, stack.learner_child(home)]
        if controller:
            children.append(stack.controller_child(home))
        supervisor = Supervisor(children, home / "logs", say)
        exits.enter_context(_running(supervisor))
        urls = tuple(f"http://{_HOST}:{port}" for port in ports)
        stack.wait_until_ready(urls, lambda: True, home / "logs")
        yield Served(urls, prepared.key or "", prepared.tenant, database, home)


@contextmanager
def _running(supervisor: Supervisor) -> Iterator[None]:
    """Supervise in a separate thread, so that the block may wait for the network."""
    begun = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def supervise() -> None:
        loop.call_soon(begun.set)
        await supervisor.run(stop)

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(supervise())

    thread = threading.Thread(target=work, name="supervisor")
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
