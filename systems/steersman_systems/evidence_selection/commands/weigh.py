"""``steersman evidence weigh``: off-policy evaluation of a selector on a point's log."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from steersman.cli.options import administers, find_point, for_tenant, tenant_option
from steersman.cli.output import show
from steersman.db.rewards import spec_of
from steersman.db.snapshots import find_snapshot
from steersman.db.updates import base_state
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import initial_policy, load_policy
from steersman.points.state_bytes import unpack_state
from steersman.rollouts.candidate_evidence import beyond_gates
from steersman.rollouts.evidence import OffPolicyEvidence
from steersman.spec.loader import load, loads
from steersman_systems.evidence_selection.training.logged_selections import (
    form_in,
    judge_selections,
    stored_selections,
)

if TYPE_CHECKING:
    from steersman.db.logged_choices import StoredSelection
    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant
    from steersman.ope import Report
    from steersman.platform.postgres.database import Database
    from steersman.policies.sequential import SequencePolicy
    from steersman.spec.point import DecisionPoint

newest_option = click.option(
    "--newest",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="Maximum number of selections.",
)


@click.command("weigh")
@click.argument("skill")
@click.argument("point")
@click.option(
    "--version", metavar="VERSION", help="Snapshot to evaluate, on later selections only."
)
@click.option(
    "--spec",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Declaration to evaluate, with its start weights and nothing learned.",
)
@newest_option
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
    """Evaluate another selector on the log of POINT of SKILL, off-policy.

    The estimators are per-decision importance sampling (pdis), its weighted form (wpdis), doubly
    robust (dr), and the gain: wpdis minus the mean logged reward. Each has an interval. A version
    is evaluated only on selections made after it, because it may have learned from earlier ones.
    The exit status is 1 if the log does not support an estimate, or the gates of POINT fail; the
    output says why.
    """
    if (version is None) == (spec is None):
        raise click.UsageError("expected exactly one of --version and --spec")
    document = None
    if spec is not None:
        load(spec)  # an error names the file
        document = spec.read_text(encoding="utf-8-sig")

    async def work(database: Database, tenant: Tenant) -> dict[str, Any]:
        row = await find_point(database, tenant, skill, point)
        policy, log = await _read(database, row, version, document, newest)
        return told_of(judge_selections(policy, log), len(log), row.spec)

    told = for_tenant(home, tenant_name, work)
    show(told, as_json=as_json)
    if told["refused"]:
        raise click.exceptions.Exit(1)


async def _read(
    database: Database, row: PointRow, version: str | None, document: str | None, newest: int
) -> tuple[SequencePolicy, list[StoredSelection]]:
    """Return the selector, and the selections that it did not learn from."""
    check_explores(row)
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
            f"{row.skill}/{row.point} has no selection{after} with a reward and a closed window; "
            "send outcomes, or wait until the window closes"
        )
    return cast("SequencePolicy", policy), log


def _declared(row: PointRow, document: str) -> DecisionPoint:
    spec = loads(document, source="candidate")
    if spec.actions != row.spec.actions:
        raise _other_actions(row, "the candidate")
    return spec


def _other_actions(row: PointRow, whose: str | None) -> InputError:
    return InputError(
        f"the actions of {whose} differ from those of {row.skill}/{row.point}, so its log cannot "
        "evaluate them; declare the same actions"
    )


def check_explores(row: PointRow) -> None:
    """Refuse a point whose log cannot evaluate other selectors.

    Raises:
        InputError: the point does not select sequences, or never explores.
    """
    form_in(row.spec)  # refuses a point without sequences
    if row.spec.explore == "none":
        raise InputError(
            f"{row.skill}/{row.point} declares explore: none, so its log cannot evaluate other "
            "selectors; declare a floor"
        )


def told_of(report: Report, count: int, spec: DecisionPoint) -> dict[str, Any]:
    """Return the estimates, their diagnostics, and the failed gates of the point's `spec`."""
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
        for name, one in ((name, report[name]) for name in ("pdis", "wpdis", "dr", "gain"))
    }
    return {
        "selections": count,
        **estimates,
        "level": report.level,
        "effective_sample_size": report.ess,
        "max_weight_share": report.diagnostics.max_weight_share,
        "unsupported": report.diagnostics.unsupported,
        "adaptive": report.adaptive,
        "refused": bool(reasons),
        "reasons": reasons,
    }
