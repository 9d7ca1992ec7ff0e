"""Commands that only read: ``steersman rollout plan|status|explain|history``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
import msgspec

from steersman.cli.arguments import Number
from steersman.cli.options import administers, for_tenant, tenant_option
from steersman.cli.output import show_rows
from steersman.cli.rollout_output import (
    COLUMNS,
    show_explained,
    show_forecast,
    show_history,
    shown_row,
)
from steersman.db.points import find_declared
from steersman.db.rollouts import active_rollouts, find_rollout, rollouts_of
from steersman.db.verdicts import verdicts_of
from steersman.errors import InputError, RolloutError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.commands import RolloutExplanation, explain
from steersman.rollouts.forecast import forecast, traffic_of
from steersman.rollouts.plan import RolloutPlan, plan_of
from steersman.rollouts.verdicts import recompute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.forecast import Traffic

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
    help="Override a field of the declared section `rollout`, such as alpha=0.01. Repeatable.",
)


@click.command("plan")
@skill_argument
@point_argument
@click.option(
    "--effect",
    type=Number(0, min_open=True, max=1),
    default=0.03,
    show_default=True,
    help="Difference in mean reward per unit to detect.",
)
@click.option(
    "--sd",
    type=Number(0, min_open=True),
    help="Standard deviation of the reward per unit.  [default: from the log]",
)
@click.option(
    "--units-per-day", type=Number(0, min_open=True), help="Units per day.  [default: from the log]"
)
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
    """Estimate how many units and days a rollout of POINT of SKILL takes to detect an effect.

    Standard deviation and traffic come from the log of the last days, unless they are given.
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
        message = f"the log of {skill}/{point} has too few rewards to estimate sd and traffic; "
        raise InputError(message + "give --sd and --units-per-day")
    found = forecast(plan, spread, effect, daily)
    show_forecast(plan, found, logged, as_json=as_json)


@click.command("status")
@click.argument("which", metavar="[ROLLOUT]", required=False)
@click.option("--all", "every", is_flag=True, help="Include ended rollouts.")
@tenant_option
@administers
def status_command(
    which: str | None, tenant_name: str, home: Path, *, every: bool, as_json: bool
) -> None:
    """List active rollouts, or show the state of ROLLOUT."""
    if which is not None:
        show_explained(_explained(home, tenant_name, which), as_json=as_json)
        return

    async def work(database: Database, tenant: Tenant) -> list[RolloutRow]:
        read = _all_of if every else active_rollouts
        found = await reading(database, tenant, lambda connection: read(connection, tenant.id))
        return sorted(found, key=lambda row: row.id, reverse=True)  # newest first

    rows = for_tenant(home, tenant_name, work)
    none = f"{tenant_name} has no active rollouts; `steersman rollout start` starts one"
    show_rows(map(shown_row, rows), COLUMNS, as_json=as_json, none=none)


@click.command("explain")
@which_argument
@tenant_option
@administers
def explain_command(which: str, tenant_name: str, home: Path, *, as_json: bool) -> None:
    """Explain the state of ROLLOUT, and list the allowed actions."""
    show_explained(_explained(home, tenant_name, which), as_json=as_json)


@click.command("history")
@which_argument
@click.option(
    "--recompute", "again", is_flag=True, help="Recompute each verdict from its stored inputs."
)
@click.option("--inputs", "with_inputs", is_flag=True, help="Include the inputs (with --json).")
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
    """List the verdicts of ROLLOUT; with --recompute, compare each with its inputs.

    A verdict that differs from its recomputation sets the exit status to 1.
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
        message = f"verdicts {', '.join(wrong)} differ from their recomputation; back up the "
        raise RolloutError(message + "database unchanged, and see docs/runbook.md")


async def _all_of(connection: Any, tenant: UUID) -> list[RolloutRow]:
    found = await rollouts_of(connection, tenant)
    while found and (more := await rollouts_of(connection, tenant, before=found[-1].id)):
        found += more
    return found


def _explained(home: Path, tenant_name: str, which: str) -> RolloutExplanation:
    async def work(database: Database, tenant: Tenant) -> RolloutExplanation:
        async def read(connection: Any) -> RolloutExplanation:
            row = await find(connection, tenant, which)
            return await explain(connection, tenant.id, row.id)

        return await reading(database, tenant, read)

    return for_tenant(home, tenant_name, work)


async def reading(database: Database, tenant: Tenant, work: Callable[[Any], Awaitable[T]]) -> T:
    """Run a read inside a transaction of a tenant."""
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            return await work(connection)
    finally:
        await connection.close()


async def find(connection: Any, tenant: Tenant, which: str) -> RolloutRow:
    """Return the rollout with an id, with an id's first characters, or the latest of skill/point.

    Raises:
        RolloutError: no rollout matches, or more than one.
        InputError: too few characters, for example from an unset shell variable.
    """
    if len(which) < _FEWEST and "/" not in which:
        message = (
            f"{which!r} is too short to identify a rollout; give {_FEWEST} characters of its id "
        )
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
        message = f"no single rollout of {tenant.name} matches {which!r:.60}; "
        raise RolloutError(message + "`steersman rollout status --all` lists all rollouts")
    return row


async def declared(connection: Any, tenant: Tenant, skill: str, point: str) -> PointRow:
    """Return a decision point.

    Raises:
        RolloutError: the point does not exist.
    """
    row = await find_declared(connection, (tenant.id, skill, point))
    if row is not None:
        return row
    message = f"not found: decision point {skill}/{point} of tenant {tenant.name}; "
    raise RolloutError(message + f"`steersman tenant points {tenant.name}` lists the declared ones")


def overrides_of(changes: tuple[str, ...]) -> dict[str, Any]:
    """Return the overrides that ``--set`` gives.

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
                message = f"the value of {name} is not valid JSON ({error}); quote names and texts"
                raise click.BadParameter(message, param_hint="--set") from error
            found[name] = text
        if not sign:
            raise click.BadParameter(
                f"invalid override {change!r}: expected FIELD=JSON", param_hint="--set"
            )
    return found
