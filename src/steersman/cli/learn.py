"""The learner: ``steersman learn``."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.local_store import close, open_store
from steersman.cli.options import (
    actor,
    administers,
    find_point,
    for_tenant,
    home_option,
    run,
    tenant_option,
)
from steersman.cli.output import as_fields, show, show_rows
from steersman.cli.supervisor import stop_on_signals, stop_with_parent
from steersman.db.points import UnreadablePoint, points_as_they_are
from steersman.errors import StateError, StoreError
from steersman.learning.rebuild import rebuild
from steersman.learning.verify import verify
from steersman.platform.postgres.database import Database, as_tenant
from steersman.workers.learner import run_learner

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant

_skill = click.argument("skill")
_point = click.argument("point")


class Moment(click.ParamType[datetime]):
    """A time in ISO 8601; without a zone it is UTC."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the time."""
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"invalid time {value!r:.60}: expected ISO 8601, for example 2026-01-31T12:00:00Z",
                param,
                ctx,
            )
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@click.group()
def command() -> None:
    """Run the learner; rebuild or verify learned states."""


@command.command("run")
@home_option
@click.option("--supervised", is_flag=True, hidden=True)
def run_command(home: Path, *, supervised: bool) -> None:
    """Run a learner until Ctrl-C or SIGTERM.

    You can run any number of learners on any machine: one of them learns each decision point.
    """
    from steersman.platform.telemetry.logs import configure_logging  # noqa: PLC0415 (for one command)
    from steersman.platform.telemetry.tracing import configure_tracing, finish_tracing  # noqa: PLC0415 (for one command)
    from steersman.snapshots.verified_bases import VerifiedBases  # noqa: PLC0415 (for one command)

    configure_logging()
    provider = configure_tracing("steersman-learner")
    database = open_store(home)
    bases = VerifiedBases(home)

    async def learn() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        await run_learner(database, stop=stop, bases=bases)

    if supervised:
        stop_with_parent()
    try:
        run(learn())
    finally:
        bases.close()
        close(database)
        finish_tracing(provider)


@command.command("rebuild")
@_skill
@_point
@click.option("--until", type=Moment(), help="Leave out updates after this time (ISO 8601, UTC).")
@click.option(
    "--exclude",
    metavar="CONDITION",
    help="Leave out decisions that match this SQL expression over the columns of table "
    "decision, such as \"unit = 'bot-7'\". It applies to the hot tables only.",
)
@click.option(
    "--exclude-decision",
    "decisions",
    multiple=True,
    type=click.UUID,
    help="Leave out this decision, hot or cold. Repeatable.",
)
@click.option(
    "--keep-unseen",
    is_flag=True,
    help="Keep updates from decisions that retention has dropped. --exclude cannot check them; "
    "without this option it fails if there are any.",
)
@tenant_option
@administers
def rebuild_command(
    skill: str,
    point: str,
    until: datetime | None,
    exclude: str | None,
    decisions: tuple[UUID, ...],
    tenant_name: str,
    home: Path,
    *,
    keep_unseen: bool,
    as_json: bool,
) -> None:
    """Rebuild the state of POINT of SKILL from its log, and serve it.

    Use it to leave out poisoned or erased decisions. The result has the same bytes as if they had
    never been logged. The point keeps serving during the rebuild. A later rebuild does not bring
    decisions back: it reads the log that the last one kept.
    """

    async def work(database: Database, tenant: Tenant) -> dict[str, Any]:
        row = await find_point(database, tenant, skill, point)
        made = await rebuild(
            database,
            row,
            actor=actor(),
            until=until,
            exclude=exclude,
            decisions=decisions,
            keep_unseen=keep_unseen,
        )
        return as_fields(made)

    show(for_tenant(home, tenant_name, work), as_json=as_json)


@command.command("verify")
@click.argument("skill", required=False)
@click.argument("point", required=False)
@tenant_option
@administers
def verify_command(
    skill: str | None, point: str | None, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Recompute rewards from events and states from updates; compare with the stored ones.

    Without SKILL and POINT, all points of the tenant are verified. A difference sets the exit
    status to 1.
    """

    async def work(database: Database, tenant: Tenant) -> list[dict[str, Any]]:
        rows = await _points(database, tenant)
        if skill is not None:
            rows = [row for row in rows if row.skill == skill and point in {None, row.point}]
            if not rows:
                raise _unknown(tenant, skill, point)
        return [await _verified(database, row) for row in rows]

    rows = for_tenant(home, tenant_name, work)
    columns = ("skill", "decision", "holds", "decisions", "updates", "pending", "not_learned")
    shown = rows if as_json else [_with_counts(row) for row in rows]
    show_rows(
        shown,
        (*columns, "wrong_rewards", "state", "sha256"),
        as_json=as_json,
        none="no decision points declared",
    )
    problems = [row["problem"] for row in rows if "problem" in row]
    wrong = [
        f"{row['skill']}/{row['decision']}"
        for row in rows
        if not row["holds"] and "problem" not in row
    ]
    if wrong:
        problems.append(
            f"stored state differs from the log: {', '.join(wrong)}; run `steersman learn rebuild`"
        )
    if problems:
        raise StateError("\n".join(problems))


def _with_counts(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "not_learned": len(row["not_learned"])} if "not_learned" in row else row


async def _verified(database: Database, row: PointRow | UnreadablePoint) -> dict[str, Any]:
    """Return the result for a point; for an unreadable point, the reason."""
    place = {"skill": row.skill, "decision": row.point}
    if isinstance(row, UnreadablePoint):
        return {**place, "holds": False, "problem": row.why}
    found = await verify(database, row)
    return {**place, "holds": found.holds, **as_fields(found)}


async def _points(database: Database, tenant: Tenant) -> list[PointRow | UnreadablePoint]:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            rows, unreadable = await points_as_they_are(connection, tenant.id)
    finally:
        await connection.close()
    known: list[PointRow | UnreadablePoint] = [*rows, *unreadable]
    return sorted(known, key=lambda row: (row.skill, row.point))


def _unknown(tenant: Tenant, skill: str, point: str | None) -> StoreError:
    message = f"not found: decision point {skill}/{point or '…'} of tenant {tenant.name}; "
    return StoreError(message + f"`steersman tenant points {tenant.name}` lists the declared ones")
