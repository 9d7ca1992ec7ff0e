"""``steersman snapshot diff``, ``fetch`` and ``manifest``: versions as consumers see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steersman.cli.options import administers, find_point, for_tenant, tenant_option
from steersman.cli.output import as_text, show, write_file
from steersman.cli.signing_keys import consumer_of
from steersman.registry.manifest import manifest
from steersman.snapshots.version_difference import compare_versions

if TYPE_CHECKING:
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.snapshots.comparison import Diff

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
