"""``steersman tenant``: tenants, and what they declared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, for_tenant, home_option, in_store
from steersman.cli.showing import show, show_rows
from steersman.spec import load
from steersman.store import (
    as_tenant,
    check_declaration,
    create_tenant,
    declare,
    erase,
    export,
    list_tenants,
    points_as_they_are,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from steersman.store import Database, Erased, PointRow, Tenant, UnreadablePoint

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
    """Make tenants, declare their decision points, hand out or erase what is theirs."""


@command.command("create")
@_name
@administers
def create(name: str, home: Path, *, as_json: bool) -> None:
    """Make the tenant NAME: small letters, digits and "-"."""
    made = in_store(home, lambda database: create_tenant(database, name, actor=actor()))
    show(_tenant(made), as_json=as_json)


@command.command("list")
@administers
def list_command(home: Path, *, as_json: bool) -> None:
    """Show all tenants of this installation."""
    found = in_store(home, list_tenants)
    none = "no tenants yet; `steersman tenant create NAME` makes one"
    show_rows(map(_tenant, found), ("name", "id", "created_at"), as_json=as_json, none=none)


@command.command("declare")
@_name
@_documents
@administers
def declare_command(name: str, files: tuple[Path, ...], home: Path, *, as_json: bool) -> None:
    """Declare the decision points in the YAML FILEs for the tenant NAME, or change them.

    Declaring the same again changes nothing. Where context, actions, policy or floor change, or
    this version encodes contexts otherwise, a new snapshot begins that has learned nothing:
    `steersman learn rebuild` relearns it from the log.
    """
    documents = []
    for file in files:  # all are looked at, and told by their names, before one is stored
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
    """Show what the tenant NAME declared; what cannot be served is told with what to do."""

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
@click.option("--unit", required=True, help="Whose rows: what the application called its unit.")
@home_option
def export_command(name: str, unit: str, home: Path) -> None:
    """Print everything the store holds about a unit of the tenant NAME, one JSON object a line."""

    async def work(database: Database, tenant: Tenant) -> int:
        lines = 0
        async for line in export(database, tenant.id, unit=unit):
            click.echo(line)
            lines += 1
        return lines

    if for_tenant(home, name, work) == 0:
        message = f"PostgreSQL has nothing of unit {unit!r}; look for other spellings, and for "
        click.echo(message + "older days in the cold store (`steersman data query`)", err=True)


@command.command("erase")
@_name
@click.option("--unit", help="All decisions of this unit ...")
@click.option("--decision", "decisions", multiple=True, type=click.UUID, help="... or this one.")
@click.option("--document", "documents", multiple=True, help="Or this document, in every ...")
@click.option("--corpus", help="... revision and snapshot of this corpus.")
@click.option("--reason", required=True, help="Kept beside the ids of what was erased.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    """Erase decisions of the tenant NAME with their events, rewards and keys; for good.

    What was learned from them is taken back by the learner; the cold store drops them with its next
    compaction. Documents of a corpus are erased from each of its revisions and snapshots.
    """
    if (corpus is None) != (not documents):
        raise click.UsageError("--corpus and --document go together")
    if (unit is not None) + bool(decisions) + bool(documents) != 1:
        raise click.UsageError("give either --unit or one --decision or --document or more")
    if corpus is not None:
        _erase_documents(name, corpus, documents, reason, home, yes=yes, as_json=as_json)
        return
    if not yes:
        what = f"all of unit {unit!r}" if unit is not None else f"{len(decisions)} decisions"
        click.confirm(f"Erase {what} of {name} for good?", abort=True, err=True)

    async def work(database: Database, tenant: Tenant) -> Erased:
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
    from steersman.retrieval import Corpora  # noqa: PLC0415 (slow, and rarely needed)

    if not yes:
        what = f"{len(documents)} documents of corpus {corpus}"
        click.confirm(f"Erase {what} of {name} for good?", abort=True, err=True)

    async def work(database: Database, tenant: Tenant) -> dict[str, int]:
        corpora = Corpora(database, tenant.id, actor=actor())
        return await corpora.erase(corpus, documents, reason=reason)

    show({"corpus": corpus, "rows": for_tenant(home, name, work)}, as_json=as_json)


def _actions(row: PointRow) -> list[str]:
    """Return the names of arms; of mixed actions, the values of their parts."""
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
    none = "nothing declared yet; `steersman tenant declare NAME FILE` does"
    columns = ("skill", "decision", "policy", "actions", "snapshot")
    show_rows(shown, columns, as_json=as_json, none=none)
    for told in () if as_json else shown:
        if "problem" in told:
            click.echo(told["problem"], err=True)


def _tenant(tenant: Tenant) -> dict[str, Any]:
    return {"name": tenant.name, "id": tenant.id, "created_at": tenant.created_at}
