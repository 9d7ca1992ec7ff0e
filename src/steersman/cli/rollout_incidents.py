"""Incidents: ``steersman rollout incidents|close``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.output import as_fields, show, show_rows
from steersman.cli.rollout_views import reading
from steersman.db.incidents import incidents_of
from steersman.rollouts.commands import close_incident

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from steersman.db.incidents import IncidentRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

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
