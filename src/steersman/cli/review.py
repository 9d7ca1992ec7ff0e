"""Review of outputs that detectors flagged: ``steersman review``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.output import as_fields, show, show_rows
from steersman.db.reviews import file_for_review, find_review, resolve_review, reviews_of
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from steersman.db.reviews import ReviewRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.providers.detectors.flags import Detector

_COLUMNS = ("id", "at", "detector", "kinds", "score", "subject", "verdict")
_item = click.argument("item", type=click.UUID)


@click.group()
def command() -> None:
    """List and resolve outputs flagged for personal data, hate or differing answers."""


@command.command("scan")
@click.argument("predictions", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--toxicity/--no-toxicity", "toxic", default=True, show_default=True,
              help="Detect hateful and offensive words; needs the extra `rag`.")  # fmt: skip
@tenant_option
@administers
def scan_command(
    predictions: Path, tenant_name: str, home: Path, *, toxic: bool, as_json: bool
) -> None:
    """Scan PREDICTIONS, the answers of a run, and add findings to the review list.

    The detectors find personal data, hateful and offensive words, and differing answers to the same
    question. Stored excerpts are masked. Scanning the same answers again adds nothing.
    """
    from steersman.providers.detectors.answer_review import (  # noqa: PLC0415
        Instability,
        flagged_answers,
    )
    from steersman.providers.detectors.national_ids import PersonalData  # noqa: PLC0415 (slow)
    from steersman.providers.detectors.toxicity import toxicity  # noqa: PLC0415

    personal = PersonalData()
    detectors: list[Detector] = [personal]
    if toxic:
        detectors.append(toxicity())
    found = list(flagged_answers(predictions, detectors, personal, Instability()))

    async def work(database: Database, tenant: Tenant) -> int:
        async with _as_owner(database, tenant) as connection:
            filed = [
                await file_for_review(
                    connection, tenant.id, detector=one.detector, kinds=one.kinds, score=one.score,
                    subject=one.subject, excerpt=one.excerpt, at=datetime.now(UTC),
                )
                for one in found
            ]  # fmt: skip
        return sum(filed)

    new = for_tenant(home, tenant_name, work)
    show({"flagged": len(found), "new": new}, as_json=as_json)


@command.command("list")
@click.option("--all", "every", is_flag=True, help="Include resolved items.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Maximum number of items, oldest first.",
)
@tenant_option
@administers
def list_command(tenant_name: str, home: Path, *, every: bool, limit: int, as_json: bool) -> None:
    """List flagged items that are not resolved, oldest first."""

    async def work(database: Database, tenant: Tenant) -> list[ReviewRow]:
        async with _as_owner(database, tenant) as connection:
            return await reviews_of(connection, tenant.id, open_only=not every, limit=limit)

    rows = [_shown(row) for row in for_tenant(home, tenant_name, work)]
    show_rows(rows, _COLUMNS, as_json=as_json, none=f"{tenant_name} has no items to review")


@command.command("show")
@_item
@tenant_option
@administers
def show_command(item: UUID, tenant_name: str, home: Path, *, as_json: bool) -> None:
    """Show ITEM with its text; personal data is masked."""

    async def work(database: Database, tenant: Tenant) -> ReviewRow:
        async with _as_owner(database, tenant) as connection:
            return await find_review(connection, tenant.id, item)

    show(_shown(for_tenant(home, tenant_name, work)), as_json=as_json)


@command.command("resolve")
@_item
@click.option(
    "--confirmed/--dismissed", "confirmed", required=True, help="Whether the flag was right."
)
@click.option(
    "--note", required=True, help="Reason; kept in the audit log, so include no personal data."
)
@tenant_option
@administers
def resolve_command(
    item: UUID, note: str, tenant_name: str, home: Path, *, confirmed: bool, as_json: bool
) -> None:
    """Resolve ITEM: confirm or dismiss its flag."""

    async def work(database: Database, tenant: Tenant) -> ReviewRow:
        async with _as_owner(database, tenant) as connection:
            return await resolve_review(
                connection, tenant.id, item, verdict="confirmed" if confirmed else "dismissed",
                note=note, actor=actor(), at=datetime.now(UTC),
            )  # fmt: skip

    show(_shown(for_tenant(home, tenant_name, work)), as_json=as_json)


@asynccontextmanager
async def _as_owner(database: Database, tenant: Tenant) -> AsyncIterator[Any]:
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant.id):
            yield connection
    finally:
        await connection.close()


def _shown(row: ReviewRow) -> dict[str, Any]:
    fields = {name: value for name, value in as_fields(row).items() if name != "tenant"}
    return {**fields, "kinds": ", ".join(row.kinds)}
