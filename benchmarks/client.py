"""Processor time of the client's decide call, compared with plain HTTP libraries; installed size.

A server in another process sends one constant decision. The peers send the same bytes and read the
answer, but build and check nothing. httpx2 is measured if it is installed.
"""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import statistics
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack, contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import urllib3
from packaging.requirements import Requirement

import steersman_client
from benchmarks.report import Figure, command
from steersman.client import AsyncClient, Client
from steersman.wire import new_id, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from multiprocessing.connection import Connection

    from benchmarks.report import Options

    Calls = dict[str, Callable[[], Any]]

GOAL_US = 500.0
GOAL_MB = 15.0
AT_ONCE = 32
HEADERS = {"Authorization": "Bearer key", "Content-Type": "application/json"}
QUESTION = ("mail", "tone", {"length": 120, "to": "customer"})
BODY = write(
    {
        "skill": "mail",
        "decision": "tone",
        "context": QUESTION[2],
        "deadline_ms": 666.667,
        "idempotency_key": str(new_id()),
    }
)
ANSWER = write(
    {
        "decision_id": str(new_id()),
        "action": "formal",
        "propensity": 0.2,
        "distribution": {"formal": 0.2, "friendly": 0.8},
        "snapshot": "1.0.0",
        "update_seq": 7,
        "stage": "live",
        "arm": "control",
        "logged": True,
        "degraded": False,
    }
)


def run(options: Options) -> Iterator[Figure]:
    """Measure both clients and the size."""
    rounds, calls = (3, 100) if options.quick else (11, 640)
    with _server() as url:
        yield _figure("Client.decide", _sync(url, rounds, calls))
        alone = asyncio.run(_async(url, rounds, calls, 1))
        yield _figure("AsyncClient.decide, one after another", alone)
        together = asyncio.run(_async(url, rounds, calls, AT_ONCE))
        yield _figure(f"AsyncClient.decide, {AT_ONCE} at once", together)
    ours = _megabytes("steersman-client") + _folder_megabytes(steersman_client.__path__[0])
    yield Figure(
        "steersman-client and its dependencies, installed",
        ours,
        unit="MB",
        goal=f"< {GOAL_MB:g}",
        holds=ours < GOAL_MB,
        peers={name: _megabytes(name) for name in ("urllib3", "aiohttp", "httpx2") if _has(name)},
    )


def _figure(name: str, taken: dict[str, list[float]]) -> Figure:
    ours, *peers = taken
    low, value, high = statistics.quantiles(taken[ours], n=4)
    return Figure(
        f"{name}, processor time a call (median and quartiles of rounds)",
        value,
        low,
        high,
        unit="µs",
        goal=f"<= {GOAL_US:g}",
        holds=value <= GOAL_US,
        peers={peer: statistics.median(taken[peer]) for peer in peers},
    )


def _sync(url: str, rounds: int, calls: int) -> dict[str, list[float]]:
    with ExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory())
        client = exits.enter_context(Client(url, "key", queue_dir=folder))
        pool = exits.enter_context(urllib3.PoolManager())
        host = url.removeprefix("http://")
        bare = http.client.HTTPConnection(host)
        exits.callback(bare.close)

        def plainly() -> bytes:
            bare.request("POST", "/v1/decide", BODY, HEADERS)
            return bare.getresponse().read()

        path = f"{url}/v1/decide"
        ways: Calls = {
            "ours": lambda: client.decide(*QUESTION),
            "urllib3": lambda: pool.request("POST", path, body=BODY, headers=HEADERS).data,
            "http.client": plainly,
        }
        if _has("httpx2"):
            other = exits.enter_context(import_module("httpx2").Client())
            ways["httpx2"] = lambda: other.post(path, content=BODY, headers=HEADERS).content
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds + 1):
            for name, call in ways.items():
                begun = time.process_time()
                for _ in range(calls):
                    call()
                taken[name].append((time.process_time() - begun) / calls * 1e6)
    return {name: found[1:] for name, found in taken.items()}  # the first run is a warm-up


async def _async(url: str, rounds: int, calls: int, at_once: int) -> dict[str, list[float]]:
    async with AsyncExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory())
        client = await exits.enter_async_context(AsyncClient(url, "key", queue_dir=folder))
        session = await exits.enter_async_context(aiohttp.ClientSession())
        path = f"{url}/v1/decide"

        async def with_aiohttp() -> bytes:
            async with session.post(path, data=BODY, headers=HEADERS) as answer:
                return await answer.read()

        ways: dict[str, Callable[[], Awaitable[Any]]] = {
            "ours": lambda: client.decide(*QUESTION),
            "aiohttp": with_aiohttp,
        }
        if _has("httpx2"):
            other = await exits.enter_async_context(import_module("httpx2").AsyncClient())
            ways["httpx2"] = lambda: other.post(path, content=BODY, headers=HEADERS)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds + 1):
            for name, call in ways.items():
                begun = time.process_time()
                for _ in range(calls // at_once):
                    if at_once == 1:
                        await call()
                    else:
                        await asyncio.gather(*[call() for _ in range(at_once)])
                done = calls // at_once * at_once
                taken[name].append((time.process_time() - begun) / done * 1e6)
    return {name: found[1:] for name, found in taken.items()}


# -- the server -----------------------------------------------------------------------------------


@contextmanager
def _server() -> Iterator[str]:
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    process = processes.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.kill()
        process.join()


def _serve(said: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Constant, "127.0.0.1", 0)
        said.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


class _Constant(asyncio.Protocol):
    """Server that sends the same answer to every request, whole or in pieces."""

    def __init__(self) -> None:
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, found, body = self._heard.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if found and len(body) >= int(length or 0):
            self._heard = b""
            start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
            self._transport.write(b"%b%d\r\n\r\n%b" % (start, len(ANSWER), ANSWER))


# -- the size -------------------------------------------------------------------------------------


def _has(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _megabytes(name: str) -> float:
    """Return the size of a distribution with its dependencies in MB, without bytecode."""
    seen: set[str] = set()
    left, total = [name], 0
    while left:
        if (one := left.pop()) in seen or not _has(one):
            continue
        seen.add(one)
        found = distribution(one)
        total += sum(file.size or 0 for file in found.files or () if file.suffix != ".pyc")
        needs = [Requirement(text) for text in found.requires or ()]
        left += [need.name for need in needs if not need.marker or need.marker.evaluate()]
    return total / 1e6


def _folder_megabytes(folder: str) -> float:
    return sum(file.stat().st_size for file in Path(folder).glob("*.py")) / 1e6


if __name__ == "__main__":
    command("client", run, doc=__doc__)
