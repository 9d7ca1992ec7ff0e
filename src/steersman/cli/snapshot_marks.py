"""``steersman snapshot release``, and signed marks of versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from steersman.cli.options import actor, administers, find_point, for_tenant, tenant_option
from steersman.cli.output import show
from steersman.cli.registries import publisher_of
from steersman.cli.signing_keys import need_publisher
from steersman.errors import SteersmanError
from steersman.platform.postgres.database import AWAY
from steersman.snapshots.release_marks import mark_point, release_version

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.db.tenants import Tenant
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database


@click.command("release")
@click.argument("skill")
@click.argument("point")
@click.argument("version")
@tenant_option
@administers
def release_command(
    skill: str, point: str, version: str, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Sign the mark `released` for VERSION of POINT now; consumers then load it.

    `steersman rollout run` signs it within 30 seconds after a promotion. A version that never
    served is refused: promote it with a rollout.
    """
    publisher = need_publisher(home, tenant_name)

    async def work(database: Database, tenant: Tenant) -> bool:
        await find_point(database, tenant, skill, point)
        key = tenant.id, skill, point
        return await release_version(database, key, version, publisher, actor=actor())

    changed = for_tenant(home, tenant_name, work)
    shown = {"version": version, "standing": "released", "changed": changed}
    show(shown, as_json=as_json)


async def mark_here(home: Path, tenant_name: str, database: Database, point: Point) -> None:
    """Sign the marks of a point's versions, if this machine has the keys.

    Without the keys, the controller signs them later. A failure is printed, not raised.
    """
    try:
        publisher = publisher_of(home, tenant_name)
        if publisher is not None:
            await mark_point(database, point, publisher, actor=actor())
    except (*AWAY, SteersmanError) as error:
        # The command itself succeeded, so this must not look like its failure.
        click.echo(
            f"mark not signed yet: {error}; `steersman rollout run` signs it later", err=True
        )
