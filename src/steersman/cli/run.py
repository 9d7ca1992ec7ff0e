"""``steersman run``: the pipeline of a shipped system, from logged decisions to a rollout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.arguments import Number
from steersman.cli.lazy_group import SystemName
from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.output import as_text, show_rows
from steersman.cli.signing_keys import publisher_of, repository_of, trusted_root_of
from steersman.errors import SigningError
from steersman.points.systems import load_part, systems_with
from steersman.registry.consumer import Consumer
from steersman.rollouts.pipeline.config import load_config
from steersman.rollouts.pipeline.preflight import check_pipeline
from steersman.rollouts.pipeline.reports import STEPS, Workshop
from steersman.rollouts.pipeline.steps import RunOptions, run_pipeline
from steersman.snapshots.verified_bases import VerifiedBases

if TYPE_CHECKING:
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.points.systems import System
    from steersman.rollouts.pipeline.config import LoadedConfig
    from steersman.rollouts.pipeline.reports import Check, Step, StepReport

_GATES = ("gate", "measured", "limit", "passes", "of")


@click.command()
@click.argument("system", type=SystemName("skill"), metavar="SYSTEM")
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML or JSON configuration file.  [default: the configuration shipped for SYSTEM]",
)
@click.option(
    "--step", type=click.Choice(STEPS), help="Run only this step.  [default: all, in order]"
)
@click.option(
    "--only", multiple=True, metavar="POINT", help="Run only this decision point; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Count, train and evaluate; write nothing.")
@click.option(
    "--validate-only",
    is_flag=True,
    help="Check the configuration, declarations, keys and published snapshots; change nothing.",
)
@click.option(
    "--wait",
    "wait_s",
    type=Number(min=0),
    default=60.0,
    show_default=True,
    help="Longest time that `monitor` follows a rollout, in seconds.",
)
@tenant_option
@administers
def command(
    system: str,
    file: Path | None,
    step: Step | None,
    only: tuple[str, ...],
    wait_s: float,
    tenant_name: str,
    home: Path,
    *,
    dry_run: bool,
    validate_only: bool,
    as_json: bool,
) -> None:
    """Train, evaluate, publish and roll out candidates for SYSTEM.

    The steps are dataset, train, evaluate, package, canary, monitor and promote. Each step reads
    its input from the store, so any step can run alone. The exit status is 1 when a gate fails, a
    rollout ends badly, or a promotion is not due yet.
    """
    shipped = systems_with("skill")[system]
    _check_usage(shipped, only, step, validate_only=validate_only, dry_run=dry_run)
    loaded = load_config(file or _shipped_config(shipped))
    if validate_only:
        checks = _validated(home, tenant_name, shipped, loaded, only)
        _show_checks(checks, as_json=as_json)
        sys.exit(0 if all(check.ok for check in checks) else 1)
    asked = RunOptions(
        step=step,
        only=only,
        dry_run=dry_run,
        wait_s=wait_s,
        tell=(lambda _report: None) if as_json else _show_step,
        say=lambda line: click.echo(line, err=True),
    )

    async def work(database: Database, tenant: Tenant) -> list[StepReport]:
        workshop, bases = _workshop(home, database, tenant)
        try:
            return await run_pipeline(workshop, shipped, loaded, asked)
        finally:
            bases.close()

    reports = for_tenant(home, tenant_name, work)
    if as_json:
        told = {"system": system, "tenant": tenant_name, "dry_run": dry_run}
        click.echo(as_text({**told, "steps": [report.to_json() for report in reports]}))
    sys.exit(0 if all(_is_fine(report) for report in reports) else 1)


def _shipped_config(system: System) -> Path:
    if not system.pipeline:
        raise click.UsageError(
            f"the system {system.name!r} has no configuration; name a file with --config"
        )
    found: Path = load_part(system, "pipeline")()
    return found


def _check_usage(system: System, only: tuple[str, ...], step: str | None, **flags: bool) -> None:
    unknown = [name for name in only if name not in system.points]
    if unknown:
        message = f"unknown decision point {unknown[0]!r} of {system.name}: expected one of "
        raise click.BadParameter(message + ", ".join(system.points), param_hint="--only")
    if flags["validate_only"] and (flags["dry_run"] or step):
        raise click.UsageError(
            "--validate-only cannot be combined with --step or --dry-run; remove them"
        )


def _is_fine(report: StepReport) -> bool:
    """Return whether a step counts as a success. `monitor` may end before the rollout does."""
    return report.goes_on or (report.step == "monitor" and report.status == "waits")


def _workshop(home: Path, database: Database, tenant: Tenant) -> tuple[Workshop, VerifiedBases]:
    bases = VerifiedBases(home)

    def consumer(cache: Path) -> Consumer:
        file = trusted_root_of(home, tenant.name)
        if not file.is_file():
            message = f"no trusted root for tenant {tenant.name}: {file} not found; "
            raise SigningError(message + "create it with `steersman snapshot keys init`")
        return Consumer(repository_of(home, tenant.name), file.read_bytes(), cache)

    workshop = Workshop(
        database=database,
        tenant=tenant,
        actor=actor(),
        signer=publisher_of(home, tenant.name),
        bases=bases,
        consumer=consumer,
    )
    return workshop, bases


def _validated(
    home: Path, tenant_name: str, system: System, loaded: LoadedConfig, only: tuple[str, ...]
) -> list[Check]:
    async def work(database: Database, tenant: Tenant) -> list[Check]:
        workshop, bases = _workshop(home, database, tenant)
        try:
            return await check_pipeline(workshop, system, loaded, only)
        finally:
            bases.close()

    return for_tenant(home, tenant_name, work)


def _show_step(report: StepReport) -> None:
    click.echo(f"{report.point:<8}{report.step:<10}{report.status:<9}{report.said}")
    if report.gates and report.step in {"evaluate", "package"}:
        rows: list[dict[str, Any]] = [
            {
                "gate": gate.name,
                "measured": gate.measured,
                "limit": f"{'at least' if gate.kind == 'least' else 'at most'} {gate.limit:g}",
                "passes": gate.passes,
                "of": gate.of,
            }
            for gate in report.gates
        ]
        show_rows(rows, _GATES, as_json=False, none="")


def _show_checks(checks: list[Check], *, as_json: bool) -> None:
    rows = [{"check": one.name, "ok": one.ok, "said": one.said} for one in checks]
    show_rows(rows, ("check", "ok", "said"), as_json=as_json, none="nothing to check")
