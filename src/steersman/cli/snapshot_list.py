"""``steersman snapshot list`` and ``show``: versions in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import administers, for_tenant, tenant_option
from steersman.cli.output import show, show_rows
from steersman.db.snapshots import find_snapshot
from steersman.platform.postgres.database import as_tenant
from steersman.snapshots.release_marks import read_known

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from steersman.db.snapshots import SnapshotRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.snapshots.release_marks import Known

_COLUMNS = (
    *("skill", "decision", "version", "reason", "from"),
    *("samples", "status", "mark", "at", "serves"),
)


@click.command("list")
@click.argument("skill", required=False)
@click.argument("point", required=False)
@tenant_option
@administers
def list_command(
    skill: str | None, point: str | None, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """List all versions, oldest first: declared, rebuilt, published and retracted.

    The mark of a published version is its status in the store: candidate, released or rolled back.
    The registry gets the signed mark within 30 seconds.
    """

    async def read(connection: Any, tenant: Tenant) -> list[dict[str, Any]]:
        known = await connection.fetch(
            "SELECT skill, point FROM decision_point WHERE ($1::text IS NULL OR "
            "skill = $1) AND ($2::text IS NULL OR point = $2) ORDER BY skill, point",
            *(skill, point),
        )
        listed = []
        for at in known:
            found = await read_known(connection, (tenant.id, at["skill"], at["point"]))
            listed += [_listed(row, found) for row in found.snapshots.values()]
        return listed

    rows = _reading(home, tenant_name, read)
    none = "no decision points declared"
    if skill is not None:
        none = f"not found: decision point {skill}/{point or '…'} of tenant {tenant_name}; "
        none += f"list them with `steersman tenant points {tenant_name}`"
    show_rows(rows, _COLUMNS, as_json=as_json, none=none)


@click.command("show")
@click.argument("skill")
@click.argument("point")
@click.argument("version")
@tenant_option
@administers
def show_command(
    skill: str, point: str, version: str, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Show the lineage, the evidence and the metrics of VERSION."""

    async def read(connection: Any, tenant: Tenant) -> dict[str, Any]:
        row = await find_snapshot(connection, (tenant.id, skill, point), version)
        times = {"published_at": row.published_at, "retracted_at": row.retracted_at}
        if row.description is not None:
            return {**row.description, **times}
        listed = _listed(row, await read_known(connection, (tenant.id, skill, point)))
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


def _listed(row: SnapshotRow, known: Known) -> dict[str, Any]:
    status = _status(row)
    mark = known.standing(row.version).replace("_", " ") if status == "published" else None
    return {
        "skill": row.skill,
        "decision": row.point,
        "version": row.version,
        "reason": row.reason,
        "algorithm": row.algorithm,
        "from": row.parent if row.line is None else f"{row.line}+{row.line_seq}",
        "samples": row.samples,
        "status": status,
        "mark": mark,
        "at": _at(row),
        "serves": row.version == known.row.snapshot,
    }


def _status(row: SnapshotRow) -> str:
    if row.retracted_at is not None:
        return "retracted"
    if row.reason != "published":
        return "line"
    return "waits" if row.published_at is None else "published"


def _at(row: SnapshotRow) -> datetime:
    return row.published_at or row.created_at
