"""Last four steps of a pipeline: publish, start a rollout, follow it, promote it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.rollouts import find_rollout, rollouts_of
from steersman.db.snapshots import snapshots_of
from steersman.db.verdicts import latest_verdict
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.commands import act
from steersman.rollouts.pipeline.trial import available
from steersman.rollouts.start import StartRequest, start
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.db.verdicts import VerdictRow
    from steersman.errors import RolloutError
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.pipeline.config import Deployment
    from steersman.rollouts.pipeline.reports import Workshop
    from steersman.rollouts.plan import RolloutPlan
    from steersman.snapshots.publish import Signer
    from steersman.spec.point import DecisionPoint

_FOREVER_S = 366 * 86_400.0
_POLL_S = 0.5


async def published(
    database: Database, row: PointRow, spec: DecisionPoint | None
) -> SnapshotRow | None:
    """Return the newest published version of a candidate; None: none is available.

    `spec` is the candidate's declaration; None: the live one.
    """
    wanted = row.spec_hash if spec is None else bytes.fromhex(spec.spec_hash)
    found = [one for one in await _available(database, row) if one.spec_hash == wanted]
    return found[-1] if found else None


async def package(
    workshop: Workshop,
    signer: Signer,
    row: PointRow,
    document: str | None,
    evidence: Mapping[str, Any],
) -> dict[str, Any]:
    """Publish a signed candidate; if it is unchanged, return its last version.

    `document` is the candidate's declaration; None: the live one. `evidence` proves that the gates
    passed, and is signed too.

    Raises:
        GuardError: the publish guard refused it.
        RegistryError: it cannot be signed.
        StoreError: the database is unreachable.
    """
    reason = Reason(actor=workshop.actor, evidence=evidence)
    made = await publish(workshop.database, row, signer, reason, spec=document)
    return made.to_json()


def overrides_of(declared: DecisionPoint, asked: Deployment) -> dict[str, Any]:
    """Return the changes of the declared section ``rollout`` for this rollout.

    The rollout starts with the declared shadow stage, or a short one. The canary has the configured
    share. If the rollout must stop after the canary, the canary lasts a year, until a person
    promotes it.
    """
    stages = [stage.model_dump(mode="json") for stage in declared.rollout.stages]
    by_name = {stage["name"]: stage for stage in stages}
    shadow = by_name.get("shadow") or {"name": "shadow", "share": 0.0, "min_units": 100}
    # Without a declared canary, use the settings of the first declared stage after the shadow.
    first: dict[str, Any] = next((one for one in stages if one["name"] != "shadow"), shadow)
    canary = {**by_name.get("canary", first), "name": "canary", "share": asked.share}
    if not asked.goes_on:
        canary["min_s"] = _FOREVER_S
    later = [one for one in stages if one["name"] not in {"shadow", "canary"}]
    overrides: dict[str, Any] = {"stages": [shadow, canary, *later]}
    if asked.objective is not None:
        overrides["objective"] = asked.objective.model_dump(mode="json")
    return overrides


async def canary(
    workshop: Workshop, row: PointRow, candidate: SnapshotRow, asked: Deployment
) -> tuple[RolloutRow, bool]:
    """Start the rollout of a published candidate, or return its active rollout.

    Raises:
        RolloutError: the candidate does not fit, was rolled back, or another rollout is active.
        SnapshotError: the candidate does not verify.
    """
    known = await latest_rollout(workshop.database, row)
    if known is not None and known.is_under_way and known.candidate == candidate.version:
        return known, False
    wanted = StartRequest(
        skill=row.skill,
        point=row.point,
        candidate=candidate.version,
        reason="pipeline",
        overrides=overrides_of(row.spec, asked),
        concurrent=True if asked.concurrent else None,
    )
    started = await start(
        workshop.database,
        row.tenant,
        wanted,
        actor=workshop.actor,
        clock=workshop.clock,
        bases=workshop.bases,
    )
    return started, True


async def latest_rollout(database: Database, row: PointRow) -> RolloutRow | None:
    """Return the latest rollout of a decision point; None: there is none."""
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, row.tenant):
            found = await rollouts_of(
                connection, row.tenant, skill=row.skill, point=row.point, limit=1
            )
    finally:
        await connection.close()
    return found[0] if found else None


async def last_verdict(
    database: Database, rollout: RolloutRow
) -> tuple[RolloutRow, VerdictRow | None]:
    """Return the current state of a rollout, and its last verdict."""
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, rollout.tenant):
            row = await find_rollout(connection, rollout.tenant, rollout.id)
            return row or rollout, await latest_verdict(connection, rollout.tenant, rollout.id)
    finally:
        await connection.close()


async def follow(
    workshop: Workshop,
    rollout: RolloutRow,
    *,
    wait_s: float,
    tell: Callable[[str], None],
) -> tuple[RolloutRow, VerdictRow | None]:
    """Follow a rollout until it ends, is paused, or `wait_s` seconds have passed.

    `tell` receives a line at the start, and for every verdict, stage and end.
    """
    row, verdict = await last_verdict(workshop.database, rollout)
    tell(_standing(row, verdict))
    until = workshop.monotonic() + wait_s
    # A paused rollout waits for a person.
    while row.status == "running" and (left_s := until - workshop.monotonic()) > 0:
        await asyncio.sleep(min(_POLL_S, left_s))
        before = _standing(row, verdict)
        row, verdict = await last_verdict(workshop.database, row)
        if (now := _standing(row, verdict)) != before:
            tell(now)
    return row, verdict


def _standing(row: RolloutRow, verdict: VerdictRow | None) -> str:
    said = f"{row.skill}/{row.point} {row.candidate}: {row.status}, {row.stage} {row.share:.0%}"
    if verdict is not None:
        said += f"; {verdict.stage} {verdict.verdict}: {'; '.join(verdict.reasons)}"
    return said


async def move_on(workshop: Workshop, rollout: RolloutRow) -> RolloutRow:
    """Promote a rollout by one step, if its last verdict is promote.

    Raises:
        RolloutError: the last verdict is not promote, or the rollout is paused.
        SnapshotError: the candidate does not verify.
    """
    return await act(
        workshop.database,
        rollout.tenant,
        rollout.id,
        "promote",
        actor=workshop.actor,
        reason="pipeline",
        clock=workshop.clock,
        bases=workshop.bases,
    )


def missing(rollout: RolloutRow, verdict: VerdictRow | None, refused: RolloutError) -> list[str]:
    """Return why a rollout cannot be promoted yet. `refused` is the error of the attempt."""
    if rollout.status == "paused":
        return [str(refused)]
    if verdict is None:
        what = "no verdict yet; check that `steersman up` or `steersman rollout run` is running"
        return [what]
    if verdict.step != rollout.step:
        return [
            f"no verdict at stage {rollout.stage} yet; the last one was at stage {verdict.stage}"
        ]
    return list(verdict.reasons)


def stages_of(plan: RolloutPlan) -> list[str]:
    """Return the stages of a plan for people, such as ``canary 0.05``."""
    return [f"{stage.name} {stage.share:.3g}" for stage in plan.stages]


def moment(seconds: float) -> datetime:
    """Return seconds since 1970 as a date.

    >>> moment(0).year
    1970
    """
    return datetime.fromtimestamp(seconds, UTC)


async def _available(database: Database, row: PointRow) -> list[SnapshotRow]:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, row.tenant):
            point = row.tenant, row.skill, row.point
            return available(await snapshots_of(connection, point))
    finally:
        await connection.close()
