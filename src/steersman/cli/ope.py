"""Off-policy evaluation of a decision point's log: ``steersman ope``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import click

from steersman.cli.arguments import Number
from steersman.cli.options import administers, for_tenant, tenant_option
from steersman.cli.output import as_text, show_rows
from steersman.cli.rollout_views import declared, point_argument, reading, skill_argument
from steersman.rollouts.ope_report import baselines, find_candidates, read_log, value
from steersman.snapshots.verified_bases import VerifiedBases

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.candidate import Candidate
    from steersman.rollouts.ope_report import Log, PolicyValue, Rows

_COLUMNS = ("policy", "ips", "snips", "dr", "effective_sample_size", "evidence")


@click.command("ope")
@skill_argument
@point_argument
@click.argument("candidates", metavar="[CANDIDATE]...", nargs=-1)
@click.option(
    "--rows",
    type=click.Choice(["own", "imported", "all"]),
    default="own",
    show_default=True,
    help="Decisions to use: own, imported (logs with propensities), or all.",
)
@click.option(
    "--newest",
    type=click.IntRange(2, 1_000_000),
    default=5_000,
    show_default=True,
    help="Number of newest decisions to use.",
)
@click.option(
    "--level",
    type=Number(0, min_open=True, max=1, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence level of the intervals.",
)
@tenant_option
@administers
def command(
    skill: str,
    point: str,
    candidates: tuple[str, ...],
    rows: str,
    newest: int,
    level: float,
    tenant_name: str,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Estimate the reward of other policies from the log of POINT of SKILL.

    The policies are the published versions CANDIDATE, the declared fallback, and each action on its
    own. The command changes nothing and moves no rollout.
    """

    async def work(database: Database, tenant: Tenant) -> tuple[Log, dict[str, Candidate]]:
        bases = VerifiedBases(home)

        async def read(connection: Any) -> tuple[Log, dict[str, Candidate]]:
            row = await declared(connection, tenant, skill, point)
            found = await find_candidates(connection, row, candidates, bases)
            wanted = cast("Rows", rows)
            log = await read_log(connection, row, rows=wanted, newest=newest, now=time.time())
            return log, found | baselines(row.spec)

        try:
            return await reading(database, tenant, read)
        finally:
            bases.close()

    log, policies = for_tenant(home, tenant_name, work)
    said = value(log, policies, level=level)
    if as_json:
        found = [_fields(one) for one in said]
        head = {"decisions": len(log.rows), "rows": rows, "logged_mean": log.mean, "level": level}
        click.echo(as_text({**head, "policies": found}))
        return
    click.echo(f"Mean reward {log.mean:.4f} over {len(log.rows):,} decisions ({rows}).")
    click.echo(f"Estimates for other policies, {100 * level:.4g} % CI:\n")
    show_rows(map(_row, said), _COLUMNS, as_json=False, none="no policies to compare")
    for one in said:
        # Outside the table: sentences would make it too wide for a terminal.
        if against := _fields(one)["reasons"]:
            click.echo(f"\nNo estimate for {one.policy}: {' '.join(against)}")


def _fields(one: PolicyValue) -> dict[str, Any]:
    if one.report is None:
        return {"policy": one.policy, "estimates": {}, "reasons": [one.reason]}
    return {
        "policy": one.policy,
        "estimates": {
            name: {"value": it.value, "low": it.low, "high": it.high}
            for name, it in one.report.estimates.items()
        },
        "effective_sample_size": float(one.report.ess),
        "max_weight_share": float(one.report.diagnostics.max_weight_share),
        "reasons": list(one.report.reasons),
    }


def _row(one: PolicyValue) -> dict[str, Any]:
    fields = _fields(one)
    shown = {name: _interval(**found) for name, found in fields["estimates"].items()}
    size = fields.get("effective_sample_size")
    return {
        "policy": one.policy,
        **shown,
        "effective_sample_size": None if size is None else round(size),
        "evidence": "refused" if fields["reasons"] else "yes",
    }


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "-"
    ends = "" if low is None or high is None else f" [{low:.4f}, {high:.4f}]"
    return f"{value:.4f}{ends}"
