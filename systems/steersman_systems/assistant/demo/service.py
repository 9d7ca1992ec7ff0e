"""First arrival order of the demo, decided by the service over HTTP, with measurements."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from steersman.cli.options import run
from steersman.cli.running_service import served
from steersman.client import Client
from steersman.db.decision_queries import count_rows
from steersman.db.learners import count_due
from steersman.db.updates import update_causes
from steersman.errors import StoreError
from steersman.platform.postgres.database import as_tenant
from steersman_systems.assistant.consequences import Consequences
from steersman_systems.assistant.demo.http_choosers import Talk, asking
from steersman_systems.assistant.demo.prior import PREFIX, write_prior
from steersman_systems.assistant.points import load_points, point_documents
from steersman_systems.assistant.replay import replay
from steersman_systems.assistant.routes import Deep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from steersman.cli.running_service import Served
    from steersman.platform.postgres.database import Database
    from steersman_systems.assistant.demo.http_choosers import ServiceAnswer
    from steersman_systems.assistant.log import Log
    from steersman_systems.assistant.stream import Stream
    from steersman_systems.assistant.world import World

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """Arrival order decided over HTTP.

    Attributes:
        log: Same form as the log of an in-process replay.
        talk: Answers and events.
        at: Index in ``talk.heard`` of the first answer about each arrival.
        service: Still running.
    """

    log: Log
    talk: Talk
    at: Sequence[int]
    service: Served


@contextmanager
def drive(
    world: World,
    stream: Stream,
    *,
    order: int,
    home: Path | None,
    say: Callable[[str], None],
    arrivals: int | None = None,
    controller: bool = False,
    progress: Callable[[Iterable[int]], Iterable[int]] = lambda places: places,
) -> Iterator[ServiceRun]:
    """Start a service, let it decide an arrival order, and stop it.

    Args:
        home: Directory of the store, for a new tenant; None: a temporary directory.
        arrivals: Number of arrivals to decide; None: all.

    Raises:
        StoreError: The service does not start, or does not learn in time.
    """
    points = load_points()
    with _talking(home, controller=controller, say=say) as (service, talk):
        wait_for_learner(service)
        first: list[int] = []
        places = progress(range(len(stream) if arrivals is None else arrivals))
        log = replay(
            world,
            Consequences(world, points, Deep()),
            stream,
            asking(talk, points),
            np.random.default_rng([order, 1]),
            keep=True,
            progress=_noted(places, talk, first),
        )
        _deliver(talk)
        wait_for_learner(service)
        yield ServiceRun(log, talk, first, service)


def measure(driven: ServiceRun) -> dict[str, Any]:
    """Return acknowledged and stored rows, decision latency and learning lag.

    Returns:
        ``acknowledged``: decisions answered as committed, and accepted events. ``stored``: rows of
        both in the database. ``decide_ms``: decision latency at the client. ``learn_lag_ms``: time
        from receiving an outcome until both service processes have answered from a state that
        contains it. The lag includes the wait for the next request.
    """
    service, talk = driven.service, driven.talk
    refused = sum(len(client.refused()) for client in talk.clients)
    decisions = sum(heard.logged for heard in talk.heard)
    rows, learned = run(_stored(service.database, service.tenant.id))
    lags = learning_lags(talk.heard, learned, len(talk.clients))
    return {
        "acknowledged": decisions + len(talk.told) - refused,
        "stored": rows,
        "decide_ms": _percentiles([heard.took_ms for heard in talk.heard]),
        "learn_lag_ms": _percentiles(lags),
        "service": {
            "processes": len(talk.clients),
            "decisions": len(talk.heard),
            "events": len(talk.told),
            "not_logged_in_time": len(talk.heard) - decisions,
            "updates": len(learned),
            "updates_timed": len(lags),
            "reward": float(driven.log.rewards.mean()),
        },
    }


def learning_lags(
    heard: Sequence[ServiceAnswer], learned: Sequence[tuple[str, int, float]], processes: int
) -> list[float]:
    """Return the learning lag of each update in milliseconds.

    Args:
        learned: (point, update number, time at which its outcome was received).

    >>> from uuid import UUID
    >>> from steersman_systems.assistant.demo.http_choosers import ServiceAnswer
    >>> answers = [ServiceAnswer("p", n % 2, 10.0 + n, 1.0, n, UUID(int=n), True) for n in range(6)]
    >>> learning_lags(answers, [("p", 3, 12.5), ("p", 5, 14.5)], processes=2)
    [1500.0]
    """
    lags = []
    for point in {name for name, _, _ in learned}:
        reached = []
        for process in range(processes):
            own = [h for h in heard if h.point == point and h.process == process]
            reached.append(
                (
                    np.maximum.accumulate([h.update_seq for h in own] or [0]),
                    [h.answered_at for h in own],
                )
            )
        for name, seq, received in learned:
            places = [int(np.searchsorted(seqs, seq)) for seqs, _ in reached]
            if name == point and all(
                place < len(times) for place, (_, times) in zip(places, reached, strict=True)
            ):
                used = max(times[p] for p, (_, times) in zip(places, reached, strict=True))
                lags.append(1000.0 * (used - received))
    return lags


def explanations(driven: ServiceRun, arrival: int) -> list[dict[str, Any]]:
    """Return the service's explanations of the decisions about one arrival."""
    begin = driven.at[arrival]
    asked = {heard.point: heard.decision_id for heard in reversed(driven.talk.heard[begin:])}
    client = driven.talk.clients[0]
    points = [decision.point for decision in driven.log.at(arrival)]
    return [client.explain(asked[point], recompute=True, timeout_ms=30_000) for point in points]


@contextmanager
def _talking(
    home: Path | None, *, controller: bool, say: Callable[[str], None]
) -> Iterator[tuple[Served, Talk]]:
    """Start a service for a new tenant, with one client per service process."""
    with ExitStack() as exits:
        if home is None:
            home = exits.enter_context(_temporary())
        name = f"demo-{uuid4().hex[:12]}"
        documents = point_documents()
        service = exits.enter_context(
            served(home, name, documents, controller=controller, say=say, before=write_prior)
        )
        clients = [
            exits.enter_context(Client(url, service.key, queue_dir=home / f"queue-{n}"))
            for n, url in enumerate(service.urls, 1)
        ]
        yield service, Talk(clients)


@contextmanager
def _temporary() -> Iterator[Path]:
    # A short path: socket paths are limited to about 100 characters.
    from pathlib import Path  # noqa: PLC0415

    with TemporaryDirectory(prefix="steersman-") as folder:
        yield Path(folder)


def _noted(places: Iterable[int], talk: Talk, first: list[int]) -> Iterator[int]:
    """Yield the places, and record the index of the first answer about each."""
    for place in places:
        first.append(len(talk.heard))
        yield place


def _deliver(talk: Talk) -> None:
    for client in talk.clients:
        if left := client.flush(_PATIENCE_S):
            raise StoreError(
                f"{left} events were not delivered in {_PATIENCE_S:g} s; see the service's logs"
            )


def wait_for_learner(service: Served, patience_s: float = _PATIENCE_S) -> None:
    """Wait until the learner has no due work.

    Args:
        patience_s: Timeout in seconds.

    Raises:
        StoreError: Timeout.
    """
    deadline = time.monotonic() + patience_s
    while run(_waiting(service.database, service.tenant.id)):
        if time.monotonic() > deadline:
            message = f"outcomes were not learned in {patience_s:g} s; see {service.home / 'logs'}"
            raise StoreError(message)
        time.sleep(0.05)


async def _waiting(database: Database, tenant: Any) -> int:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant):
            return await count_due(connection)
    finally:
        await connection.close()


async def _stored(database: Database, tenant: Any) -> tuple[int, list[tuple[str, int, float]]]:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant):
            return (
                await count_rows(connection, without_events=PREFIX),
                await update_causes(connection, without_events=PREFIX),
            )
    finally:
        await connection.close()


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    p50, p99 = np.percentile(values, [50, 99]) if values else (0.0, 0.0)
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}
