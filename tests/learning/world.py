"""Test world of the learner: points of every algorithm, decisions and events."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.packed_events import log_events
from steersman.db.points import points_of
from steersman.learning.replica import load
from steersman.points.feature_encoding import rounded
from steersman.workers.learner import LearnerSettings, run_learner
from tests.db.rows import connected, decision_of, event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from steersman.db.decisions import DecisionRow
    from steersman.db.packed_events import EventRow
    from steersman.db.points import PointRow
    from steersman.learning.replica import Bases, Replica
    from steersman.platform.postgres.database import Database

NAMES = ("shallow", "middle", "deep")
POLICIES = {
    "lin_ucb": "{algorithm: lin_ucb}",
    "lin_ucb_forgets": "{algorithm: lin_ucb, forget: 0.9}",
    "bounded": "{algorithm: bounded_lin_ucb, forget: 0.8}",
    "kernel": "{algorithm: kernel_ucb, random_features: 8, forget: 0.9}",
    "lin_ts": "{algorithm: lin_ts, forget: 0.7}",
    "beta": "{algorithm: beta_thompson, key: intent}",
    "epsilon": "{algorithm: epsilon_greedy, contextual: true, decay: 0.99}",
    "plain_epsilon": "{algorithm: epsilon_greedy}",
    "squarecb": "{algorithm: joint_squarecb, forget: 0.9}",
    "joint_ts": "{algorithm: joint_lin_ts, draws: 8}",
    "fixed": "{algorithm: fixed, action: deep}",
}
QUICK = LearnerSettings(poll_s=0.05, linger_s=0.0, lease_s=2.0)
_DAY_S = 86_400.0


def document(
    policy: str = "lin_ucb", *, reward: str = "", learning: str = "", dim: int = 12
) -> str:
    """Return a declaration with one of the policies above."""
    features = ", features: [price, speed]" if "joint" in POLICIES[policy] else ""
    return f"""
format: 1
skill: search
decision: depth
context:
  dim: {dim}
  fields:
    intent: {{type: category}}
    length: {{type: number, mean: 0.0, sd: 1.0, missing: mean}}
actions: {{kind: choice, names: [shallow, middle, deep]{features}}}
policy: {POLICIES[policy]}
floor: 0.3
fallback: {{rules: [], otherwise: shallow}}
reward: {{terms: {{success: {{weight: 1}}}}, {reward or "window_s: 600"}}}
learning: {{{learning or "mode: online"}}}
"""


async def declared(database: Database, tenant: UUID, **options: Any) -> PointRow:
    return await declare(database, tenant, document(**options), actor="test")


def decided(
    row: PointRow, rng: np.random.Generator, *, at: float | None = None, **changes: Any
) -> DecisionRow:
    """Return a decision over a random context, as the service would write it."""
    at = time.time() if at is None else at
    context = {"intent": str(rng.integers(4)), "length": round(float(rng.normal()), 3)}
    action = NAMES[rng.integers(len(NAMES))]  # the draw of `choice`, in a fifth of its time
    made = decision_of(row, context, action, at=at, distribution=[0.3, 0.3, 0.4], p=0.3)
    if row.spec.policy.algorithm.startswith("joint_"):
        features = rounded(rng.normal(size=(3, 2)))
        x = features[NAMES.index(action)].tolist()
        made = replace(made, x=x, features=features.ravel().tolist())
    return replace(made, **changes)


def happened(
    row: DecisionRow, outcomes: dict[str, float] | None = None, **changes: Any
) -> EventRow:
    """Return an event one second after a decision."""
    at = row.at + timedelta(seconds=1)
    made = event(row.tenant, row.id, at=at, received_at=at, outcomes=outcomes, body=None)
    return made._replace(**changes)


async def write(
    database: Database, decisions: Sequence[DecisionRow] = (), events: Sequence[EventRow] = ()
) -> None:
    """Write decisions in one transaction, and each event in its own, in order."""
    async with connected(database) as connection:
        if decisions:
            await log_decisions(connection, list(decisions))
        for one in events:
            assert await log_events(connection, [one]) == {}


async def traffic(
    database: Database, row: PointRow, n: int, *, seed: int = 0, days: float = 5.0
) -> list[DecisionRow]:
    """Write decisions of some days with one reward each."""
    rng = np.random.default_rng(seed)
    start = time.time() - days * _DAY_S
    decisions = [decided(row, rng, at=start + i * days * _DAY_S / n) for i in range(n)]
    events = [happened(one, {"success": float(rng.random())}) for one in decisions]
    await write(database, decisions, events)
    return decisions


async def corrections(database: Database, decisions: Sequence[DecisionRow]) -> None:
    rng = np.random.default_rng(1)
    events = [
        happened(one, {"success": float(rng.random())}, at=one.at + timedelta(seconds=9))
        for one in decisions[::7]
    ]
    await write(database, [], events)


async def learn_all(
    database: Database,
    *,
    clock: Callable[[], float] = time.time,
    settings: LearnerSettings = QUICK,
    watch: Callable[[Any], None] = lambda _done: None,
    bases: Bases | None = None,
) -> None:
    """Run a learner until nothing is due."""
    stop = asyncio.Event()
    running = asyncio.create_task(
        run_learner(database, stop=stop, clock=clock, settings=settings, watch=watch, bases=bases)
    )
    try:
        await nothing_due(database, clock=clock, running=running)
    finally:
        stop.set()
        await running


async def nothing_due(
    database: Database,
    *,
    clock: Callable[[], float] = time.time,
    running: asyncio.Task[None] | None = None,
    within_s: float = 60.0,
) -> None:
    until = time.monotonic() + within_s
    async with connected(database, "worker") as connection:
        while await connection.fetchval(
            "SELECT count(*) FROM work WHERE due_at <= $1", datetime.fromtimestamp(clock(), UTC)
        ):
            assert time.monotonic() < until, "work is left undone"
            assert running is None or not running.done(), running
            await asyncio.sleep(0.01)


async def point_of(database: Database, tenant: UUID) -> PointRow:
    async with connected(database, "worker", tenant) as connection:
        (row,) = await points_of(connection, tenant)
        return row


async def replica_of(database: Database, tenant: UUID) -> Replica:
    async with connected(database, "worker", tenant) as connection:
        (row,) = await points_of(connection, tenant)
        return await load(connection, row)


async def rows(database: Database, tenant: UUID, query: str, *arguments: Any) -> list[Any]:
    async with connected(database, "worker", tenant) as connection:
        return list(await connection.fetch(query, *arguments))


def bits(policy: Any) -> dict[str, bytes]:
    """Return a policy's state for exact comparison."""
    return {name: array.tobytes() for name, array in policy.state().items()}


async def spoil(database: Database, tenant: UUID, text: str, *, point: str = "depth") -> None:
    """Store an unreadable text of a declaration."""
    async with connected(database, "owner", tenant) as connection:
        await connection.execute(f"UPDATE spec SET document = {text} WHERE point = $1", point)
