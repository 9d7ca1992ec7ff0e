"""Rollouts: ``steersman rollout``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.output import as_fields, show, show_rows
from steersman.cli.rollout_output import shown_row
from steersman.cli.rollout_views import (
    changes_option,
    explain_command,
    find,
    history_command,
    overrides_of,
    plan_command,
    point_argument,
    reading,
    skill_argument,
    status_command,
    which_argument,
)
from steersman.cli.signing_keys import mark_here
from steersman.db.incidents import incidents_of
from steersman.rollouts.commands import act, close_incident
from steersman.rollouts.start import StartRequest, start
from steersman.snapshots.verified_bases import VerifiedBases

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from steersman.db.incidents import IncidentRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.state_machine import Action

_COLUMNS = ("id", "at", "kind", "summary", "closed_at")


@click.command("incidents")
@click.option("--all", "every", is_flag=True, help="Include closed incidents.")
@tenant_option
@administers
def incidents_command(tenant_name: str, home: Path, *, every: bool, as_json: bool) -> None:
    """List the open incidents of a tenant."""

    async def work(database: Database, tenant: Tenant) -> list[IncidentRow]:
        return await reading(
            database,
            tenant,
            lambda connection: incidents_of(connection, tenant.id, open_only=not every),
        )

    rows = [_shown(row) for row in for_tenant(home, tenant_name, work)]
    show_rows(rows, _COLUMNS, as_json=as_json, none=f"{tenant_name} has no open incidents")


@click.command("close")
@click.argument("incident", type=click.UUID)
@click.option("--reason", required=True, help="Cause and remedy; kept in the audit log.")
@tenant_option
@administers
def close_command(
    incident: UUID, reason: str, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Close INCIDENT after its cause is found and handled."""

    async def work(database: Database, tenant: Tenant) -> IncidentRow:
        return await close_incident(
            database, tenant.id, incident, actor=actor(), reason=reason, clock=time.time
        )

    show(_shown(for_tenant(home, tenant_name, work)), as_json=as_json)


def _shown(row: IncidentRow) -> dict[str, Any]:
    return {name: value for name, value in as_fields(row).items() if name != "tenant"}


_reason = click.option("--reason", required=True, help="Reason; kept in the audit log.")


class _Rollouts(click.Group):
    """Group whose `run` is imported when it is needed: its options come from installed systems."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "run"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "run":
            return super().get_command(ctx, cmd_name)
        from steersman.cli.rollout_controller import run_command  # noqa: PLC0415 (see the class)

        return run_command


@click.group(cls=_Rollouts)
def command() -> None:
    """Start, control and explain staged rollouts of published snapshots.

    ROLLOUT is an id, its first characters, or skill/point for the latest rollout of that decision
    point.
    """


for other in (
    close_command,
    explain_command,
    history_command,
    incidents_command,
    plan_command,
    status_command,
):
    command.add_command(other)


@command.command("start")
@skill_argument
@point_argument
@click.argument("candidate")
@click.option("--reason", default="", help="Reason; kept in the audit log.")
@changes_option
@click.option(
    "--concurrent",
    is_flag=True,
    help="Allow this rollout while another rollout of the skill is active.",
)
@click.option("--again", default="", help="Reason to retry a candidate that was rolled back.")
@click.option(
    "--force", default="", help="Reason to serve the candidate at once, without shadow or evidence."
)
@tenant_option
@administers
def start_command(
    skill: str,
    point: str,
    candidate: str,
    reason: str,
    changes: tuple[str, ...],
    again: str,
    force: str,
    tenant_name: str,
    home: Path,
    *,
    concurrent: bool,
    as_json: bool,
) -> None:
    """Start a rollout of the published version CANDIDATE for POINT of SKILL."""
    wanted = StartRequest(
        skill=skill,
        point=point,
        candidate=candidate,
        reason=reason,
        overrides=overrides_of(changes),
        concurrent=True if concurrent else None,
        again=again,
        force=force,
    )

    async def work(database: Database, tenant: Tenant) -> RolloutRow:
        bases = VerifiedBases(home)
        try:
            row = await start(
                database, tenant.id, wanted, actor=actor(), clock=time.time, bases=bases
            )
        finally:
            bases.close()
        await mark_here(home, tenant_name, database, (tenant.id, skill, point))
        return row

    show(shown_row(for_tenant(home, tenant_name, work)), as_json=as_json)


def _acting(action: Action, about: str) -> None:
    """Add the command of an action that takes only a reason."""

    @command.command(action, help=about)
    @which_argument
    @_reason
    @tenant_option
    @administers
    def acting(which: str, reason: str, tenant_name: str, home: Path, *, as_json: bool) -> None:
        _act(home, tenant_name, which, action, reason, as_json=as_json)


_acting("pause", "Pause ROLLOUT at its stage; its guardrails can still roll it back.")
_acting("resume", "Resume ROLLOUT, or the learning of a frozen decision point.")
_acting(
    "rollback",
    "Roll back ROLLOUT: control serves all units, the candidate is frozen, an incident opens.",
)
_acting("freeze", "Freeze the live policy of ROLLOUT's decision point at one state until `resume`.")


@command.command("promote")
@which_argument
@_reason
@click.option("--force", is_flag=True, help="Promote without evidence.")
@tenant_option
@administers
def promote_command(
    which: str, reason: str, tenant_name: str, home: Path, *, force: bool, as_json: bool
) -> None:
    """Promote ROLLOUT to its next stage; from the last stage, make the candidate live.

    The last verdict must be promote, unless --force is given. The candidate's signature must verify
    in any case.
    """
    _act(home, tenant_name, which, "promote", reason, as_json=as_json, force=force)


def _act(
    home: Path,
    tenant_name: str,
    which: str,
    action: Action,
    reason: str,
    *,
    as_json: bool,
    force: bool = False,
) -> None:
    async def work(database: Database, tenant: Tenant) -> RolloutRow:
        row = await reading(database, tenant, lambda it: find(it, tenant, which))
        bases = VerifiedBases(home)
        try:
            row = await act(
                database,
                tenant.id,
                row.id,
                action,
                actor=actor(),
                reason=reason,
                clock=time.time,
                force=force,
                bases=bases,
            )
        finally:
            bases.close()
        await mark_here(home, tenant_name, database, (tenant.id, row.skill, row.point))
        return row

    show(shown_row(for_tenant(home, tenant_name, work)), as_json=as_json)
