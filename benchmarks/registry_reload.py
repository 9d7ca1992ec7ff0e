"""Hot reload: latency of a service while it verifies and loads other snapshots.

One service process on a separate core decides for 64 clients at d = 64, K = 50. Runs with and
without reloads alternate. In a run with reloads a new version takes over every four seconds.
PostgreSQL sends the notice, the registry verifies the version, and the state is loaded and swapped
under load. The time is measured from the commit to the first decision of the new version on
another connection.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import uvloop

from benchmarks.http_load import Connection, Load, drive, post
from benchmarks.report import Figure, Options
from benchmarks.service_stack import Stack
from steersman.db.points import points_of
from steersman.db.promotion import promote_snapshot
from steersman.platform.postgres.database import as_tenant
from steersman.registry.bucket import open_place
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from steersman.wire import new_id
from steersman.workers.learner import LearnerSettings, run_learner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.db.points import PointRow

__all__ = ["measure"]

HOST = "127.0.0.1"
CLIENTS = 64
PERIOD_S = 4.0
TAUGHT = 50
NAMES = [f"a{n}" for n in range(50)]
DOCUMENT = f"""
format: 1
skill: bench
decision: reload
context: {{dim: 64, fields: {{v: {{type: vector, size: 48}}}}}}
actions: {{kind: choice, names: [{", ".join(NAMES)}]}}
policy: {{algorithm: lin_ucb}}
floor: 0.02
fallback: {{rules: [], otherwise: a0}}
reward: {{terms: {{success: {{weight: 1}}}}}}
"""


def measure(options: Options) -> Iterator[Figure]:
    """Measure and yield the figures.

    Args:
        options: ``quick`` shortens every run.
    """
    with ExitStack() as closing:
        stack = Stack.start(closing)
        yield from uvloop.run(_measure(stack, quick=options.quick))


async def _measure(stack: Stack, *, quick: bool) -> list[Figure]:
    await stack.declare(DOCUMENT)
    publisher = _publisher(stack)
    rng = np.random.default_rng(0)
    seconds, pairs = (4.0, 1) if quick else (12.0, 6)
    versions: list[str] = []
    for _ in range(pairs * int(seconds / PERIOD_S)):
        await _teach(stack, rng)
        row = await _point(stack)
        made = await publish(stack.database, row, publisher, Reason(actor="benchmark"))
        versions.append(made.version)
    await _load(stack, 2.0)  # warm up
    without, during, took = [], [], []
    for _ in range(pairs):
        without.append(await _load(stack, seconds))
        reloading = asyncio.create_task(_reload(stack, versions, seconds))
        during.append(await _load(stack, seconds))
        took += await reloading
    return [_ratio(without, during), _delay(took)]


def _ratio(without: list[Load], during: list[Load]) -> Figure:
    ratios = [b.percentile(99) / a.percentile(99) for a, b in zip(without, during, strict=True)]
    both = [np.concatenate([one.latencies_ms for one in runs]) for runs in (without, during)]
    plain, loaded = (float(np.percentile(latencies, 99)) for latencies in both)
    refused = sum(one.refused for one in (*without, *during))
    value = loaded / plain
    return Figure(
        "p99 of decide during hot reloads beside none, d=64 K=50",
        value,
        min(ratios),
        max(ratios),
        unit="×",
        goal="<= 1.5, no request refused",
        holds=value <= 1.5 and refused == 0,
        peers={"p99 ms without": plain, "p99 ms during": loaded, "refused": float(refused)},
    )


def _delay(took: list[float]) -> Figure:
    low, value, high = (float(np.percentile(took, share)) for share in (5, 50, 95))
    return Figure(
        "hot reload, commit to first decision, d=64 K=50",
        value,
        low,
        high,
        unit="ms",
        goal=1000,
        holds=max(took) <= 1000,
        peers={"slowest": max(took), "reloads": float(len(took))},
    )


def _publisher(stack: Stack) -> Publisher:
    place = open_place(str(stack.home / "registry" / "bench"))
    publisher = Publisher(place, Keys(stack.home / "keys" / "bench"), keep=100)
    trust = stack.home / "trust" / "bench"
    trust.mkdir(parents=True)
    (trust / "root.json").write_bytes(publisher.create("bench", "of no worth"))
    return publisher


async def _teach(stack: Stack, rng: np.random.Generator) -> None:
    """Let the point learn from decisions and outcomes of the service."""
    connection = await Connection.open(HOST, stack.port)
    requests = [_request(rng) for _ in range(TAUGHT)]
    body = msgspec.json.encode({"requests": requests})
    answer = msgspec.json.decode(await connection.ask(post("/v1/decide", stack.key, body)))
    events = [
        {
            "event_id": str(new_id()),
            "decision_id": one["decision_id"],
            "type": "feedback.submit",
            "outcomes": {"success": float(rng.random())},
        }
        for one in answer["decisions"]
    ]
    await connection.ask(post("/v1/events", stack.key, msgspec.json.encode({"events": events})))
    connection.close()
    await _learn(stack)


async def _learn(stack: Stack) -> None:
    stop = asyncio.Event()
    learning = asyncio.create_task(
        run_learner(stack.database, stop=stop, settings=LearnerSettings(poll_s=0.05))
    )
    connection = await stack.database.connect("worker")
    while await connection.fetchval("SELECT count(*) FROM work WHERE due_at <= now()"):  # noqa: ASYNC110 (nothing tells)
        await asyncio.sleep(0.05)
    await connection.close()
    stop.set()
    await learning


async def _load(stack: Stack, seconds: float) -> Load:
    rng = np.random.default_rng(1)
    bodies = [post("/v1/decide", stack.key, msgspec.json.encode(_request(rng))) for _ in range(200)]
    ends = time.perf_counter() + seconds

    def requests(client: int) -> Iterator[bytes]:
        n = client
        while time.perf_counter() < ends:
            yield bodies[n % len(bodies)]
            n += 1

    return await drive(HOST, stack.port, requests, clients=CLIENTS)


async def _reload(stack: Stack, versions: list[str], seconds: float) -> list[float]:
    """Load one version after the other; return the ms from commit to first decision."""
    row = await _point(stack)
    connection = await stack.database.connect("worker")
    probe = await Connection.open(HOST, stack.port)
    request = post("/v1/decide", stack.key, msgspec.json.encode(_request(np.random.default_rng(2))))
    took = []
    ends = time.perf_counter() + seconds - PERIOD_S / 2
    while time.perf_counter() < ends:
        await asyncio.sleep(PERIOD_S / 2)
        version = versions.pop(0)
        async with as_tenant(connection, row.tenant):
            await promote_snapshot(connection, (row.tenant, row.skill, row.point), version, rows=[])
        begun = time.perf_counter()
        while msgspec.json.decode(await probe.ask(request))["snapshot"] != version:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        took.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(PERIOD_S / 2)
    probe.close()
    await connection.close()
    return took


async def _point(stack: Stack) -> PointRow:
    connection = await stack.database.connect("app")
    async with as_tenant(connection, stack.tenant):
        rows = await points_of(connection, stack.tenant)
    await connection.close()
    return next(row for row in rows if row.point == "reload")


def _request(rng: np.random.Generator) -> dict[str, Any]:
    context = {"v": rng.normal(size=48).round(3).tolist()}
    return {"skill": "bench", "decision": "reload", "context": context, "deadline_ms": 5000}
