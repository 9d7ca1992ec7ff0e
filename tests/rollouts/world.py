"""A small world for rollouts: a point with a log, a published candidate, units that arrive in time.

Time is a number that tests move on. Decisions are written as services write them, by the place of
each unit; what they earn depends on the arm, so a candidate is as good as a test wants it to be.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.incidents import incidents_of
from steersman.db.packed_events import log_events
from steersman.db.points import points_of
from steersman.db.rollouts import find_rollout
from steersman.db.tenants import create_tenant
from steersman.db.verdicts import verdicts_of
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.plan import RolloutPlan
from steersman.rollouts.start import StartRequest, start
from steersman.rollouts.units import place, position
from steersman.rollouts.verdicts import recompute
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from steersman.workers.rollout_controller import ControllerSettings, run_controller
from tests.learning.world import decided, happened, learn_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from uuid import UUID

    from steersman.db.incidents import IncidentRow
    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.verdicts import VerdictRow
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.controller_step import StepResult

STAGES = (
    ("shadow", 0.0, 20),
    ("canary", 0.1, 30),
    ("ab", 0.25, 30),
    ("ab", 0.5, 30),
    ("live", 0.9, 30),
)
PACES = ControllerSettings(
    poll_s=0.02,
    lease_s=2.0,
    keep_s=0.0,
    settle_s=0.1,
    evidence_s=0.0,
    reload_s=0.0,
    clock_steady_s=5.0,
    holder="test",
)


def document(
    point: str = "depth", *, rollout: str = "", window_s: float = 1.0, min_s: float = 2.0
) -> str:
    """Return a declaration whose windows and stages take seconds."""
    stages = ", ".join(
        f"{{name: {name}, share: {share}, min_units: {units}, min_s: {min_s}}}"
        for name, share, units in STAGES
    )
    return f"""
format: 1
skill: search
decision: {point}
context:
  dim: 8
  fields:
    intent: {{type: category}}
    length: {{type: number, mean: 0.0, sd: 1.0, missing: mean}}
actions: {{kind: choice, names: [shallow, middle, deep]}}
policy: {{algorithm: lin_ucb}}
floor: 0.3
fallback: {{rules: [], otherwise: shallow}}
reward: {{terms: {{success: {{weight: 1}}}}, window_s: {window_s}}}
rollout:
  stages: [{stages}]
  first_look_units: 20
  planned_units: 200
  harm_units: 50
  stale_s: 20
  error_budget: {{objective: 0.9, period_s: 7200, min_errors: 5}}
  {rollout}
"""


class Clock:
    """Seconds since 1970 that pass when a test says so, and a clock that never steps."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.ticks = 0.0

    def wall(self) -> float:
        """Return the time that people set."""
        return self.now

    def monotonic(self) -> float:
        """Return the time that nobody sets."""
        return self.ticks

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.ticks += seconds

    def jump(self, seconds: float) -> None:
        """Set the clock."""
        self.now += seconds


class EverybodysClock:
    """The time of everybody, for controllers that are processes of their own."""

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def wall(self) -> float:
        """Return the same."""
        return time.time()


class NoSigner:
    """Stands for the registry, where a test is not about it."""

    def publish(self, data: bytes, description: Any, **_: Any) -> Any:
        """Sign nothing."""
        return description


@dataclass
class World:
    """One decision point with a log, and a published candidate."""

    database: Database
    tenant: UUID
    row: PointRow
    candidate: str
    clock: Any
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    units: int = 0
    turns: int = 0
    last: StepResult | None = None

    async def start(self, **changes: Any) -> RolloutRow:
        """Start a rollout of the candidate."""
        wanted = StartRequest(
            **{
                "skill": self.row.skill,
                "point": self.row.point,
                "candidate": self.candidate,
                "reason": "test",
                **changes,
            }
        )
        who = {"actor": "test", "clock": self.clock.wall}
        return await start(self.database, self.tenant, wanted, salt="as always", **who)

    async def rollout(self, identifier: UUID) -> RolloutRow:
        """Return a rollout as it stands."""
        return await self.read(lambda it: find_rollout(it, self.tenant, identifier))

    async def verdicts(self, identifier: UUID) -> list[VerdictRow]:
        """Return all verdicts of a rollout."""
        return await self.read(lambda it: verdicts_of(it, self.tenant, identifier, limit=10_000))

    async def incidents(self) -> list[IncidentRow]:
        """Return all incidents of the tenant."""
        return await self.read(lambda it: incidents_of(it, self.tenant))

    async def point(self) -> PointRow:
        """Return the point as it is now."""
        (row,) = await self.read(lambda it: points_of(it, self.tenant))
        return row

    async def read(self, work: Callable[[Any], Any]) -> Any:
        """Return what a query of the tenant says."""
        connection = await self.database.connect("worker")
        try:
            async with as_tenant(connection, self.tenant):
                return await work(connection)
        finally:
            await connection.close()

    async def arrive(
        self,
        rollout: RolloutRow,
        n: int,
        *,
        candidate: float = 0.5,
        control: float = 0.5,
        lose: Callable[[str], float] = lambda _arm: 0.0,
        failing: float = 0.0,
        outcomes: Callable[[str], dict[str, float]] = lambda _arm: {},
        per_unit: int = 1,
    ) -> None:
        """Let n new units decide, as services write it, and earn what their arm is worth."""
        plan = RolloutPlan.from_json(rollout.plan)
        made, events = [], []
        for _ in range(n):
            self.units += 1
            unit = f"u{self.units}"
            label, arm = self._label(rollout, plan, unit)
            if self.rng.random() < lose(arm):
                continue
            if arm == "candidate" and self.rng.random() < failing:
                label["arm"] = "control"
            for _ in range(per_unit):
                at = self.clock.now - self.rng.random() * self.row.spec.reward.window_s / 2
                one = decided(self.row, self.rng, at=at, unit=unit, p=1 / 3, **label)
                made.append(one)
                mean = candidate if label.get("arm") == "candidate" else control
                earned = {"success": float(self.rng.random() < mean), **outcomes(arm)}
                events.append(happened(one, earned, at=one.at, received_at=one.at))
        connection = await self.database.connect("app")
        try:
            if made:
                await log_decisions(connection, made)
                await log_events(connection, events)
        finally:
            await connection.close()

    def _label(
        self, rollout: RolloutRow, plan: RolloutPlan, unit: str
    ) -> tuple[dict[str, Any], str]:
        if not rollout.is_under_way:
            return {}, "control"
        share = min(rollout.share, 0.5)
        placed = place(position(rollout.salt, unit), rollout.stage, share, plan.holdback)
        own = placed.analysed or placed.arm == "candidate"
        label: dict[str, Any] = {
            "rollout": str(rollout.id) if own else None,
            "stage": rollout.stage if own else "live",
            "arm": placed.arm,
        }
        if placed.arm == "candidate":
            label |= {"snapshot": rollout.candidate, "update_seq": 0}
        return label, placed.arm

    async def drive(
        self,
        identifier: UUID,
        *,
        steps: int,
        units: int = 300,
        until: Callable[[RolloutRow], bool] = lambda row: not row.is_under_way,
        **options: Any,
    ) -> RolloutRow:
        """Let units arrive and time pass until something is so, or for so many seconds."""
        for _ in range(steps):
            rollout = await self.rollout(identifier)
            if until(rollout):
                return rollout
            await self.arrive(rollout, units, **options)
            self.clock.pass_(1.0)
            await self.turn()
        return await self.rollout(identifier)

    @asynccontextmanager
    async def visited(self, identifier: UUID, **options: Any) -> AsyncIterator[None]:
        """Let units arrive all the time, as long as it is under way, in the time of everybody."""

        async def visit() -> None:
            while (row := await self.rollout(identifier)).is_under_way:
                await self.arrive(row, 120, **options)
                await asyncio.sleep(0.2)  # each look is a connection of its own

        visiting = asyncio.create_task(visit())
        try:
            yield
        finally:
            visiting.cancel()
            await asyncio.gather(visiting, return_exceptions=True)

    async def turn(self, within_s: float = 30.0) -> None:
        """Wait until a controller has looked after now."""
        wanted = self.turns + 2  # the first may have begun before
        deadline = time.monotonic() + within_s
        while self.turns < wanted:
            row = self.last
            if row is not None and not row.row.is_under_way:
                return
            assert time.monotonic() < deadline, "no controller looks"
            await asyncio.sleep(0.005)

    def watch(self, done: StepResult) -> None:
        """Count the turns of controllers at this tenant's rollouts."""
        if done.row.tenant == self.tenant:
            self.turns += 1
            self.last = done

    @asynccontextmanager
    async def controlled(self, **options: Any) -> AsyncIterator[None]:
        """Run a controller meanwhile."""
        stop = asyncio.Event()
        self.last = None
        running = asyncio.create_task(
            run_controller(
                self.database,
                stop=stop,
                clock=self.clock.wall,
                monotonic=self.clock.monotonic,
                **{"settings": PACES, "watch": self.watch, **options},
            )
        )
        try:
            yield
        finally:
            stop.set()
            await running


async def world(
    database: Database, tenant: UUID, *, log: int = 400, signer: Any = None, **declared: Any
) -> World:
    """Return a point that has learned from a log, with a candidate published from it."""
    row = await declare(database, tenant, document(**declared), actor="test")
    rng = np.random.default_rng(7)
    begun = time.time() - 3600.0
    made = [decided(row, rng, at=begun + i, p=1 / 3, unit=f"before-{i}") for i in range(log)]
    connection = await database.connect("app")
    try:
        await log_decisions(connection, made)
        earned = [0.9 if one.action == "deep" else 0.2 for one in made]
        events = [
            happened(one, {"success": float(rng.random() < mean)}, at=one.at, received_at=one.at)
            for one, mean in zip(made, earned, strict=True)
        ]
        await log_events(connection, events)
    finally:
        await connection.close()
    await learn_all(database)
    version = (await publish(database, row, signer or NoSigner(), Reason(actor="test"))).version
    return World(database, tenant, row, version, Clock(time.time()))


async def another(database: Database, name: str, **options: Any) -> World:
    """Return the world of another tenant."""
    made = await create_tenant(database, name, actor="test")
    return await world(database, made.id, **options)


async def check_history(world: World, identifier: UUID) -> list[VerdictRow]:
    """Verdicts are gapless, each follows from its inputs, and each step was left once."""
    rows = await world.verdicts(identifier)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert all(recompute(row) for row in rows)
    moved = [row.step for row in rows if row.acted in {"next_stage", "promoted", "rolled_back"}]
    assert moved == sorted(set(moved)), moved
    assert [row.step for row in rows] == sorted(row.step for row in rows)
    return rows
