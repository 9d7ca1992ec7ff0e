"""``steersman evidence weigh`` and ``grow``: what a point's own log says, and teaches."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from steersman.cli.options import actor, administers, find_point, for_tenant, tenant_option
from steersman.cli.showing import show
from steersman.cli.signing import need_publisher
from steersman.errors import InputError
from steersman.learn import Reason, publish
from steersman.learn.selecting import (
    apart,
    form_in,
    grown,
    judge_selections,
    stored_selections,
)
from steersman.policies import SequenceTrees, load_policy
from steersman.registry import unpack_state
from steersman.rollout import checked_reason
from steersman.spec import loads
from steersman.store import as_tenant, base_state, find_snapshot, initial_policy

if TYPE_CHECKING:
    from steersman.learn.selecting import StoredSelection
    from steersman.ope import Report
    from steersman.policies import SequencePolicy
    from steersman.spec import DecisionPoint
    from steersman.store import Database, PointRow, Tenant


@click.command("weigh")
@click.argument("skill")
@click.argument("point")
@click.option("--version", metavar="VERSION", help="Of a snapshot: weighed on what came after it.")
@click.option(
    "--spec",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A declaration: what it would earn with nothing learned, by its start weights.",
)
@click.option(
    "--newest",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="How many selections, at most.",
)
@tenant_option
@administers
def weigh_command(
    skill: str,
    point: str,
    version: str | None,
    spec: Path | None,
    newest: int,
    tenant_name: str,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Weigh what the log of POINT of SKILL says of another selector, off-policy.

    Per-decision importance sampling (pdis), weighted (wpdis), and doubly robust (dr), each with an
    interval. A version is weighed on selections that were made after it alone, since it may have
    learned from those before. Exit status 1 when the log cannot tell: then it says why.
    """
    if (version is None) == (spec is None):
        raise click.UsageError("name --version or --spec, one of them")
    document = None if spec is None else spec.read_text(encoding="utf-8")

    async def work(database: Database, tenant: Tenant) -> tuple[Report, int]:
        row = await find_point(database, tenant, skill, point)
        policy, log = await _read(database, row, version, document, newest)
        return judge_selections(policy, log), len(log)

    report, count = for_tenant(home, tenant_name, work)
    show(_told(report, count), as_json=as_json)
    if report.refused:
        raise click.exceptions.Exit(1)


async def _read(
    database: Database, row: PointRow, version: str | None, document: str | None, newest: int
) -> tuple[SequencePolicy, list[StoredSelection]]:
    """Return the selector in question, and the selections that it never learned from."""
    form_in(row.spec)  # or refuses what is no sequence
    point = row.tenant, row.skill, row.point
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            since = None
            if document is not None:
                policy = initial_policy(_declared(row, document))
            else:
                found = await find_snapshot(connection, point, cast("str", version))
                since = found.created_at
                state = await base_state(connection, point, found.version)
                policy = load_policy(unpack_state(state))
            log = await stored_selections(
                connection, row, closed=datetime.now(UTC), since=since, limit=newest
            )
    finally:
        await connection.close()
    if not log:
        after = "" if version is None else f" made after {version}"
        raise InputError(
            f"{row.skill}/{row.point} has no selection{after} with a reward whose window is "
            "closed; wait, or send outcomes"
        )
    return cast("SequencePolicy", policy), log


def _declared(row: PointRow, document: str) -> DecisionPoint:
    spec = loads(document, source="candidate")
    if spec.actions != row.spec.actions:
        raise InputError(
            f"the candidate's actions differ from those of {row.skill}/{row.point}, whose log "
            "tells nothing of them; declare the same"
        )
    return spec


@click.command("grow")
@click.argument("skill")
@click.argument("point")
@click.option(
    "--publish",
    "publishes",
    is_flag=True,
    help="Sign the trees as a candidate, if the log shows them to be better.",
)
@click.option("--force", metavar="REASON", help="Publish them whatever the log shows; audited.")
@click.option(
    "--newest",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="How many selections, at most.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the split.")
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
    """Grow trees for POINT of SKILL, which declares sequence_trees, from its log.

    They are grown from four of five units and weighed on the others. With --publish they are signed
    as a candidate where wpdis is above what was earned there, its whole interval; a rollout tries
    them then. Exit status 1 when the log does not show it.
    """
    publisher = need_publisher(home, tenant_name) if publishes else None
    overruled = None if force is None else checked_reason(force, name="force")

    async def work(database: Database, tenant: Tenant) -> dict[str, Any]:
        row = await find_point(database, tenant, skill, point)
        declared, log = await _own(database, row, newest)
        learned, judged = apart(log, seed=seed)
        policy = grown(declared, learned, seed=seed)
        report = judge_selections(policy, judged, seed=seed)
        earned = sum(one.reward for one in judged) / len(judged)
        low = report["wpdis"].low
        better = low is not None and low > earned
        told = {"grown_from": len(learned), "earned": earned, **_told(report, len(judged))}
        version = None
        if publisher is not None and (better or overruled):
            weighed = {"earned": earned, "wpdis": msgspec.to_builtins(report["wpdis"])}
            why = Reason(actor=actor(), force=overruled, evidence={"weighed": weighed})
            version = (await publish(database, row, publisher, why, trained=policy)).version
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
            f"{row.skill}/{row.point} declares {declared.algorithm}; trees are for sequence_trees"
        )
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            log = await stored_selections(connection, row, closed=datetime.now(UTC), limit=newest)
    finally:
        await connection.close()
    return declared, log


def _told(report: Report, count: int) -> dict[str, Any]:
    estimates = {
        name: None if one.value is None else {k: asdict(one)[k] for k in ("value", "low", "high")}
        for name, one in ((name, report[name]) for name in ("pdis", "wpdis", "dr"))
    }
    return {
        "selections": count,
        **estimates,
        "effective_sample_size": report.ess,
        "max_weight_share": report.diagnostics.max_weight_share,
        "refused": report.refused,
        "reasons": list(report.reasons),
    }
