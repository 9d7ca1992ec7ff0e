"""Rollouts of the demo: the learned route is promoted, then a broken version is rolled back.

The route serves again as installed, without experience. What it learned is published, signed and
rolled out against that control in stages. Then a version that sends every request to the fast
engine is published by force, past the publish guard, and rolled out without shadow stage.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.cli.options import run
from steersman.cli.signing_keys import make_sample_registry, publisher_of
from steersman.db.declarations import declare
from steersman.db.derived_snapshots import hold_point
from steersman.db.points import points_of
from steersman.db.promotion import pin_point
from steersman.db.rollouts import find_rollout
from steersman.db.verdicts import verdicts_of
from steersman.errors import GuardError, RolloutError, StoreError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.start import StartRequest, start
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from steersman_systems.assistant.consequences import Consequences
from steersman_systems.assistant.demo.traffic import Traffic, visits_of
from steersman_systems.assistant.points import load_points, point_documents
from steersman_systems.assistant.routes import Deep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from steersman.cli.running_service import Served
    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.verdicts import VerdictRow
    from steersman.registry.description import Description
    from steersman.registry.repository import Publisher
    from steersman_systems.assistant.demo.service import ServiceRun
    from steersman_systems.assistant.world import World

_ACTOR = "demo"
_SEED = 4
_WINDOW_S = 2.0
_LONGEST_S = 150.0
_STAGES = (
    {"name": "shadow", "share": 0.0, "min_units": 100, "min_s": 1.0},
    {"name": "canary", "share": 0.1, "min_units": 50, "min_s": 2.0},
    {"name": "ab", "share": 0.25, "min_units": 50, "min_s": 2.0},
    {"name": "ab", "share": 0.5, "min_units": 50, "min_s": 2.0},
    {"name": "live", "share": 0.95, "min_units": 10, "min_s": 2.0},
)
_SHORT = {"unit_window_s": 0.5, "stale_s": 30.0, "planned_units": 1000, "harm_units": 200}
_FORCE = "to show that it is rolled back"
_BROKEN = "policy: {algorithm: fixed, action: micro}"


@dataclass(frozen=True, slots=True)
class RolloutSetup:
    """A running service with traffic and a publisher.

    Attributes:
        service: Must have a rollout controller.
        traffic: Requests sent during the rollout.
        publisher: Signer of the tenant.
        say: Prints a progress line.
    """

    service: Served
    traffic: Traffic
    publisher: Publisher
    say: Callable[[str], None]

    def rolled_out(self, wanted: StartRequest) -> tuple[RolloutRow, list[VerdictRow]]:
        """Start a rollout and send traffic until it ends.

        Raises:
            StoreError: The rollout did not end in time.
        """
        database, tenant = self.service.database, self.service.tenant.id
        row = run(start(database, tenant, wanted, actor=_ACTOR, clock=time.time))
        deadline = time.monotonic() + _LONGEST_S
        printed, looked = 0, 0.0
        with _watching(self.service, row.id) as standing:
            while True:
                self.traffic.go_on()
                if time.monotonic() < looked + 0.25:
                    continue
                looked = time.monotonic()
                row, verdicts = standing()
                for verdict in verdicts[printed:]:
                    if verdict.acted not in {"none", "held"}:
                        self.say(_line(row, verdict))
                printed = len(verdicts)
                if row.ended_at is not None:
                    return row, verdicts
                if looked > deadline:
                    reasons = "; ".join(verdicts[-1].reasons) if verdicts else "no verdict yet"
                    message = f"the rollout of {row.candidate} did not end in {_LONGEST_S:g} s: "
                    raise StoreError(f"{message}{reasons}; see {self.service.home / 'logs'}")


def ship(driven: ServiceRun, world: World, say: Callable[[str], None]) -> dict[str, Any]:
    """Roll out what the route learned, then a broken version.

    Raises:
        StoreError: A rollout did not end in time.
    """
    service = driven.service
    make_sample_registry(service.home, service.tenant.name)
    publisher = publisher_of(service.home, service.tenant.name)
    assert publisher is not None  # noqa: S101 (made just now)
    point = run(_as_installed(service))
    visits = visits_of(driven.log, Consequences(world, load_points(), Deep()))
    traffic = Traffic(service.urls, service.key, visits, np.random.default_rng([_SEED]))
    shipping = RolloutSetup(service, traffic, publisher, say)
    learned = run(publish(service.database, point, publisher, Reason(actor=_ACTOR)))
    say(f"{_name(point)} {learned.version}: published and signed, {learned.samples:,.0f} samples")
    first = _good(shipping, point, learned)
    return {"rollouts": [first], "bad_candidate": _bad(shipping, point)}


def _good(shipping: RolloutSetup, point: PointRow, learned: Description) -> dict[str, Any]:
    wanted = StartRequest(
        skill=point.skill,
        point=point.point,
        candidate=learned.version,
        reason="ship what was learned",
        overrides={**_SHORT, "stages": _STAGES},
    )
    row, verdicts = shipping.rolled_out(wanted)
    return _told(row, verdicts)


def _bad(shipping: RolloutSetup, point: PointRow) -> dict[str, Any]:
    """Roll out a broken version by force, and wait until it is rolled back."""
    service, say = shipping.service, shipping.say
    point = _now(service, point)
    broken = _with_broken_policy(_document())
    bad, advice = _published(shipping, point, broken)
    wanted = StartRequest(
        skill=point.skill,
        point=point.point,
        candidate=bad.version,
        reason="a deliberately broken version",
        overrides={**_SHORT, "stages": _STAGES[1:]},
    )
    try:
        row, verdicts = shipping.rolled_out(wanted)
    except RolloutError as error:
        advice.append(str(error))
        say(f"rollout refused: {error}")
        say(f"{bad.version}: rollout started by force")
        row, verdicts = shipping.rolled_out(replace(wanted, force=_FORCE))
    took = (row.ended_at - row.started_at).total_seconds() if row.ended_at else float("nan")
    return {
        "snapshot": row.candidate,
        "status": row.status,
        "advised_against": advice,
        "detected_after_units": _units(verdicts[-1]),
        "detected_after_seconds": round(took, 1),
        "requests_harmed": shipping.traffic.arms.get((row.candidate, "candidate"), 0),
        "serving_snapshot_after": _now(service, point).snapshot,
        "rollout": _told(row, verdicts),
    }


def _published(
    shipping: RolloutSetup, point: PointRow, document: str
) -> tuple[Description, list[str]]:
    """Publish a declaration, by force if refused; return it with the reasons against it."""
    database, signer = shipping.service.database, shipping.publisher
    advice: list[str] = []
    how = "published and signed"
    try:
        made = run(publish(database, point, signer, Reason(actor=_ACTOR), spec=document))
    except GuardError as error:
        advice = list(error.reasons)
        shipping.say(f"publish guard refused: {'; '.join(advice)}")
        how += " by force"
        forced = Reason(actor=_ACTOR, force=_FORCE)
        made = run(publish(database, point, signer, forced, spec=document))
    shipping.say(f"{_name(point)} {made.version}: {how}; broken: always `micro`")
    return made, advice


def _now(service: Served, point: PointRow) -> PointRow:
    (found,) = [one for one in run(_points(service)) if one.point == point.point]
    return found


async def _as_installed(service: Served) -> PointRow:
    """Pin the route to its initial state while it goes on learning; rewards take seconds."""
    row = await declare(service.database, service.tenant.id, _document(), actor=_ACTOR)
    connection = await service.database.connect("worker")
    try:
        async with connection.transaction():
            point = row.tenant, row.skill, row.point
            await hold_point(connection, point)
            await pin_point(connection, point, 0)
    finally:
        await connection.close()
    return row


async def _points(service: Served) -> list[PointRow]:
    connection = await service.database.connect("app")
    try:
        async with as_tenant(connection, service.tenant.id):
            return await points_of(connection, service.tenant.id)
    finally:
        await connection.close()


@contextmanager
def _watching(
    service: Served, identifier: UUID
) -> Iterator[Callable[[], tuple[RolloutRow, list[VerdictRow]]]]:
    """Yield a reader of the rollout's state, on one open connection."""
    with asyncio.Runner() as loop:
        connection = run(service.database.connect("app"), by=loop.run)
        try:
            yield lambda: run(_standing(connection, service.tenant.id, identifier), by=loop.run)
        finally:
            run(connection.close(), by=loop.run)


async def _standing(
    connection: Any, tenant: UUID, identifier: UUID
) -> tuple[RolloutRow, list[VerdictRow]]:
    async with as_tenant(connection, tenant):
        row = await find_rollout(connection, tenant, identifier)
        assert row is not None  # noqa: S101 (started just now)
        return row, await verdicts_of(connection, tenant, identifier)


def _document() -> str:
    """Return the route's declaration with a reward window of seconds."""
    document = point_documents()[1]
    return document.replace("window_s: 600", f"window_s: {_WINDOW_S:g}")


def _with_broken_policy(document: str) -> str:
    lines = document.splitlines()
    return "\n".join(_BROKEN if line.startswith("policy:") else line for line in lines) + "\n"


def _told(row: RolloutRow, verdicts: list[VerdictRow]) -> dict[str, Any]:
    ended = row.ended_at or row.started_at
    begins = [row.started_at, *(one.at for one in verdicts if one.acted == "next_stage")]
    stages = row.plan["stages"][: len(begins)]
    return {
        "snapshot": row.candidate,
        "control": f"{row.control}+{row.control_seq}",
        "status": row.status,
        "stages": [
            {
                "name": stage["name"],
                "share": stage["share"],
                "seconds": round((end - begin).total_seconds(), 1),
            }
            for stage, begin, end in zip(stages, begins, [*begins[1:], ended], strict=True)
        ],
        "verdicts": [
            {
                "stage": one.stage,
                "share": one.share,
                "verdict": one.verdict,
                "acted": one.acted,
                "units": _units(one),
                "reasons": one.reasons,
            }
            for one in verdicts
            if one.acted != "none" or one is verdicts[-1]
        ],
        "seconds": round((ended - row.started_at).total_seconds(), 1),
    }


def _units(verdict: VerdictRow) -> int:
    """Return the closed units of the candidate at a verdict."""
    return int(verdict.inputs["evidence"]["closed"][0])


def _line(row: RolloutRow, verdict: VerdictRow) -> str:
    after = (verdict.at - row.started_at).total_seconds()
    stage = f"{verdict.stage} {verdict.share:.0%}"
    became = {"next_stage": "passed", "promoted": "passed, promoted"}
    acted = became.get(verdict.acted, verdict.acted.replace("_", " "))
    return f"{after:5.1f} s  {row.candidate}  {stage:<12}{acted}"


def _name(point: PointRow) -> str:
    return f"{point.skill}/{point.point}"
