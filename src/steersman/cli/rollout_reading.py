"""``steersman rollout plan|status|explain|history``: what changes nothing."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
import msgspec

from steersman.cli.arguments import Number
from steersman.cli.options import administers, for_tenant, tenant_option
from steersman.cli.rollout_showing import (
    COLUMNS,
    show_explained,
    show_forecast,
    show_history,
    shown_row,
)
from steersman.cli.showing import show_rows
from steersman.errors import InputError, RolloutError
from steersman.rollout import (
    Explained,
    RolloutPlan,
    explain,
    forecast,
    plan_of,
    recompute,
    traffic_of,
)
from steersman.store import (
    active_rollouts,
    as_tenant,
    find_declared,
    find_rollout,
    rollouts_of,
    verdicts_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from steersman.rollout import Traffic
    from steersman.store import Database, PointRow, RolloutRow, Tenant

T = TypeVar("T")

_FEWEST = 8

which_argument = click.argument("which", metavar="ROLLOUT")
skill_argument = click.argument("skill")
point_argument = click.argument("point")
changes_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="FIELD=JSON",
    help="Replace a field of the declared section `rollout`, such as alpha=0.01.",
)


@click.command("plan")
@skill_argument
@point_argument
@click.option(
    "--effect",
    type=Number(0, min_open=True, max=1),
    default=0.03,
    show_default=True,
    help="Difference of reward per unit that is to be found.",
)
@click.option("--sd", type=Number(0, min_open=True), help="Instead of the logged.")
@click.option("--units-per-day", type=Number(0, min_open=True), help="Likewise.")
@changes_option
@tenant_option
@administers
def plan_command(
    skill: str,
    point: str,
    effect: float,
    sd: float | None,
    units_per_day: float | None,
    changes: tuple[str, ...],
    tenant_name: str,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Say how many units and days a rollout of POINT of SKILL will take to find an effect.

    Spread and traffic are those of the log of the last days, unless they are given.
    """

    async def work(database: Database, tenant: Tenant) -> tuple[RolloutPlan, Traffic]:
        async def read(connection: Any) -> tuple[RolloutPlan, Traffic]:
            row = await declared(connection, tenant, skill, point)
            plan = plan_of(row.spec, salt="plan", overrides=overrides_of(changes))
            return plan, await traffic_of(connection, row, now=time.time())

        return await reading(database, tenant, read)

    plan, logged = for_tenant(home, tenant_name, work)
    spread = logged.sd if sd is None else sd
    daily = logged.units_per_day if units_per_day is None else units_per_day
    if not spread or not daily:
        message = f"the log of {skill}/{point} has too few rewards to tell spread and traffic; "
        raise InputError(message + "give --sd and --units-per-day")
    found = forecast(plan, spread, effect, daily)
    show_forecast(plan, found, logged, as_json=as_json)


@click.command("status")
@click.argument("which", metavar="[ROLLOUT]", required=False)
@click.option("--all", "every", is_flag=True, help="Those that ended too.")
@tenant_option
@administers
def status_command(
    which: str | None, tenant_name: str, home: Path, *, every: bool, as_json: bool
) -> None:
    """Show where rollouts stand; without ROLLOUT those that are under way."""
    if which is not None:
        show_explained(_explained(home, tenant_name, which), as_json=as_json)
        return

    async def work(database: Database, tenant: Tenant) -> list[RolloutRow]:
        read = _all_of if every else active_rollouts
        found = await reading(database, tenant, lambda connection: read(connection, tenant.id))
        return sorted(found, key=lambda row: row.id, reverse=True)  # the latest first

    rows = for_tenant(home, tenant_name, work)
    none = f"{tenant_name} has no rollout under way; `steersman rollout start` starts one"
    show_rows(map(shown_row, rows), COLUMNS, as_json=as_json, none=none)


@click.command("explain")
@which_argument
@tenant_option
@administers
def explain_command(which: str, tenant_name: str, home: Path, *, as_json: bool) -> None:
    """Say why ROLLOUT stands where it does, and what may be done."""
    show_explained(_explained(home, tenant_name, which), as_json=as_json)


@click.command("history")
@which_argument
@click.option("--recompute", "again", is_flag=True, help="Compute each verdict from its inputs.")
@click.option("--inputs", "with_inputs", is_flag=True, help="Show the inputs too (with --json).")
@tenant_option
@administers
def history_command(
    which: str,
    tenant_name: str,
    home: Path,
    *,
    again: bool,
    with_inputs: bool,
    as_json: bool,
) -> None:
    """Show every verdict of ROLLOUT; with --recompute, whether each follows from its inputs.

    A verdict that does not makes the exit status 1.
    """

    async def work(database: Database, tenant: Tenant) -> list[dict[str, Any]]:
        async def read(connection: Any) -> list[dict[str, Any]]:
            row = await find(connection, tenant, which)
            found: list[dict[str, Any]] = []
            while rows := await verdicts_of(connection, tenant.id, row.id, after=len(found)):
                for one in rows:
                    shown = asdict(one)
                    if again:
                        shown["same"] = recompute(one)
                    if not with_inputs:
                        del shown["inputs"]
                    found.append(shown)
            return found

        return await reading(database, tenant, read)

    rows = for_tenant(home, tenant_name, work)
    show_history(rows, recomputed=again, as_json=as_json)
    wrong = [str(row["seq"]) for row in rows if row.get("same") is False]
    if wrong:
        message = f"verdicts {', '.join(wrong)} do not follow from their inputs; keep a backup of "
        raise RolloutError(message + "the database as it is, and see docs/runbook.md")


async def _all_of(connection: Any, tenant: UUID) -> list[RolloutRow]:
    found = await rollouts_of(connection, tenant)
    while found and (more := await rollouts_of(connection, tenant, before=found[-1].id)):
        found += more
    return found


def _explained(home: Path, tenant_name: str, which: str) -> Explained:
    async def work(database: Database, tenant: Tenant) -> Explained:
        async def read(connection: Any) -> Explained:
            row = await find(connection, tenant, which)
            return await explain(connection, tenant.id, row.id)

        return await reading(database, tenant, read)

    return for_tenant(home, tenant_name, work)


async def reading(database: Database, tenant: Tenant, work: Callable[[Any], Awaitable[T]]) -> T:
    """Run something that reads as a tenant.

    Args:
        database: that answers.
        tenant: whose rows are seen.
        work: gets a connection within a transaction.

    Returns:
        What it returned.
    """
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            return await work(connection)
    finally:
        await connection.close()


async def find(connection: Any, tenant: Tenant, which: str) -> RolloutRow:
    """Return the rollout of an id, of its first characters, or the latest of skill/point.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.
        which: as it was typed.

    Raises:
        RolloutError: there is none, or more than one.
        InputError: too few characters to mean one; a variable that is not set has none.
    """
    if len(which) < _FEWEST and "/" not in which:
        message = f"{which!r} is too short to name a rollout; give {_FEWEST} characters of its id "
        raise InputError(message + "or more, or skill/point")
    try:
        row = await find_rollout(connection, tenant.id, UUID(which))
    except ValueError:
        skill, _, point = which.partition("/")
        if point:
            found = await rollouts_of(connection, tenant.id, skill=skill, point=point, limit=1)
        else:
            every = await _all_of(connection, tenant.id)
            found = [row for row in every if str(row.id).startswith(which.lower())]
        row = found[0] if len(found) == 1 else None
    if row is None:
        message = f"{tenant.name} has no one rollout {which!r:.60}; "
        raise RolloutError(message + "`steersman rollout status --all` lists those there are")
    return row


async def declared(connection: Any, tenant: Tenant, skill: str, point: str) -> PointRow:
    """Return a decision point.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose it is.
        skill: its skill.
        point: its name.

    Returns:
        Its row.

    Raises:
        RolloutError: there is none.
    """
    row = await find_declared(connection, (tenant.id, skill, point))
    if row is not None:
        return row
    message = f"{tenant.name} has no decision point {skill}/{point}; "
    raise RolloutError(message + f"`steersman tenant points {tenant.name}` shows those there are")


def overrides_of(changes: tuple[str, ...]) -> dict[str, Any]:
    """Return what ``--set`` says.

    Args:
        changes: each FIELD=JSON; what is no JSON is a text.

    >>> overrides_of(("alpha=0.01", 'objective={"kind": "superior"}'))
    {'alpha': 0.01, 'objective': {'kind': 'superior'}}
    """
    found: dict[str, Any] = {}
    for change in changes:
        name, sign, text = change.partition("=")
        try:
            found[name] = msgspec.json.decode(text.encode())
        except msgspec.DecodeError as error:
            if text.startswith(("[", "{", '"')):
                message = f"the value of {name} is no JSON ({error}); names and texts are quoted"
                raise click.BadParameter(message, param_hint="--set") from error
            found[name] = text
        if not sign:
            raise click.BadParameter(f"{change!r} is no FIELD=JSON", param_hint="--set")
    return found
