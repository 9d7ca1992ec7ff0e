"""``steersman tenant``: tenants and their declared decision points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, for_tenant, home_option, in_store
from steersman.cli.output import show, show_rows
from steersman.db.declarations import check_declaration, declare
from steersman.db.erasure import erase, export
from steersman.db.points import points_as_they_are
from steersman.db.tenants import create_tenant, list_tenants
from steersman.platform.postgres.database import as_tenant
from steersman.spec.loader import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from steersman.db.erasure import ErasureResult
    from steersman.db.points import PointRow, UnreadablePoint
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

_name = click.argument("name")
_documents = click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE...",
)


@click.group()
def command() -> None:
    """Create tenants, declare their decision points, and export or erase their data."""


@command.command("create")
@_name
@administers
def create(name: str, home: Path, *, as_json: bool) -> None:
    """Create the tenant NAME: lower-case letters, digits and "-"."""
    made = in_store(home, lambda database: create_tenant(database, name, actor=actor()))
    show(_tenant(made), as_json=as_json)


@command.command("list")
@administers
def list_command(home: Path, *, as_json: bool) -> None:
    """Show all tenants of this installation."""
    found = in_store(home, list_tenants)
    none = "no tenants yet; create one with `steersman tenant create NAME`"
    show_rows(map(_tenant, found), ("name", "id", "created_at"), as_json=as_json, none=none)


@command.command("declare")
@_name
@_documents
@administers
def declare_command(name: str, files: tuple[Path, ...], home: Path, *, as_json: bool) -> None:
    """Declare or change the decision points in the YAML FILEs for the tenant NAME.

    An unchanged declaration has no effect. A change of context, actions, policy or floor starts a
    new snapshot that has learned nothing; so does a new encoding of contexts in this version.
    `steersman learn rebuild` then relearns the snapshot from the log.
    """
    documents = []
    for file in files:  # check all files first; an error then names its file
        load(file)
        documents.append(file.read_text(encoding="utf-8-sig"))
        check_declaration(documents[-1])

    async def work(database: Database, tenant: Tenant) -> list[PointRow]:
        return [await declare(database, tenant.id, text, actor=actor()) for text in documents]

    _show_points(for_tenant(home, name, work), as_json=as_json)


@command.command("points")
@_name
@administers
def points(name: str, home: Path, *, as_json: bool) -> None:
    """Show the declared decision points of the tenant NAME, and how to repair invalid ones."""

    async def work(
        database: Database, tenant: Tenant
    ) -> tuple[list[PointRow], list[UnreadablePoint]]:
        connection = await database.connect("app")
        try:
            async with as_tenant(connection, tenant.id):
                return await points_as_they_are(connection, tenant.id)
        finally:
            await connection.close()

    readable, unreadable = for_tenant(home, name, work)
    _show_points(readable, unreadable, as_json=as_json)


@command.command("export")
@_name
@click.option("--unit", required=True, help="Unit, as the application named it.")
@home_option
def export_command(name: str, unit: str, home: Path) -> None:
    """Print all rows of one unit of the tenant NAME, one JSON object per line."""

    async def work(database: Database, tenant: Tenant) -> int:
        lines = 0
        async for line in export(database, tenant.id, unit=unit):
            click.echo(line)
            lines += 1
        return lines

    if for_tenant(home, name, work) == 0:
        message = f"no rows of unit {unit!r} in PostgreSQL; check the spelling, and search older "
        click.echo(message + "days in the cold store with `steersman data query`", err=True)


@command.command("erase")
@_name
@click.option("--unit", help="Erase all decisions of this unit.")
@click.option(
    "--decision",
    "decisions",
    multiple=True,
    type=click.UUID,
    help="Erase this decision; repeatable.",
)
@click.option(
    "--document", "documents", multiple=True, help="Erase this document of --corpus; repeatable."
)
@click.option("--corpus", help="Corpus of --document.")
@click.option("--reason", required=True, help="Reason; stored with the erased ids.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@administers
def erase_command(
    name: str,
    unit: str | None,
    decisions: tuple[UUID, ...],
    documents: tuple[str, ...],
    corpus: str | None,
    reason: str,
    home: Path,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Erase decisions of the tenant NAME permanently, with their events, rewards and keys.

    The learner removes what it learned from them. The next compaction removes them from the cold
    store. Documents of a corpus are erased from all of its revisions and snapshots.
    """
    if (corpus is None) != (not documents):
        raise click.UsageError("--corpus and --document must be given together")
    if (unit is not None) + bool(decisions) + bool(documents) != 1:
        raise click.UsageError("expected exactly one of --unit, --decision and --document")
    if corpus is not None:
        _erase_documents(name, corpus, documents, reason, home, yes=yes, as_json=as_json)
        return
    if not yes:
        what = (
            f"all decisions of unit {unit!r}" if unit is not None else f"{len(decisions)} decisions"
        )
        click.confirm(f"Erase {what} of tenant {name} permanently?", abort=True, err=True)

    async def work(database: Database, tenant: Tenant) -> ErasureResult:
        return await erase(
            database,
            tenant.id,
            reason=reason,
            actor=actor(),
            unit=unit,
            decisions=decisions or None,
        )

    done = for_tenant(home, name, work)
    learned = [f"{skill}/{point}" for skill, point in done.learned]
    published = [f"{skill}/{point} {version}" for skill, point, version in done.published]
    shown = {"decisions": list(done.decisions), "rows": done.rows}
    show({**shown, "learned": learned, "published": published}, as_json=as_json)


def _erase_documents(
    name: str,
    corpus: str,
    documents: tuple[str, ...],
    reason: str,
    home: Path,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    from steersman.retrieval.corpora import Corpora  # noqa: PLC0415 (slow, and rarely needed)

    if not yes:
        what = f"{len(documents)} documents of corpus {corpus}"
        click.confirm(f"Erase {what} of tenant {name} permanently?", abort=True, err=True)

    async def work(database: Database, tenant: Tenant) -> dict[str, int]:
        corpora = Corpora(database, tenant.id, actor=actor())
        return await corpora.erase(corpus, documents, reason=reason)

    show({"corpus": corpus, "rows": for_tenant(home, name, work)}, as_json=as_json)


def _actions(row: PointRow) -> list[str]:
    """Return the names of the arms; for mixed actions, the values of their parts."""
    names = getattr(row.spec.actions, "names", ())
    return list(getattr(row.spec.actions, "marginals", names))


def _show_points(
    rows: Sequence[PointRow], unreadable: Sequence[UnreadablePoint] = (), *, as_json: bool
) -> None:
    shown: list[dict[str, Any]] = [
        {
            "skill": row.skill,
            "decision": row.point,
            "policy": row.spec.policy.algorithm,
            "actions": _actions(row),
            "snapshot": row.snapshot,
            "spec_hash": row.spec_hash,
            **({"problem": row.problem} if row.problem else {}),
        }
        for row in rows
    ]
    shown += [
        {
            "skill": row.skill,
            "decision": row.point,
            "policy": None,
            "actions": None,
            "snapshot": row.snapshot,
            "spec_hash": row.spec_hash,
            "problem": row.why,
        }
        for row in unreadable
    ]
    none = "no decision points yet; declare one with `steersman tenant declare NAME FILE`"
    columns = ("skill", "decision", "policy", "actions", "snapshot")
    show_rows(shown, columns, as_json=as_json, none=none)
    for told in () if as_json else shown:
        if "problem" in told:
            click.echo(told["problem"], err=True)


def _tenant(tenant: Tenant) -> dict[str, Any]:
    return {"name": tenant.name, "id": tenant.id, "created_at": tenant.created_at}
