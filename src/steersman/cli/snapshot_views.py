"""``steersman snapshot diff``, ``fetch`` and ``manifest``: versions as consumers see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import administers, find_point, for_tenant, tenant_option
from steersman.cli.output import as_text, show, show_rows, write_file
from steersman.cli.signing_keys import consumer_of
from steersman.db.points import point_names
from steersman.db.snapshots import find_snapshot
from steersman.platform.postgres.database import as_tenant
from steersman.registry.consumer import manifest
from steersman.snapshots.release_marks import read_known
from steersman.snapshots.version_difference import compare_versions

if TYPE_CHECKING:
    from datetime import datetime

    from steersman.db.snapshots import SnapshotRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.snapshots.comparison import Diff
    from steersman.snapshots.release_marks import VersionFacts

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
        listed = []
        for name in await point_names(connection, skill, point):
            found = await read_known(connection, (tenant.id, *name))
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


def _listed(row: SnapshotRow, known: VersionFacts) -> dict[str, Any]:
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


_skill = click.argument("skill")
_point = click.argument("point")
_source = click.option(
    "--source",
    metavar="URL",
    help="Registry of the tenant: a directory, s3://… or https://….  [default: in HOME]",
)


@click.command("diff")
@_skill
@_point
@click.argument("first")
@click.argument("second")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.2,
    show_default=True,
    help="Share of the units of the newest decisions that is held out for the comparison.",
)
@click.option(
    "--newest",
    type=click.IntRange(1, 1_000_000),
    default=20_000,
    show_default=True,
    help="Number of newest decisions.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also draw a chart into this file; needs the extra [demo].",
)
@tenant_option
@administers
def diff_command(
    skill: str,
    point: str,
    first: str,
    second: str,
    share: float,
    newest: int,
    picture: Path | None,
    tenant_name: str,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Compare the versions FIRST and SECOND of POINT.

    It shows changes of parameters and features, the traffic that moves between actions, and the
    difference in reward with its interval. The reward is estimated on decisions held out of both.
    """

    async def work(database: Database, tenant: Tenant) -> Diff:
        await find_point(database, tenant, skill, point)
        key = tenant.id, skill, point
        return await compare_versions(database, key, first, second, share=share, newest=newest)

    found = for_tenant(home, tenant_name, work)
    if picture is not None:
        found.picture(picture)
    if as_json:
        show(found.to_json(), as_json=True)
    else:
        click.echo(found.text())


@click.command("fetch")
@_skill
@_point
@click.argument("version", required=False)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the published state to this file.",
)
@_source
@tenant_option
@administers
def fetch_command(
    skill: str,
    point: str,
    version: str | None,
    out: Path | None,
    source: str | None,
    tenant_name: str,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Load VERSION, or the newest released one, as a consumer does; verify its signatures.

    It needs no database. The trusted root is HOME/trust/TENANT/root.json.
    """
    consumer = consumer_of(home, tenant_name, source=source)
    loaded = consumer.load(skill, point, version)
    described = loaded.description
    assert described is not None  # noqa: S101 (always set by the registry)
    data = consumer.data(skill, point, described.version)
    if out is not None:
        write_file(out, data)
    shown = {
        "version": described.version,
        "source": loaded.source,
        "verified_at": loaded.verified_at,
        "sha256": described.sha256,
        "bytes": len(data),
        "reasons": list(loaded.reasons),
    }
    show(shown, as_json=as_json)


@click.command("manifest")
@_source
@tenant_option
@administers
def manifest_command(source: str | None, tenant_name: str, home: Path, *, as_json: bool) -> None:
    """Print the published versions, one JSON object per line; with --json, as a list."""
    lines = manifest(consumer_of(home, tenant_name, source=source))
    if as_json:
        lines = as_text([json.loads(line) for line in lines.splitlines()]) + "\n"
    click.echo(lines, nl=False)
