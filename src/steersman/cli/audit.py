"""``steersman audit``: who did what, and whether that is still what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.registries import registry_location
from steersman.cli.showing import show, show_rows
from steersman.errors import InputError, VerificationError
from steersman.rollout import checked_reason
from steersman.store import (
    Anchor,
    AuditRow,
    ChainReport,
    as_tenant,
    audit_head,
    history,
    record,
    verify_chain,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from steersman.store import Database, Tenant

_COLUMNS = ("seq", "at", "actor", "action", "subject", "detail")
_HASH_BYTES = 32


def _parsed(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[Anchor, ...]:
    """Return the numbers and hashes of rows, as `steersman audit verify` prints them."""
    return tuple(_anchor(ctx, param, value) for value in values)


def _anchor(ctx: click.Context, param: click.Parameter, value: str) -> Anchor:
    seq, _, text = value.partition(":")
    try:
        anchor = Anchor(int(seq), bytes.fromhex(text))
    except ValueError:
        anchor = Anchor(0, b"")
    if anchor.seq < 1 or len(anchor.hash) != _HASH_BYTES:
        message = f"{value!r} is no number above 0, ':' and 64 hexadecimal digits"
        raise click.BadParameter(message, ctx, param)
    return anchor


class SignedHead(NamedTuple):
    """The head of an audit as it was signed, and how fresh that is.

    Attributes:
        anchor: its number and hash.
        signed_at: when the registry was signed that says so; None: an earlier release signed it.
        reasons: why the registry did not verify just now, so that a later head may have been
            signed; empty if it did.
    """

    anchor: Anchor
    signed_at: datetime | None
    reasons: tuple[str, ...]


@click.group()
def command() -> None:
    """Show who did what, and whether that is still what was written."""


@command.command("list")
@tenant_option
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Most rows.",
)
@click.option(
    "--before", type=click.IntRange(1, (1 << 63) - 1), help="Only rows with a lower number."
)
@administers
def list_command(
    tenant_name: str, limit: int, before: int | None, home: Path, *, as_json: bool
) -> None:
    """Show what was done, the latest first."""

    async def work(database: Database, tenant: Tenant) -> list[AuditRow]:
        connection = await database.connect("app")
        try:
            async with as_tenant(connection, tenant.id):
                return await history(connection, limit=limit, before=before)
        finally:
            await connection.close()

    rows = [_row(row) for row in for_tenant(home, tenant_name, work)]
    show_rows(rows, _COLUMNS, as_json=as_json, none=f"nothing was done for {tenant_name} yet")


@command.command("verify")
@tenant_option
@click.option(
    "--anchor",
    "anchors",
    callback=_parsed,
    metavar="SEQ:HASH",
    multiple=True,
    help="Number and hash of a row, as this command printed them once.",
)
@click.option("--without-registry", is_flag=True, help="Do not ask for the head that was signed.")
@administers
def verify_command(
    tenant_name: str,
    anchors: tuple[Anchor, ...],
    home: Path,
    *,
    without_registry: bool,
    as_json: bool,
) -> None:
    """Compute every hash again; exit status 1 if a row was changed, moved or removed.

    That rows are missing from the end only an anchor tells, which was kept elsewhere: the head that
    is signed with the tenant's snapshots, if its root is trusted here, or one that this command
    printed. Where the registry does not verify just now, the head that did last is compared, and
    the exit status is 1: a later one may have been signed.
    """
    signed = None if without_registry else signed_head(home, tenant_name)
    report = verified(home, tenant_name, [*anchors, *(() if signed is None else (signed.anchor,))])
    show(_report(report, signed), as_json=as_json)
    wrong = [what for _, what in report.broken]
    if signed is not None and signed.reasons:
        wrong.append(_outdated(signed))
    for what in wrong:
        click.echo(what, err=True)
    if wrong:
        raise click.exceptions.Exit(1)


@command.command("accept")
@tenant_option
@click.option("--reason", required=True, help="Why; kept in the audit.")
@administers
def accept_command(tenant_name: str, reason: str, home: Path, *, as_json: bool) -> None:
    """Sign the head of the audit as it is, after the database was restored from a backup.

    The head that was signed before is then ahead of what was restored, and nothing is signed any
    more. It is kept in the audit, with the reason. Needs the tenant's signing keys.
    """
    from steersman.cli.signing import need_publisher  # noqa: PLC0415 (slow, and rarely needed)

    publisher = need_publisher(home, tenant_name)
    reason, signed = checked_reason(reason), publisher.anchored()

    async def work(database: Database, tenant: Tenant) -> Anchor:
        connection = await database.connect("worker")
        try:
            async with as_tenant(connection, tenant.id):
                await _check_restored(connection, tenant, signed)
                detail = {"reason": reason, "signed": _text(Anchor(*signed) if signed else None)}
                await record(connection, tenant.id, actor(), "audit.accept", tenant.name, detail)
                head = await audit_head(connection, tenant.id)
                assert head is not None  # noqa: S101 (written just now)
                return head
        finally:
            await connection.close()

    head = for_tenant(home, tenant_name, work)
    publisher.anchor(*head, restored=True)
    show({"tenant": tenant_name, "signed": _text(head)}, as_json=as_json)


def signed_head(home: Path, tenant_name: str) -> SignedHead | None:
    """Return the head of a tenant's audit as its signed metadata has it.

    Args:
        home: directory of all state; says which root is trusted.
        tenant_name: whose.

    Returns:
        None: no root is trusted here, or no head was signed yet.

    Raises:
        RegistryError: the registry does not verify, and did not lately either.
    """
    root = home / "trust" / tenant_name / "root.json"
    if not root.is_file():
        return None
    source = f"{registry_location(home).rstrip('/')}/{tenant_name}"
    from steersman.registry import Consumer  # noqa: PLC0415 (slow, and rarely needed)

    consumer = Consumer(source, root.read_bytes(), home / "cache" / "registry" / tenant_name)
    reasons = consumer.refresh().reasons
    head = consumer.anchor()
    if head is None:
        return None
    return SignedHead(Anchor(head.seq, head.digest), head.signed_at, reasons)


def verified(home: Path, tenant_name: str, anchors: Sequence[tuple[int, bytes]]) -> ChainReport:
    """Return what is found of a tenant's audit.

    Args:
        home: directory of all state.
        tenant_name: whose.
        anchors: numbers and hashes of rows that were kept elsewhere.

    Raises:
        StoreError: there is no such tenant, or the database does not answer.
    """

    async def work(database: Database, tenant: Tenant) -> ChainReport:
        connection = await database.connect("app")
        try:
            async with as_tenant(connection, tenant.id):
                return await verify_chain(connection, tenant.id, anchors)
        finally:
            await connection.close()

    return for_tenant(home, tenant_name, work)


def _row(row: AuditRow) -> dict[str, Any]:
    return {
        "seq": row.seq,
        "id": row.id,
        "at": row.at,
        "actor": row.actor,
        "action": row.action,
        "subject": row.subject,
        "detail": row.detail,
        "prev_hash": row.prev_hash,
        "hash": row.hash,
    }


async def _check_restored(
    connection: Any, tenant: Tenant, signed: tuple[int, bytes] | None
) -> None:
    """Refuse an audit that is broken in itself, or holds what was signed."""
    found = await verify_chain(connection, tenant.id)
    if not found.holds:
        message = (
            f"{found.broken[0].what}: no restore does that; nothing was signed. See "
            "`steersman audit verify`, and find out who changed it"
        )
        raise VerificationError(message)
    if signed is None or (await verify_chain(connection, tenant.id, [signed])).holds:
        message = f"what was signed of the audit of {tenant.name} is in it; nothing to accept"
        raise InputError(message)


def _report(report: ChainReport, signed: SignedHead | None) -> dict[str, Any]:
    return {
        "holds": report.holds,
        "rows": report.rows,
        "head": _text(report.head),
        "signed": _text(None if signed is None else signed.anchor),
        "signed_at": None if signed is None else signed.signed_at,
        "online": None if signed is None else not signed.reasons,
        "anchors": report.anchors,
        "broken": [what for _, what in report.broken],
    }


def _outdated(signed: SignedHead) -> str:
    return (
        f"the registry did not verify just now ({'; '.join(signed.reasons)}): what was compared "
        f"was signed at {signed.signed_at or 'an unknown time'}, and rows that were removed since "
        "are not noticed. See to the registry, then repeat; or say --without-registry"
    )


def _text(anchor: Anchor | None) -> str | None:
    return None if anchor is None else f"{anchor.seq}:{anchor.hash.hex()}"
