"""``steersman audit``: who did what, and whether that is still what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import administers, for_tenant, tenant_option
from steersman.cli.registries import registry_location
from steersman.cli.showing import show, show_rows
from steersman.store import Anchor, AuditRow, ChainReport, as_tenant, history, verify_chain

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    printed.
    """
    signed = None if without_registry else signed_head(home, tenant_name)
    report = verified(home, tenant_name, [*anchors, *(() if signed is None else (signed,))])
    show(_report(report, signed), as_json=as_json)
    if not report.holds:
        for _, what in report.broken:
            click.echo(what, err=True)
        raise click.exceptions.Exit(1)


def signed_head(home: Path, tenant_name: str) -> Anchor | None:
    """Return the head of a tenant's audit as its signed metadata has it.

    Args:
        home: directory of all state; says which root is trusted.
        tenant_name: whose.

    Returns:
        None: no root is trusted here, or no head was signed yet.

    Raises:
        RegistryError: the registry does not verify, and did not lately either.

    No doctest: it needs a registry; ``tests/cli/test_audit.py`` shows it.
    """
    root = home / "trust" / tenant_name / "root.json"
    if not root.is_file():
        return None
    source = f"{registry_location(home).rstrip('/')}/{tenant_name}"
    from steersman.registry import Consumer  # noqa: PLC0415 (slow, and rarely needed)

    consumer = Consumer(source, root.read_bytes(), home / "cache" / "registry" / tenant_name)
    consumer.refresh()
    head = consumer.anchor()
    return None if head is None else Anchor(head.seq, head.digest)


def verified(home: Path, tenant_name: str, anchors: Sequence[tuple[int, bytes]]) -> ChainReport:
    """Return what is found of a tenant's audit.

    Args:
        home: directory of all state.
        tenant_name: whose.
        anchors: numbers and hashes of rows that were kept elsewhere.

    Raises:
        StoreError: there is no such tenant, or the database does not answer.

    No doctest: it needs a server; ``tests/cli/test_audit.py`` shows it.
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


def _report(report: ChainReport, signed: Anchor | None) -> dict[str, Any]:
    return {
        "holds": report.holds,
        "rows": report.rows,
        "head": _text(report.head),
        "signed": _text(signed),
        "anchors": report.anchors,
        "broken": [what for _, what in report.broken],
    }


def _text(anchor: Anchor | None) -> str | None:
    return None if anchor is None else f"{anchor.seq}:{anchor.hash.hex()}"
