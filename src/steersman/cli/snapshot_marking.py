"""``steersman snapshot release``, and marks that are signed at once where the keys are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from steersman.cli.options import actor, administers, find_point, for_tenant, tenant_option
from steersman.cli.registries import publisher_of
from steersman.cli.showing import show
from steersman.cli.signing import need_publisher
from steersman.errors import SteersmanError
from steersman.learn import mark_point, release_version
from steersman.store import AWAY

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.store import Database, Point, Tenant


@click.command("release")
@click.argument("skill")
@click.argument("point")
@click.argument("version")
@tenant_option
@administers
def release_command(
    skill: str, point: str, version: str, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Sign at once that VERSION of POINT serves, or has served: consumers load it from then on.

    `steersman rollout run` does so by itself, half a minute after a rollout has promoted it. What
    never served is refused: promote it by a rollout.
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
    """Sign what a point's versions are, if the keys are here; else whoever ships does it.

    Args:
        home: directory of all state.
        tenant_name: of the tenant.
        database: of the home.
        point: tenant, skill and decision point.
    """
    try:
        publisher = publisher_of(home, tenant_name)
        if publisher is not None:
            await mark_point(database, point, publisher, actor=actor())
    except (*AWAY, SteersmanError) as error:
        # What was asked for is done, and must not look as if it were not.
        click.echo(f"not marked yet, `steersman rollout run` will do it: {error}", err=True)
