"""HTTP server: uvicorn with limits, in one process or several on one port.

Several processes bind the same port (SO_REUSEPORT) and the kernel distributes connections; they
share only the store. A supervisor starts them, restarts dead ones, and drains them on SIGTERM or
SIGINT: no new connections, open requests answered, rows written.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import resource
import signal
import socket
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
import uvloop

from steersman.api.service import Settings, assemble
from steersman.platform.http.connection_limits import BoundedProtocol, Limits, bounded
from steersman.platform.telemetry.logs import configure_logging
from steersman.platform.telemetry.tracing import configure_tracing, finish_tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from multiprocessing.context import SpawnProcess

    from steersman.api.service import Service
    from steersman.platform.postgres.database import Database

_log = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_OF_A_TERMINAL = {signal.SIGINT, signal.SIGHUP}  # a terminal sends these to all our processes
_BACKLOG = 2048
_FILES = 16_384
_STOP_S = 25.0
_LAST_S = 0.25
"""Seconds for which a kept-alive connection may send a last request during a drain."""
_RESTART_S = 1.0


class HttpServer(uvicorn.Server):
    """Server of one application with limits; `stop` drains it.

    Args:
        app: ASGI application.
        limits: limits of its connections.
    """

    def __init__(self, app: Any, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        super().__init__(
            uvicorn.Config(
                app,
                http=bounded(limits),
                ws="none",
                lifespan="auto",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=limits.idle_s,
                timeout_graceful_shutdown=limits.drain_s,
            )
        )

    def stop(self) -> None:
        """Stop accepting connections, answer open requests, and return from `serve`."""
        self.should_exit = True

    @asynccontextmanager
    async def on_free_port(self, host: str = "127.0.0.1") -> AsyncIterator[int]:
        """Serve in the running event loop within the context, then drain."""
        listener = _bind(host, 0)
        listener.listen(_BACKLOG)
        serving = asyncio.get_running_loop().create_task(self.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            self.stop()
            await serving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Disable uvicorn's signal handling: it raises signals again before rows are written.

        Yields:
            None.
        """
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listening sockets, then kept connections after a last answer.

        A connection between two requests looks idle. Closing it at once would lose the answer of a
        client that is just sending its next request.
        """
        for server in self.servers:
            server.close()
        state = self.server_state
        state.default_headers = [*state.default_headers, (b"connection", b"close")]
        until = time.monotonic() + _LAST_S
        while state.connections and time.monotonic() < until:  # noqa: ASYNC110 (no event exists)
            await asyncio.sleep(_LAST_S / 10)
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Check connection timeouts twice a second.

        Args:
            counter: number of tenths of a second.
        """
        if counter % 5 == 0:
            now = asyncio.get_running_loop().time()
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.sweep(now)
        return await super().on_tick(counter)


def serve(
    database: Database,
    home: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    processes: int = 1,
    limits: Limits | None = None,
    ready: Callable[[int], None] = lambda _port: None,
) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        port: port; 0: any free port.

    Returns:
        Exit status: 0 after a drain; 1 if a process had to be killed.

    Raises:
        OSError: the port is in use.
        StoreError: the store does not respond (single process; several retry).
    """
    _allow_files()
    limits = limits or Limits()
    if processes == 1:
        listener = _bind(host, port)
        ready(listener.getsockname()[1])
        uvloop.run(_serve_one(database, home, listener, limits, Settings.from_environment()))
        return 0
    # Bound without listening, to reserve the port while processes restart.
    with _bind(host, port) as reserved, tempfile.TemporaryDirectory(prefix="steersman-") as folder:
        number: int = reserved.getsockname()[1]
        context = multiprocessing.get_context("spawn")

        def start(index: int) -> SpawnProcess:
            settings = Settings.from_environment(str(index), Path(folder))
            process = context.Process(
                target=_child,
                args=(database, home, host, number, limits, settings),
                name=f"steersman-{index}",
            )
            # A worker that is still importing would end with a traceback, so stop it here.
            resource_tracker.ensure_running()  # its start unblocks these signals
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_A_TERMINAL)
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return process

        ready(number)
        return _supervise(start, processes)


def _supervise(start: Callable[[int], SpawnProcess], count: int) -> int:
    """Run processes until a signal, then drain them."""
    stopping: list[int] = []
    before = {s: signal.signal(s, lambda number, _: stopping.append(number)) for s in _signals()}
    running = {index: start(index) for index in range(count)}
    try:
        while not stopping:
            wait([process.sentinel for process in running.values()], timeout=0.5)
            for index, process in running.items():
                if not stopping and process.exitcode is not None:
                    _log.error("process %d ended with %s; restarting it", index, process.exitcode)
                    time.sleep(_RESTART_S)
                    running[index] = start(index)
        return _drain(list(running.values()))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for process in running.values():
            if process.is_alive():
                process.kill()


def _drain(processes: list[SpawnProcess]) -> int:
    until = time.monotonic() + _STOP_S
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    # A process that is still starting ends by SIGTERM itself; it has nothing to drain.
    return int(any(process.exitcode not in {0, -signal.SIGTERM} for process in processes))


def _child(
    database: Database, home: Path, host: str, port: int, limits: Limits, settings: Settings
) -> None:
    for number in _OF_A_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_A_TERMINAL)
    configure_logging()
    _allow_files()
    uvloop.run(_serve_one(database, home, _bind(host, port), limits, settings))


async def _serve_one(
    database: Database, home: Path, listener: socket.socket, limits: Limits, settings: Settings
) -> None:
    provider = configure_tracing()
    loop = asyncio.get_running_loop()
    try:
        async with AsyncExitStack() as stack:
            service = await assemble(stack, database, home, settings)
            server = HttpServer(service.app, limits)
            for number in _signals():
                loop.add_signal_handler(number, _stop, service, server)
            _collect_rarely()
            listener.listen(_BACKLOG)
            watching = loop.create_task(_stop_with_supervisor(service, server))
            await server.serve(sockets=[listener])
            watching.cancel()
    finally:
        finish_tracing(provider)


async def _stop_with_supervisor(service: Service, server: HttpServer) -> None:
    """Stop when the supervisor has ended for any reason."""
    supervisor = multiprocessing.parent_process()
    while supervisor is not None:
        await asyncio.sleep(0.5)
        if not supervisor.is_alive():
            _log.error("the supervisor has ended; this process stops")
            _stop(service, server)
            return


def _signals() -> list[signal.Signals]:
    """Return the signals that stop the service, including SIGHUP unless `nohup` ignores it."""
    stays = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [*_SIGNALS] if stays else [*_SIGNALS, signal.SIGHUP]


def _stop(service: Service, server: HttpServer) -> None:
    service.draining = True
    server.stop()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)  # noqa: FBT003 (standard library)
    return listener


def _collect_rarely() -> None:
    """Freeze long-lived objects and raise the threshold of the garbage collector.

    Its default threshold makes decoding of bodies with many small objects four times slower.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _allow_files() -> None:
    """Raise the limit of open files: a connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
