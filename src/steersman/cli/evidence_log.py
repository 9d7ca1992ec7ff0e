"""``steersman evidence weigh`` and ``grow``: what a point's own log says, and teaches."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

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
from steersman.rollout import OffPolicyEvidence, beyond_gates, checked_reason
from steersman.spec import loads
from steersman.store import as_tenant, base_state, find_snapshot, initial_policy, spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    learned from those before. Exit status 1 when the log cannot tell, or tells less than the gates
    of POINT demand: then it says why.
    """
    if (version is None) == (spec is None):
        raise click.UsageError("name --version or --spec, one of them")
    document = None if spec is None else spec.read_text(encoding="utf-8")

    async def work(database: Database, tenant: Tenant) -> dict[str, Any]:
        row = await find_point(database, tenant, skill, point)
        policy, log = await _read(database, row, version, document, newest)
        return _told(judge_selections(policy, log), len(log), row.spec)

    told = for_tenant(home, tenant_name, work)
    show(told, as_json=as_json)
    if told["refused"]:
        raise click.exceptions.Exit(1)


async def _read(
    database: Database, row: PointRow, version: str | None, document: str | None, newest: int
) -> tuple[SequencePolicy, list[StoredSelection]]:
    """Return the selector in question, and the selections that it never learned from."""
    _check(row)
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
                if (await spec_of(connection, found.spec_hash)).actions != row.spec.actions:
                    raise _other_actions(row, version)
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
        raise _other_actions(row, "the candidate")
    return spec


def _other_actions(row: PointRow, whose: str | None) -> InputError:
    return InputError(
        f"the actions of {whose} differ from those of {row.skill}/{row.point}, whose log tells "
        "nothing of them; declare the same"
    )


def _check(row: PointRow) -> None:
    form_in(row.spec)  # or refuses what is no sequence
    if row.spec.explore == "none":
        raise InputError(
            f"{row.skill}/{row.point} declares explore: none, so its log cannot tell about other "
            "selectors; declare a floor"
        )


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
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the trees.")
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

    They are grown from four of five units and weighed on the others, which are always the same.
    With --publish they are signed as a candidate where wpdis is above what was earned there, its
    whole interval, and the gates of POINT let it pass; a rollout tries them then. What they were
    grown from, seed and all, is signed with them. Exit status 1 when the log does not show it.
    Whoever grows until it does will find trees that only look better: each try may err.
    """
    publisher = need_publisher(home, tenant_name) if publishes else None
    overruled = None if force is None else checked_reason(force, name="force")

    async def work(database: Database, tenant: Tenant) -> dict[str, Any]:
        row = await find_point(database, tenant, skill, point)
        declared, log = await _own(database, row, newest)
        learned, judged = apart(log)
        policy = grown(declared, learned, seed=seed)
        report = judge_selections(policy, judged)
        earned = sum(one.reward for one in judged) / len(judged)
        told = {"grown_from": len(learned), "earned": earned}
        told |= _told(report, len(judged), row.spec)
        low = report["wpdis"].low
        better = low is not None and low > earned and not told["refused"]
        version = None
        if publisher is not None and (better or overruled):
            evidence = {"grown": _grown(row, learned, seed, newest), "weighed": told}
            why = Reason(actor=actor(), force=overruled, evidence=evidence)
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
    _check(row)
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            log = await stored_selections(connection, row, closed=datetime.now(UTC), limit=newest)
    finally:
        await connection.close()
    return declared, log


def _grown(
    row: PointRow, learned: Sequence[StoredSelection], seed: int, newest: int
) -> dict[str, Any]:
    """Return what is signed of where trees come from; `erase` reads it."""
    return {
        "oldest": learned[0].id,
        "newest": learned[-1].id,
        "selections": len(learned),
        "units": len({one.unit for one in learned}),
        "spec_hash": row.spec_hash.hex(),
        "seed": seed,
        "asked": newest,
    }


def _told(report: Report, count: int, spec: DecisionPoint) -> dict[str, Any]:
    wpdis = report["wpdis"]
    found = OffPolicyEvidence(
        value=wpdis.value,
        low=wpdis.low,
        high=wpdis.high,
        effective_sample_size=report.ess,
        max_weight_share=report.diagnostics.max_weight_share,
    )
    reasons = [*report.reasons, *beyond_gates(found, spec.gates)]
    estimates = {
        name: None if one.value is None else {k: asdict(one)[k] for k in ("value", "low", "high")}
        for name, one in ((name, report[name]) for name in ("pdis", "wpdis", "dr"))
    }
    return {
        "selections": count,
        **estimates,
        "effective_sample_size": report.ess,
        "max_weight_share": report.diagnostics.max_weight_share,
        "unsupported": report.diagnostics.unsupported,
        "adaptive": report.adaptive,
        "refused": bool(reasons),
        "reasons": reasons,
    }
