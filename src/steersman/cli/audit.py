"""The audit log: list, verify, and accept after a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.output import show, show_rows
from steersman.cli.signing_keys import registry_location
from steersman.db.audit import AuditRow, history, record
from steersman.db.audit_chain import Anchor, ChainReport, audit_head, verify_chain
from steersman.errors import InputError, VerificationError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.state_machine import checked_reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

_COLUMNS = ("seq", "at", "actor", "action", "subject", "detail")
_HASH_BYTES = 32


def _parsed(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[Anchor, ...]:
    return tuple(_anchor(ctx, param, value) for value in values)


def _anchor(ctx: click.Context, param: click.Parameter, value: str) -> Anchor:
    seq, _, text = value.partition(":")
    try:
        anchor = Anchor(int(seq), bytes.fromhex(text))
    except ValueError:
        anchor = Anchor(0, b"")
    if anchor.seq < 1 or len(anchor.hash) != _HASH_BYTES:
        message = (
            f"invalid anchor {value!r}: expected SEQ:SHA256, with SEQ above 0 and 64 hexadecimal "
        )
        message += "digits, for example 42:9f86d0…"
        raise click.BadParameter(message, ctx, param)
    return anchor


class SignedHead(NamedTuple):
    """The signed head of an audit log.

    Attributes:
        anchor: sequence number and hash of the head.
        signed_at: when the registry signed it; None: an earlier release signed it.
        reasons: why the registry cannot be verified now, so a later head may exist; empty if it can
            be verified.
    """

    anchor: Anchor
    signed_at: datetime | None
    reasons: tuple[str, ...]


@click.group()
def command() -> None:
    """List and verify the audit log of a tenant."""


@command.command("list")
@tenant_option
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option(
    "--before",
    type=click.IntRange(1, (1 << 63) - 1),
    help="Show only rows with a lower sequence number.",
)
@administers
def list_command(
    tenant_name: str, limit: int, before: int | None, home: Path, *, as_json: bool
) -> None:
    """List audited actions, newest first."""

    async def work(database: Database, tenant: Tenant) -> list[AuditRow]:
        connection = await database.connect("app")
        try:
            async with as_tenant(connection, tenant.id):
                return await history(connection, limit=limit, before=before)
        finally:
            await connection.close()

    rows = [_row(row) for row in for_tenant(home, tenant_name, work)]
    show_rows(rows, _COLUMNS, as_json=as_json, none=f"the audit log of {tenant_name} is empty")


@command.command("verify")
@tenant_option
@click.option(
    "--anchor",
    "anchors",
    callback=_parsed,
    metavar="SEQ:HASH",
    multiple=True,
    help="Number and hash of a row that this command printed earlier. Repeatable.",
)
@click.option(
    "--without-registry", is_flag=True, help="Do not compare with the head signed in the registry."
)
@administers
def verify_command(
    tenant_name: str,
    anchors: tuple[Anchor, ...],
    home: Path,
    *,
    without_registry: bool,
    as_json: bool,
) -> None:
    """Recompute every hash; exit with status 1 if a row was changed, moved or removed.

    Truncation can only be detected against an anchor stored outside the database. Anchors are the
    head that is signed with the tenant's snapshots, if this machine trusts its root, and those
    given with --anchor. If the registry cannot be verified now, the last verified head is compared.
    The exit status is then 1, because a later head may exist.
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
@click.option("--reason", required=True, help="Reason; kept in the audit log.")
@administers
def accept_command(tenant_name: str, reason: str, home: Path, *, as_json: bool) -> None:
    """Sign the current head of the audit log after a restore from a backup.

    After a restore, the head that was signed before is ahead of the database. Nothing more is
    signed until this command accepts the restored log. The log keeps the earlier head and the
    reason. Needs the tenant's signing keys.
    """
    from steersman.cli.signing_keys import need_publisher  # noqa: PLC0415 (slow, and rarely needed)

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
    """Return the signed head of a tenant's audit log.

    Returns:
        None: this machine trusts no root of the tenant, or no head was signed yet.

    Raises:
        RegistryError: the registry cannot be verified, and could not recently either.
    """
    root = home / "trust" / tenant_name / "root.json"
    if not root.is_file():
        return None
    source = f"{registry_location(home).rstrip('/')}/{tenant_name}"
    from steersman.registry.consumer import Consumer  # noqa: PLC0415 (slow, and rarely needed)

    consumer = Consumer(source, root.read_bytes(), home / "cache" / "registry" / tenant_name)
    reasons = consumer.refresh().reasons
    head = consumer.anchor()
    if head is None:
        return None
    return SignedHead(Anchor(head.seq, head.digest), head.signed_at, reasons)


def verified(home: Path, tenant_name: str, anchors: Sequence[tuple[int, bytes]]) -> ChainReport:
    """Return the result of the verification of a tenant's audit log.

    Raises:
        StoreError: the tenant does not exist, or the database does not answer.
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
    """Refuse a log whose chain is broken, or that contains the signed head."""
    found = await verify_chain(connection, tenant.id)
    if not found.holds:
        message = (
            f"{found.broken[0].what}: a restore cannot cause this, so nothing was signed. Run "
            "`steersman audit verify` and find out who changed the log"
        )
        raise VerificationError(message)
    if signed is None or (await verify_chain(connection, tenant.id, [signed])).holds:
        message = f"the audit log of {tenant.name} contains the signed head; nothing to accept"
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
        f"the registry cannot be verified now ({'; '.join(signed.reasons)}). The compared head was "
        f"signed at {signed.signed_at or 'an unknown time'}; rows removed since then are not "
        "detected. Repair the registry and repeat, or use --without-registry"
    )


def _text(anchor: Anchor | None) -> str | None:
    return None if anchor is None else f"{anchor.seq}:{anchor.hash.hex()}"
