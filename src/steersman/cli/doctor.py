"""Health checks: ``steersman doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from steersman.api.table import every_route
from steersman.cli import demo, main
from steersman.cli import doctor_machine as checkup
from steersman.cli import doctor_store as checkup_store
from steersman.cli.options import administers, in_store, url_option
from steersman.cli.output import as_fields, as_text
from steersman.db.migrate import migrate

if TYPE_CHECKING:
    from pathlib import Path

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option("--migrate", "schema", is_flag=True, help="Apply missing schema migrations first.")
@url_option
@administers
def command(home: Path, url: str, *, schema: bool, as_json: bool) -> None:
    """Check this machine, the database and the service, and suggest fixes.

    Each line is ok, warn (works with a limitation) or fail. One fail sets the exit status to 1.
    """
    if schema:
        in_store(home, migrate, make=True)
    looks = (
        checkup.look_at_python(),
        checkup.look_at_systems(main.by_name, demo.command.by_name, every_route),
        checkup.look_at_home(home),
        checkup_store.look_at_store(home),
        checkup.look_at_redis(),
        checkup.look_at_service(url),
    )
    findings = []
    for finding in (finding for look in looks for finding in look):
        findings.append(finding)
        if not as_json:
            verdict = click.style(f"{finding.verdict:<5}", fg=_COLOURS[finding.verdict])
            click.echo(f"{verdict} {finding.what:<12} {finding.found}")
            if finding.advice:
                click.echo(f"{'':<18} -> {finding.advice}")
    if as_json:
        click.echo(as_text([as_fields(finding) for finding in findings]))
    if any(finding.verdict == "fail" for finding in findings):
        raise SystemExit(1)
