"""``steersman snapshot``: signed versions of policy states."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, find_point, for_tenant, tenant_option
from steersman.cli.output import show, write_file
from steersman.cli.signing_keys import git_commit, mark_here, need_publisher, release_command
from steersman.cli.snapshot_keys import keys, write_down
from steersman.cli.snapshot_views import (
    diff_command,
    fetch_command,
    list_command,
    manifest_command,
    show_command,
)
from steersman.db.audit import record
from steersman.db.promotion import unpin_point
from steersman.db.snapshots import find_snapshot
from steersman.errors import StateError
from steersman.platform.postgres.database import as_tenant
from steersman.points.state_bytes import state_sha256, unpack_state
from steersman.rollouts.state_machine import checked_reason
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from steersman.snapshots.reproduce import reproduce
from steersman.snapshots.retract import retract_version, take_out

if TYPE_CHECKING:
    from steersman.db.snapshots import SnapshotRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.registry.description import Description
    from steersman.snapshots.retract import RetractionResult

_skill = click.argument("skill")
_point = click.argument("point")
_version = click.argument("version")
_reason = click.option("--reason", required=True, help="Reason; stored in the audit log.")


@click.group()
def command() -> None:
    """Publish signed snapshots; compare, reproduce and retract them."""


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
    help="Declaration of a candidate: learn under it from the same log. The live policy stays.",
)
@click.option(
    "--force",
    metavar="REASON",
    help="Overrule the publish guard, with this reason; stored in the audit log.",
)
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
    """Publish the learned state of POINT of SKILL as a new signed version.

    If the state is unchanged, the command shows the last version. The guard refuses a state whose
    size or scale differs too much from earlier versions, or that is shown to be worse on held-out
    decisions.
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
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the snapshot to this file.",
)
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
    """Rebuild VERSION from the log alone, and compare its hashes with the signed ones.

    The exit status is 1 if the state or the file differs.
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
    said = row.description or {}
    state = said.get("state_sha256") or row.sha256.hex()  # only a published state is compressed
    same_state = state_sha256(unpack_state(made)) == state
    same = same_state and said.get("sha256") in {None, sha256(made).hexdigest()}
    show(
        {"version": version, "same": same, "same_state": same_state, "bytes": len(made)},
        as_json=as_json,
    )
    if not same:
        message = (
            f"cannot reproduce {skill}/{point} {version} from the log on this machine; try the "
        )
        raise StateError(message + "publishing machine: processors and zstd versions differ")


@command.command("retract")
@_skill
@_point
@_version
@_reason
@click.option(
    "--take-back", is_flag=True, help="If VERSION is live, return to the last good version."
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
    """Retract VERSION: consumers no longer find it, and it never serves again.

    The live version is retracted only with --take-back. The point then returns to the previous
    signed version and stays pinned there until `steersman snapshot unpin`; an incident is opened.
    A version in an active rollout is not retracted: roll it back first.
    """
    reason = checked_reason(reason)
    publisher = need_publisher(home, tenant_name)

    async def work(database: Database, tenant: Tenant) -> RetractionResult:
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
        # Last: services must drop the version even if the registry is unavailable. The same command
        # or the next scheduled publish then removes it.
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
    help="Accept a registry restored from a backup, with this reason; stored in the audit log.",
)
@tenant_option
@administers
def refresh_command(
    accept_older: str | None, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Sign a new timestamp, valid for one day; `rollout run` does this hourly.

    A registry that is older than the last one seen on this machine is refused. --accept-older
    accepts it with a reason, and signs under higher numbers, so that consumers accept it too.
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
    """Release the pin of POINT, so that it serves what it learns again.

    The drift guard sets the pin when it returns a point to its base. A point that a rollout froze
    is refused: use `steersman rollout resume`.
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
        hint = f"byte {error.start} is not valid UTF-8; save the file as UTF-8 text"
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
    """Return the result on held-out decisions in one line."""
    if held_out.get("difference") is None:
        return "; ".join(held_out.get("reasons", ()))
    return (
        f"{held_out['difference']:+.4f} ({held_out['low']:+.4f} to {held_out['high']:+.4f} at "
        f"{held_out['level']:.0%}) against {held_out['against']}, {held_out['decisions']} decisions"
    )
