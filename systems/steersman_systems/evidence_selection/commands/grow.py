"""``steersman evidence grow``: selection trees trained on the log of a decision point."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from steersman.cli.options import actor, administers, find_point, for_tenant, tenant_option
from steersman.cli.output import show
from steersman.cli.signing_keys import need_publisher
from steersman.db.audit import count_acts, record
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import initial_policy
from steersman.policies import SequenceTrees
from steersman.rollouts.state_machine import checked_reason
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from steersman_systems.evidence_selection.commands.weigh import (
    check_explores,
    newest_option,
    told_of,
)
from steersman_systems.evidence_selection.training.log_trees import apart, grown
from steersman_systems.evidence_selection.training.logged_selections import (
    judge_selections,
    stored_selections,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from steersman.db.logged_choices import StoredSelection
    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

_LOOK = "evidence.grow"
_ERROR = 0.05  # chance that trees which are not better are ever signed, per live version


@click.command("grow")
@click.argument("skill")
@click.argument("point")
@click.option(
    "--publish",
    "publishes",
    is_flag=True,
    help="Sign the trees as a candidate if the log shows a gain.",
)
@click.option(
    "--force",
    metavar="REASON",
    help="Publish the trees without a gain, with this reason; stored in the audit log.",
)
@newest_option
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed of the trees."
)
@tenant_option
@administers
def grow_command(
    skill: str,
    point: str,
    force: str | None,
    newest: int,
    seed: int,
    tenant_name: str,
    home: Path,
    *,
    publishes: bool,
    as_json: bool,
) -> None:
    """Train trees for POINT of SKILL, which declares sequence_trees, on its log.

    The trees learn from four of five units; the fixed fifth is held out to evaluate them. With
    --publish, they become a signed candidate if the whole interval of the gain is above 0 and the
    gates of POINT pass; a rollout then tests them. The gain is the wpdis estimate minus the mean
    reward of the held-out units. The snapshot records the training data and the seed. The exit
    status is 1 if the log does not show a gain.

    Repeated evaluations are corrected: each one is audited and counted, and the k-th uses intervals
    of level 1 - 0.1 / (k (k + 1)), the first 95 %. So the chance to sign trees that are not better
    stays below 5 %, with any number of tries and seeds. A new live version resets the count.
    """
    publisher = need_publisher(home, tenant_name) if publishes else None
    overruled = None if force is None else checked_reason(force, name="force")

    async def work(database: Database, tenant: Tenant) -> dict[str, Any]:
        row = await find_point(database, tenant, skill, point)
        declared, log = await _own(database, row, newest)
        learned, judged = apart(log)
        policy = grown(declared, learned, seed=seed)
        look, level = await _looked(database, row, seed, newest)
        report = judge_selections(policy, judged, level=level)
        told = {"grown_from": len(learned), "earned": _earned(judged), "look": look}
        told |= told_of(report, len(judged), row.spec)
        low = report["gain"].low  # exactly 0 for trees that choose like the live policy
        better = low is not None and low > 0.0 and not told["refused"]
        version = None
        if publisher is not None and (better or overruled):
            evidence = {"grown": _grown(row, learned, seed, newest), "weighed": told}
            why = Reason(actor=actor(), force=overruled, evidence=evidence)
            ids = [UUID(one.id) for one in learned]
            made = await publish(
                database, row, publisher, why, trained=policy, grown_from=ids
            )  # fmt: skip
            version = made.version
        return {**told, "better": better, "version": version}

    told = for_tenant(home, tenant_name, work)
    show(told, as_json=as_json)
    if not told["better"]:
        raise click.exceptions.Exit(1)


async def _own(
    database: Database, row: PointRow, newest: int
) -> tuple[SequenceTrees, list[StoredSelection]]:
    declared = initial_policy(row.spec)
    if not isinstance(declared, SequenceTrees):
        raise InputError(
            f"{row.skill}/{row.point} declares {declared.algorithm}; expected sequence_trees: "
            "declare it first"
        )
    check_explores(row)
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            log = await stored_selections(connection, row, closed=datetime.now(UTC), limit=newest)
    finally:
        await connection.close()
    return declared, log


async def _looked(database: Database, row: PointRow, seed: int, newest: int) -> tuple[int, float]:
    """Record an evaluation on the held-out units, before it is made.

    Returns:
        The number of this evaluation for the live version, from 1, and the level of its intervals.
        The lower ends err with probability 0.05 / (k (k + 1)), which sums to at most 5 %.
    """
    subject, line = f"{row.skill}/{row.point}", row.snapshot
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            detail = {"line": line, "seed": seed, "newest": newest}
            await record(connection, row.tenant, actor(), _LOOK, subject, detail)
        async with as_tenant(connection, row.tenant):
            looks = await count_acts(connection, _LOOK, subject, {"line": line})
    finally:
        await connection.close()
    return looks, 1.0 - 2.0 * _ERROR / (looks * (looks + 1))


def _earned(judged: Sequence[StoredSelection]) -> float:
    return sum(one.reward for one in judged) / len(judged)


def _grown(
    row: PointRow, learned: Sequence[StoredSelection], seed: int, newest: int
) -> dict[str, Any]:
    """Return the signed provenance of the trees; `erase` reads it."""
    return {
        "oldest": learned[0].id,
        "newest": learned[-1].id,
        "selections": len(learned),
        "units": len({one.unit for one in learned}),
        "spec_hash": row.spec_hash.hex(),
        "seed": seed,
        "asked": newest,
    }
