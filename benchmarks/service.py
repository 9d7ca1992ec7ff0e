"""Throughput, latency and learning lag of the service over HTTP.

``--sets``: single, batches, events, wide, tenants, memory, learning; default: all.

The service has one core; load and PostgreSQL share the other. Every decision is durable before its
answer, keys are checked, row-level security is forced and metrics are on. Measured in the same run:
a bare ASGI application on the same server, the same rows written without HTTP, and the disk's flush
time. The learning lag is from the acknowledged outcome to the changed decision, in both of two
service processes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import uvloop

from benchmarks.http_load import Connection, Load, drive, post
from benchmarks.report import Figure, Options, command
from benchmarks.service_stack import ROUTE_CONTEXT, Stack, flush_seconds, raw_inserts, wide_point
from steersman.errors import DataError
from steersman.wire import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CLIENTS = 64
HOST = "127.0.0.1"


def main(options: Options) -> list[Figure]:
    """Return all figures.

    Args:
        options: ``quick`` shortens every run; ``sets`` names sections: single, batches, events,
            wide, tenants, memory, learning.
    """
    known = (*SECTIONS, "learning")
    names = options.sets or known
    if unknown := [name for name in names if name not in known]:
        raise DataError(f"unknown set {', '.join(unknown)}; known are {', '.join(known)}")
    with ExitStack() as closing:
        stack = Stack.start(closing)
        flush = flush_seconds(stack.home) * 1e6
        figures = [Figure("disk flush (8 KiB, fdatasync)", flush, unit="µs")]
        figures += uvloop.run(
            _measure(options, stack, [name for name in names if name in SECTIONS])
        )
    if "learning" in names:
        # A separate store, without the learning backlog of the load above.
        with ExitStack() as closing:
            figures += uvloop.run(_learning(Stack.start(closing), _scale(options)))
    return figures


def _scale(options: Options) -> float:
    return 0.05 if options.quick else 1.0


async def _measure(options: Options, stack: Stack, names: Sequence[str]) -> list[Figure]:
    figures: list[Figure] = []
    for name in names:
        figures += await SECTIONS[name](stack, _scale(options))
    return figures


async def _single(stack: Stack, scale: float) -> list[Figure]:
    """Yield figures of one decision per request, with and without an idempotency key."""
    count = int(40_000 * scale)
    bare_port = stack.start_bare()
    bare = await _load(bare_port, "", _plain_bodies(stack), count)
    stack.stop_bare()
    inserts = await raw_inserts(stack, int(40_000 * scale), clients=CLIENTS)
    await _load(stack.port, stack.key, _plain_bodies(stack), count // 8)  # warm up
    used = stack.cpu_seconds()
    plain = await _load(stack.port, stack.key, _plain_bodies(stack), count)
    used = stack.cpu_seconds() - used
    keyed = await _load(stack.port, stack.key, _keyed_bodies(), count)
    peers = {"bare ASGI echo": bare.rate, "the same rows, no HTTP": inserts}
    rate = Figure(
        f"decisions, {CLIENTS} clients",
        plain.rate,
        unit="1/s",
        goal=">= 8,000 with p99 <= 25 ms",
        holds=plain.rate >= 8000 and plain.percentile(99) <= 25,
        peers=peers,
    )
    return [
        rate,
        Figure(
            "  p99",
            plain.percentile(99),
            unit="ms",
            goal=25,
            holds=plain.percentile(99) <= 25,
            peers={"p50": plain.percentile(50), "bare p99": bare.percentile(99)},
        ),
        Figure(
            "  processor time of the service",
            used / len(plain.latencies_ms) * 1e6,
            unit="µs/decision",
        ),
        Figure(
            "decisions with idempotency keys",
            keyed.rate,
            unit="1/s",
            peers={"p50 ms": keyed.percentile(50), "p99 ms": keyed.percentile(99)},
        ),
    ]


async def _batches(stack: Stack, scale: float) -> list[Figure]:
    one = _decide_body()
    body = b'{"requests":[' + b",".join([one] * 10) + b"]}"
    request = post("/v1/decide", stack.key, body)
    times = int(10_000 * scale) // CLIENTS + 1
    for repeated in (times // 8, times):  # warm up, then measure
        load = await drive(HOST, stack.port, _repeat(request, repeated), clients=CLIENTS)
        _all_answered(load)
    return [
        Figure(
            "decisions in batches of 10",
            load.rate * 10,
            unit="1/s",
            goal=25_000,
            holds=load.rate * 10 >= 25_000,
            peers={"p50 ms": load.percentile(50), "p99 ms": load.percentile(99)},
        )
    ]


async def _events(stack: Stack, scale: float) -> list[Figure]:
    """Yield figures of batches of 100 events about new decisions, a quarter of each type."""
    decisions = await _decision_ids(stack, max(400, int(20_000 * scale)))
    figures = []
    for name, with_outcomes in (("events in batches of 100", 0.25), ("  all with outcomes", 1.0)):
        chosen = itertools.cycle(decisions)
        count = max(20, int(3_000 * scale))
        for part in (count // 8, count):  # warm up, then measure
            bodies = [
                post("/v1/events", stack.key, _event_batch(chosen, with_outcomes))
                for _ in range(part)
            ]
            load = await drive(HOST, stack.port, _share(bodies, 16), clients=16)
            _all_answered(load)
        goal: dict[str, Any] = (
            {"goal": 100_000, "holds": load.rate * 100 >= 100_000} if with_outcomes < 1 else {}
        )
        figures.append(
            Figure(
                name,
                load.rate * 100,
                unit="1/s",
                peers={"p50 ms": load.percentile(50), "p99 ms": load.percentile(99)},
                **goal,
            )
        )
    return figures


async def _wide(stack: Stack, scale: float) -> list[Figure]:
    """Yield figures of decisions at d = 256, K = 50, where the policy's work dominates."""
    await stack.declare(wide_point())
    body = _decide_body("wide", {"v": [0.1] * 200})
    load = await _load(stack.port, stack.key, lambda: body, int(8_000 * scale))
    return [
        Figure(
            "decisions at d = 256, K = 50",
            load.rate,
            unit="1/s",
            peers={"p50 ms": load.percentile(50), "p99 ms": load.percentile(99)},
        )
    ]


async def _tenants(stack: Stack, scale: float) -> list[Figure]:
    """Yield figures of equal load from one tenant and from 20, in turns against drift."""
    keys = await stack.more_tenants(20)
    ratios = []
    for _ in range(1 if scale < 1 else 5):
        rates = []
        for used in (keys[:1], keys):
            load = await drive(
                HOST,
                stack.port,
                lambda n, used=used: itertools.repeat(  # type: ignore[misc]
                    post("/v1/decide", used[n % len(used)], _decide_body()),
                    int(12_000 * scale) // CLIENTS + 1,
                ),
                clients=CLIENTS,
            )
            _all_answered(load)
            rates.append(load.rate)
        ratios.append(rates[1] / rates[0])
    low, high = (min(ratios), max(ratios)) if len(ratios) > 1 else (None, None)
    value = float(np.median(ratios))
    return [
        Figure(
            "64 clients of 20 tenants beside one tenant",
            value,
            low,
            high,
            unit="×",
            goal=">= 0.8",
            holds=value >= 0.8,
        )
    ]


async def _memory(stack: Stack, scale: float) -> list[Figure]:
    body = b'{"requests":[' + b",".join([_decide_body()] * 10) + b"]}"
    request = post("/v1/decide", stack.key, body)

    async def run(count: int) -> None:
        per_client = count // 10 // CLIENTS + 1
        _all_answered(await drive(HOST, stack.port, _repeat(request, per_client), clients=CLIENTS))

    await run(int(40_000 * scale))
    before = stack.resident_bytes()
    await run(int(200_000 * scale))
    change = stack.resident_bytes() / before - 1
    return [
        Figure(
            "growth of memory over 200k decisions",
            change * 100,
            unit="%",
            goal="within 5",
            holds=abs(change) <= 0.05,
            peers={"MiB at the start": before / 2**20},
        )
    ]


async def _learning(stack: Stack, scale: float) -> list[Figure]:
    """Yield the lag from an acknowledged outcome to a decision that uses it, in two processes."""
    stack.stop_service()
    ports = stack.start_learning()
    lags, late = await _lags(stack, ports, outcomes=int(4_000 * scale), per_second=200.0)
    figures = []
    for name, values in zip(("first", "second"), lags, strict=True):
        p50, p99 = np.percentile(values or [np.inf], [50, 99])
        figures.append(
            Figure(
                f"outcome to changed decision, {name} process, p99",
                float(p99),
                unit="ms",
                goal=1000,
                holds=bool(p99 <= 1000),
                peers={"p50 ms": float(p50), "never seen": float(late)},
            )
        )
    return figures


async def _lags(
    stack: Stack, ports: tuple[int, int], *, outcomes: int, per_second: float
) -> tuple[list[list[float]], int]:
    """Return the lags in ms per process, and the number of outcomes that were never used."""
    # The first outcome only waits for the learner to start.
    first, *decisions = await _decision_ids(stack, outcomes + 1, port=ports[0])
    await _send_outcomes(stack, ports, [first], per_second)
    await stack.update_numbers([first])
    seen: list[list[tuple[float, int]]] = [[], []]
    stop = asyncio.Event()
    watchers = [
        asyncio.create_task(_watch(stack, port, seen[n], stop)) for n, port in enumerate(ports)
    ]
    acknowledged = await _send_outcomes(stack, ports, decisions, per_second)
    numbers = await stack.update_numbers(decisions)
    await asyncio.sleep(1.5)
    stop.set()
    await asyncio.gather(*watchers)
    lags: list[list[float]] = []
    missing = 0
    for watched in seen:
        times = np.array([at for at, _ in watched])
        numbers_seen = np.maximum.accumulate([seq for _, seq in watched])
        lag = []
        for decision, at in acknowledged.items():
            if decision not in numbers:
                missing += 1
                continue
            place = int(np.searchsorted(numbers_seen, numbers[decision]))
            if place == len(times):
                missing += 1
            else:
                lag.append(max(0.0, (times[place] - at) * 1000))
        lags.append(lag)
    return lags, missing


async def _watch(
    stack: Stack, port: int, seen: list[tuple[float, int]], stop: asyncio.Event
) -> None:
    """Ask one process for a decision every few ms, and record its update number."""
    connection = await Connection.open(HOST, port)
    request = post("/v1/decide", stack.key, _decide_body())
    while not stop.is_set():
        answer = msgspec.json.decode(await connection.ask(request))
        seen.append((time.perf_counter(), answer["update_seq"]))
        await asyncio.sleep(0.005)
    connection.close()


async def _send_outcomes(
    stack: Stack, ports: tuple[int, int], decisions: list[str], per_second: float
) -> dict[str, float]:
    """Send one outcome per decision at a steady rate, to both processes in turn."""
    acknowledged: dict[str, float] = {}
    waiting: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()

    async def sender() -> None:
        connections: dict[int, Connection] = {}
        while (due := await waiting.get()) is not None:
            decision, port = due
            if port not in connections:  # idle ones are closed after 10 s
                connections[port] = await Connection.open(HOST, port)
            await connections[port].ask(post("/v1/feedback.submit", stack.key, _outcome(decision)))
            acknowledged[decision] = time.perf_counter()
        for connection in connections.values():
            connection.close()

    senders = [asyncio.create_task(sender()) for _ in range(8)]
    begun = time.perf_counter()
    for n, decision in enumerate(decisions):
        await asyncio.sleep(max(0.0, begun + n / per_second - time.perf_counter()))
        waiting.put_nowait((decision, ports[n % 2]))
    for _ in senders:
        waiting.put_nowait(None)
    await asyncio.gather(*senders)
    return acknowledged


async def _decision_ids(stack: Stack, count: int, *, port: int | None = None) -> list[str]:
    body = b'{"requests":[' + b",".join([_decide_body()] * 10) + b"]}"
    request = post("/v1/decide", stack.key, body)
    load = await drive(
        HOST, port or stack.port, _repeat(request, count // 80 + 1), clients=8, keep=True
    )
    _all_answered(load)
    answers = [msgspec.json.decode(kept) for kept in load.kept]
    return [one["decision_id"] for answer in answers for one in answer["decisions"]][:count]


async def _load(port: int, key: str, body: Callable[[], bytes], count: int) -> Load:
    def requests(_: int) -> Iterator[bytes]:
        for _ in range(count // CLIENTS + 1):
            yield post("/v1/decide", key, body())

    load = await drive(HOST, port, requests, clients=CLIENTS)
    _all_answered(load)
    return load


def _plain_bodies(_: Stack) -> Callable[[], bytes]:
    body = _decide_body()
    return lambda: body


def _keyed_bodies() -> Callable[[], bytes]:
    body = _decide_body()[:-1]
    return lambda: b'%s,"idempotency_key":"%s"}' % (body, str(new_id()).encode())


def _decide_body(point: str = "route", context: dict[str, Any] | None = None) -> bytes:
    request = {
        "skill": "assistant",
        "decision": point,
        "context": context or ROUTE_CONTEXT,
        "unit": "user-1",
        "deadline_ms": 5000,
    }
    return msgspec.json.encode(request)


def _event_batch(decisions: Iterator[str], with_outcomes: float) -> bytes:
    types = ("interaction.create", "interaction.output", "feedback.submit", "task_result")
    events = []
    for n in range(100):
        event: dict[str, Any] = {
            "event_id": str(new_id()),
            "decision_id": next(decisions),
            "type": types[n % 4],
        }
        if n % 4 >= 4 * (1 - with_outcomes):
            event["outcomes"] = {"success": 1, "tool_ok": 1, "latency_ms": 120.5}
        else:
            event["body"] = {"text": "forty characters of what was said or done"}
        events.append(event)
    return msgspec.json.encode({"events": events})


def _outcome(decision: str) -> bytes:
    outcomes = {"success": 1, "tool_ok": 1, "latency_ms": 120.5}
    return msgspec.json.encode(
        {"event_id": str(new_id()), "decision_id": decision, "outcomes": outcomes}
    )


def _repeat(request: bytes, times: int) -> Callable[[int], Iterator[bytes]]:
    return lambda _: itertools.repeat(request, times)


def _share(requests: list[bytes], clients: int) -> Callable[[int], Iterator[bytes]]:
    return lambda n: iter(requests[n::clients])


def _all_answered(load: Load) -> None:
    if load.refused:
        message = f"{load.refused} of {len(load.latencies_ms)} requests were not answered with 200"
        raise RuntimeError(message)


SECTIONS = {
    "single": _single,
    "batches": _batches,
    "events": _events,
    "wide": _wide,
    "tenants": _tenants,
    "memory": _memory,
}

if __name__ == "__main__":
    command("service", main, doc=__doc__)
