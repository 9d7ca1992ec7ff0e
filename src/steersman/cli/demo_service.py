"""The demo's order of arrivals that is decided by the real service, and what is measured there."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from steersman.cli.demo_asking import Talk, asking
from steersman.cli.demo_prior import PREFIX, write_prior
from steersman.cli.options import run
from steersman.cli.serving import served
from steersman.client import Client
from steersman.errors import StoreError
from steersman.store import as_tenant
from steersman.systems.assistant.consequences import Consequences
from steersman.systems.assistant.points import load_points, point_documents
from steersman.systems.assistant.replay import replay
from steersman.systems.assistant.routes import Deep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from steersman.cli.demo_asking import Heard
    from steersman.cli.serving import Served
    from steersman.store import Database
    from steersman.systems.assistant.log import Log
    from steersman.systems.assistant.stream import Stream
    from steersman.systems.assistant.world import World

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Driven:
    """An order of arrivals that was decided over HTTP.

    Attributes:
        log: as of a replay in one process.
        talk: what was asked and told.
        at: which decisions belong to which arrival: the first answer of each in ``talk.heard``.
        service: still running.
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
) -> Iterator[Driven]:
    """Start a service, have it decide an order of arrivals, and stop it in the end.

    Args:
        world: the requests.
        stream: its arrivals.
        order: seed of the draws.
        home: holds the store, for a new tenant; None: a temporary directory.
        say: is told what goes wrong on the way.
        arrivals: only so many.
        controller: whether one looks after rollouts.
        progress: wraps the places of the arrivals.

    Yields:
        What came of it; everything that was told is stored and learned.

    Raises:
        StoreError: the service does not start, or does not learn in time.
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
        yield Driven(log, talk, first, service)


def measure(driven: Driven) -> dict[str, Any]:
    """Return what was promised, what is there, and how long it took.

    Args:
        driven: while the service runs.

    Returns:
        ``acknowledged``: decisions answered as durable and events that the service took;
        ``stored``: rows of both, counted in the database; ``decide_ms``: a decision as the client
        saw it; ``learn_lag_ms``: from when the service received an outcome, before it acknowledged
        it, until both service processes had answered from a state that holds it. The answers are
        those that the demo needed anyway, so this lag includes the wait for the next request.
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
    heard: Sequence[Heard], learned: Sequence[tuple[str, int, float]], processes: int
) -> list[float]:
    """Return how long each update took to be decided from in every process, in milliseconds.

    Args:
        heard: all answers, in their order.
        learned: (point, number of the update, when its outcome was received).
        processes: how many there are.

    Returns:
        One entry per update that every process used; the last ones of a run are not used by all.

    >>> from uuid import UUID
    >>> from steersman.cli.demo_asking import Heard
    >>> answers = [Heard("p", n % 2, 10.0 + n, 1.0, n, UUID(int=n), True) for n in range(6)]
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


def explanations(driven: Driven, arrival: int) -> list[dict[str, Any]]:
    """Return what the service tells of the decisions about one arrival.

    Args:
        driven: while the service runs.
        arrival: its place.

    Returns:
        One entry per decision of ``driven.log.at(arrival)``, with the state it was drawn from
        computed again.
    """
    begin = driven.at[arrival]
    asked = {heard.point: heard.decision_id for heard in reversed(driven.talk.heard[begin:])}
    client = driven.talk.clients[0]
    points = [decision.point for decision in driven.log.at(arrival)]
    return [client.explain(asked[point], recompute=True, timeout_ms=30_000) for point in points]


@contextmanager
def _talking(
    home: Path | None, *, controller: bool, say: Callable[[str], None]
) -> Iterator[tuple[Served, Talk]]:
    """Start a service for a new tenant, and a client of each of its processes."""
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
    # A short path: a socket's may have a hundred characters at most.
    from pathlib import Path  # noqa: PLC0415

    with TemporaryDirectory(prefix="steersman-") as folder:
        yield Path(folder)


def _noted(places: Iterable[int], talk: Talk, first: list[int]) -> Iterator[int]:
    """Yield the places, and note which answer will be the first of each."""
    for place in places:
        first.append(len(talk.heard))
        yield place


def _deliver(talk: Talk) -> None:
    for client in talk.clients:
        if left := client.flush(_PATIENCE_S):
            raise StoreError(f"{left} events were not delivered in {_PATIENCE_S:g} s")


def wait_for_learner(service: Served, patience_s: float = _PATIENCE_S) -> None:
    """Wait until everything that is due is learned.

    Args:
        service: running.
        patience_s: the most that it may take.

    Raises:
        StoreError: it takes longer.
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
            found: int = await connection.fetchval(
                "SELECT count(*) FROM work WHERE due_at <= now()"
            )
            return found
    finally:
        await connection.close()


async def _stored(database: Database, tenant: Any) -> tuple[int, list[tuple[str, int, float]]]:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant):
            rows: int = await connection.fetchval(
                "SELECT (SELECT count(*) FROM decision WHERE p_kind <> 'none') "
                "+ (SELECT count(*) FROM event WHERE id NOT LIKE $1)",
                f"{PREFIX}%",
            )
            learned = await connection.fetch(
                "SELECT u.point, u.seq, extract(epoch FROM min(e.received_at))::float8 "
                "FROM update AS u JOIN event AS e ON e.decision = u.decision "
                "WHERE e.outcomes IS NOT NULL AND e.id NOT LIKE $1 GROUP BY u.point, u.seq",
                f"{PREFIX}%",
            )
    finally:
        await connection.close()
    return rows, [tuple(row) for row in learned]


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    p50, p99 = np.percentile(values, [50, 99]) if values else (0.0, 0.0)
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}
