"""``steersman snapshot``: publish what was learned, signed; make it again, or take it back."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, find_point, for_tenant, tenant_option
from steersman.cli.showing import show, write_file
from steersman.cli.signing import git_commit, need_publisher
from steersman.cli.snapshot_keys import keys, write_down
from steersman.cli.snapshot_listing import list_command, show_command
from steersman.cli.snapshot_marking import mark_here, release_command
from steersman.cli.snapshot_reading import diff_command, fetch_command, manifest_command
from steersman.errors import StateError
from steersman.learn import Reason, publish, reproduce, retract_version, take_out
from steersman.registry import pack_state, unpack_snapshot
from steersman.rollout import checked_reason
from steersman.store import as_tenant, find_snapshot, record, unpin_point

if TYPE_CHECKING:
    from steersman.learn import Retracted
    from steersman.registry import Description
    from steersman.store import Database, SnapshotRow, Tenant

_skill = click.argument("skill")
_point = click.argument("point")
_version = click.argument("version")
_reason = click.option("--reason", required=True, help="Why; kept in the audit.")


@click.group()
def command() -> None:
    """Publish what was learned, signed; look at it, make it again, or take it back."""


command.add_command(keys)
command.add_command(diff_command)
command.add_command(fetch_command)
command.add_command(manifest_command)
command.add_command(list_command)
command.add_command(release_command)
command.add_command(show_command)


@command.command("publish")
@_skill
@_point
@click.option(
    "--spec",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A candidate's declaration: what would have been learned under it. Nothing is switched.",
)
@click.option("--force", metavar="REASON", help="Overrule the publish guard; audited.")
@tenant_option
@administers
def publish_command(
    skill: str,
    point: str,
    spec: Path | None,
    force: str | None,
    tenant_name: str,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Publish what POINT of SKILL has learned under the next version, signed.

    Without anything new the last version is shown again. The guard refuses what left the size or
    scale of earlier versions, or is shown to decide worse on held-out decisions.
    """
    publisher = need_publisher(home, tenant_name)
    document = None if spec is None else _text_of(spec)
    overruled = None if force is None else checked_reason(force, name="force")
    why = Reason(actor=actor(), force=overruled, git_commit=git_commit())

    async def work(database: Database, tenant: Tenant) -> Description:
        row = await find_point(database, tenant, skill, point)
        return await publish(database, row, publisher, why, spec=document)

    _show(for_tenant(home, tenant_name, work), as_json=as_json)


@command.command("reproduce")
@_skill
@_point
@_version
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the bytes.")
@tenant_option
@administers
def reproduce_command(
    skill: str,
    point: str,
    version: str,
    out: Path | None,
    tenant_name: str,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Make VERSION again from the log alone, and compare its hashes with those that were signed.

    Another state, or another file around it, makes the exit status 1.
    """

    async def work(database: Database, tenant: Tenant) -> tuple[bytes, SnapshotRow]:
        made = await reproduce(database, tenant.id, skill, point, version)
        connection = await database.connect("app")
        try:
            async with as_tenant(connection, tenant.id):
                return made, await find_snapshot(connection, (tenant.id, skill, point), version)
        finally:
            await connection.close()

    made, row = for_tenant(home, tenant_name, work)
    if out is not None:
        write_file(out, made)
    same_state = sha256(pack_state(unpack_snapshot(made))).digest() == row.sha256
    signed = (row.description or {}).get("sha256")
    same = same_state and signed in {None, sha256(made).hexdigest()}
    show(
        {"version": version, "same": same, "same_state": same_state, "bytes": len(made)},
        as_json=as_json,
    )
    if not same:
        message = f"{skill}/{point} {version} does not follow from the log on this machine; "
        raise StateError(message + "another processor or zstd may differ in the last digits")


@command.command("retract")
@_skill
@_point
@_version
@_reason
@click.option(
    "--take-back", is_flag=True, help="If it serves, go back to the last good one, and stay there."
)
@tenant_option
@administers
def retract_command(
    skill: str,
    point: str,
    version: str,
    reason: str,
    tenant_name: str,
    home: Path,
    *,
    take_back: bool,
    as_json: bool,
) -> None:
    """Take VERSION back: nobody finds it any more, and it never serves again.

    What serves is retracted with --take-back alone: the point goes back to what was signed before
    it, is pinned there until `steersman snapshot unpin`, and an incident is opened. What is on its
    way in a rollout is not retracted: roll it back first.
    """
    reason = checked_reason(reason)
    publisher = need_publisher(home, tenant_name)

    async def work(database: Database, tenant: Tenant) -> Retracted:
        key = tenant.id, skill, point
        connection = await database.connect("worker")
        try:
            async with as_tenant(connection, tenant.id):
                done = await retract_version(
                    connection,
                    key,
                    version,
                    actor=actor(),
                    reason=reason,
                    now=datetime.now(UTC),
                    take_back=take_back,
                )
        finally:
            await connection.close()
        # Last, as services must leave it even if the registry is away; then the same command again
        # takes it out, or whoever publishes on schedule.
        take_out(publisher, done.row, reason)
        await mark_here(home, tenant_name, database, key)
        return done

    row, serves = for_tenant(home, tenant_name, work)
    told = {"version": row.version, "retracted_at": row.retracted_at, "serves": serves}
    show({name: value for name, value in told.items() if value is not None}, as_json=as_json)


@command.command("refresh")
@click.option(
    "--accept-older",
    metavar="REASON",
    help="Go on with a registry that was restored from a backup; audited.",
)
@tenant_option
@administers
def refresh_command(
    accept_older: str | None, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Sign a new timestamp, which consumers believe for a day; `rollout run` does so hourly.

    Nothing is signed on top of a registry that is older than what was seen on this machine, unless
    --accept-older says why it is: then under higher numbers, so that consumers go on, too.
    """
    publisher = need_publisher(home, tenant_name)
    if accept_older is None:
        done = publisher.refresh_timestamp()
    else:
        detail = {"reason": checked_reason(accept_older, name="accept-older")}
        write_down(home, tenant_name, "registry.accept", detail)
        done = publisher.accept_older()
    shown = {"tenant": tenant_name, "expires": done.expires, "root_expires": done.root_expires}
    show(shown, as_json=as_json)


@command.command("unpin")
@_skill
@_point
@_reason
@tenant_option
@administers
def unpin_command(
    skill: str, point: str, reason: str, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Let POINT serve what it learns again, after the drift guard sent it back to its base.

    What a rollout froze, or has under way, is refused: `steersman rollout resume` lets it go.
    """
    reason = checked_reason(reason)

    async def work(database: Database, tenant: Tenant) -> None:
        connection = await database.connect("worker")
        try:
            async with as_tenant(connection, tenant.id):
                if await unpin_point(connection, (tenant.id, skill, point)):
                    detail = {"reason": reason}
                    name = f"{skill}/{point}"
                    await record(connection, tenant.id, actor(), "point.unpin", name, detail)
        finally:
            await connection.close()

    for_tenant(home, tenant_name, work)
    show({"skill": skill, "decision": point, "pinned": False}, as_json=as_json)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        hint = f"byte {error.start} is no UTF-8; write it as UTF-8 text"
        raise click.FileError(str(file), hint) from error


def _show(description: Description, *, as_json: bool) -> None:
    if as_json:
        show(description.to_json(), as_json=True)
        return
    held_out = description.evidence.get("held_out") or {}
    show(
        {
            "version": description.version,
            "algorithm": description.algorithm,
            "from": f"{description.line} after {description.line_seq} updates",
            "samples": description.samples,
            "held out": _told(held_out),
            "overruled": description.evidence.get("overruled"),
            "bytes": description.size,
            "sha256": description.sha256,
            "at": description.url,
        },
        as_json=False,
    )


def _told(held_out: dict[str, Any]) -> str:
    """Return what held-out decisions say, in a line."""
    if held_out.get("difference") is None:
        return "; ".join(held_out.get("reasons", ()))
    return (
        f"{held_out['difference']:+.4f} ({held_out['low']:+.4f} to {held_out['high']:+.4f} at "
        f"{held_out['level']:.0%}) against {held_out['against']}, {held_out['decisions']} decisions"
    )
