"""``steersman snapshot list`` and ``show``: what is known of versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import administers, for_tenant, tenant_option
from steersman.cli.showing import show, show_rows
from steersman.store import as_tenant, find_snapshot, snapshots_of

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from steersman.store import Database, SnapshotRow, Tenant

_COLUMNS = ("skill", "decision", "version", "reason", "from", "samples", "status", "at", "serves")


@click.command("list")
@click.argument("skill", required=False)
@click.argument("point", required=False)
@tenant_option
@administers
def list_command(
    skill: str | None, point: str | None, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Show all versions, oldest first: declared, rebuilt, published, retracted."""

    async def read(connection: Any, tenant: Tenant) -> list[dict[str, Any]]:
        known = await connection.fetch(
            "SELECT skill, point, snapshot FROM decision_point WHERE ($1::text IS NULL OR "
            "skill = $1) AND ($2::text IS NULL OR point = $2) ORDER BY skill, point",
            *(skill, point),
        )
        return [
            _listed(row, serving["snapshot"])
            for serving in known
            for row in await snapshots_of(
                connection, (tenant.id, serving["skill"], serving["point"])
            )
        ]

    rows = _reading(home, tenant_name, read)
    show_rows(rows, _COLUMNS, as_json=as_json, none="nothing is declared")


@click.command("show")
@click.argument("skill")
@click.argument("point")
@click.argument("version")
@tenant_option
@administers
def show_command(
    skill: str, point: str, version: str, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Show what is known of VERSION: where it comes from, its evidence, its measures."""

    async def read(connection: Any, tenant: Tenant) -> dict[str, Any]:
        row = await find_snapshot(connection, (tenant.id, skill, point), version)
        times = {"published_at": row.published_at, "retracted_at": row.retracted_at}
        if row.description is not None:
            return {**row.description, **times}
        listed = _listed(row, "")
        return {name: listed[name] for name in _COLUMNS[:-1]} | {"sha256": row.sha256.hex()}

    show(_reading(home, tenant_name, read), as_json=as_json)


def _reading(home: Path, tenant_name: str, read: Any) -> Any:
    async def work(database: Database, tenant: Tenant) -> Any:
        connection = await database.connect("app")
        try:
            async with as_tenant(connection, tenant.id):
                return await read(connection, tenant)
        finally:
            await connection.close()

    return for_tenant(home, tenant_name, work)


def _listed(row: SnapshotRow, serving: str) -> dict[str, Any]:
    return {
        "skill": row.skill,
        "decision": row.point,
        "version": row.version,
        "reason": row.reason,
        "algorithm": row.algorithm,
        "from": row.parent if row.line is None else f"{row.line}+{row.line_seq}",
        "samples": row.samples,
        "status": _status(row),
        "at": _at(row),
        "serves": row.version == serving,
    }


def _status(row: SnapshotRow) -> str:
    if row.retracted_at is not None:
        return "retracted"
    if row.reason != "published":
        return "line"
    return "waits" if row.published_at is None else "published"


def _at(row: SnapshotRow) -> datetime:
    return row.published_at or row.created_at
