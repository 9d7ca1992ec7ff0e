"""``steersman rollout``: start, watch, move and explain rollouts; run their controller."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
import msgspec

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.rollout_running import run_command
from steersman.cli.rollout_showing import (
    COLUMNS,
    show_explained,
    show_forecast,
    show_history,
    shown_row,
)
from steersman.cli.showing import show, show_rows
from steersman.errors import InputError, RolloutError
from steersman.rollout import (
    Explained,
    RolloutPlan,
    Wanted,
    act,
    explain,
    forecast,
    plan_of,
    recompute,
    start,
    traffic_of,
)
from steersman.service import Verified
from steersman.store import (
    as_tenant,
    find_rollout,
    points_of,
    rollouts_of,
    verdicts_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from steersman.rollout import Action, Traffic
    from steersman.store import Database, PointRow, RolloutRow, Tenant

T = TypeVar("T")

_which = click.argument("which", metavar="ROLLOUT")
_reason = click.option("--reason", required=True, help="Why; kept in the audit.")
_skill = click.argument("skill")
_point = click.argument("point")
_changes = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="FIELD=JSON",
    help="Replace a field of the declared section `rollout`, such as alpha=0.01.",
)


@click.group()
def command() -> None:
    """Let a published snapshot take over in stages, on evidence, or take it back.

    ROLLOUT is an id, its first characters, or skill/point for the latest of that decision point.
    """


command.add_command(run_command)


@command.command("start")
@_skill
@_point
@click.argument("candidate")
@click.option("--reason", default="", help="Why; kept in the audit.")
@_changes
@click.option("--concurrent", is_flag=True, help="Though another point of the skill has one.")
@click.option("--again", default="", help="Why a candidate that was rolled back is tried again.")
@click.option("--force", default="", help="Why it may serve at once, without shadow or evidence.")
@tenant_option
@administers
def start_command(
    skill: str,
    point: str,
    candidate: str,
    reason: str,
    changes: tuple[str, ...],
    again: str,
    force: str,
    tenant_name: str,
    home: Path,
    *,
    concurrent: bool,
    as_json: bool,
) -> None:
    """Start to roll out the published version CANDIDATE of POINT of SKILL."""
    wanted = Wanted(
        skill=skill,
        point=point,
        candidate=candidate,
        reason=reason,
        overrides=_overrides(changes),
        concurrent=True if concurrent else None,
        again=again,
        force=force,
    )

    async def work(database: Database, tenant: Tenant) -> RolloutRow:
        bases = Verified(home)
        try:
            return await start(
                database, tenant.id, wanted, actor=actor(), clock=time.time, bases=bases
            )
        finally:
            bases.close()

    show(shown_row(for_tenant(home, tenant_name, work)), as_json=as_json)


@command.command("plan")
@_skill
@_point
@click.option(
    "--effect",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=0.03,
    show_default=True,
    help="Difference of reward per unit that is to be found.",
)
@click.option("--sd", type=click.FloatRange(min=0, min_open=True), help="Instead of the logged.")
@click.option("--units-per-day", type=click.FloatRange(min=0, min_open=True), help="Likewise.")
@_changes
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
            row = await _declared(connection, tenant, skill, point)
            plan = plan_of(row.spec, salt="plan", overrides=_overrides(changes))
            return plan, await traffic_of(connection, row, now=time.time())

        return await _reading(database, tenant, read)

    plan, logged = for_tenant(home, tenant_name, work)
    spread = logged.sd if sd is None else sd
    daily = logged.units_per_day if units_per_day is None else units_per_day
    if not spread or not daily:
        message = f"the log of {skill}/{point} has too few rewards to tell spread and traffic; "
        raise InputError(message + "give --sd and --units-per-day")
    found = forecast(plan, spread, effect, daily)
    show_forecast(plan, found, logged, as_json=as_json)


@command.command("status")
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
        return await _reading(
            database, tenant, lambda connection: rollouts_of(connection, tenant.id)
        )

    rows = [row for row in for_tenant(home, tenant_name, work) if every or row.is_under_way]
    none = f"{tenant_name} has no rollout under way; `steersman rollout start` starts one"
    show_rows(map(shown_row, rows), COLUMNS, as_json=as_json, none=none)


@command.command("explain")
@_which
@tenant_option
@administers
def explain_command(which: str, tenant_name: str, home: Path, *, as_json: bool) -> None:
    """Say why ROLLOUT stands where it does, and what may be done."""
    show_explained(_explained(home, tenant_name, which), as_json=as_json)


@command.command("history")
@_which
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
            row = await _find(connection, tenant, which)
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

        return await _reading(database, tenant, read)

    rows = for_tenant(home, tenant_name, work)
    show_history(rows, recomputed=again, as_json=as_json)
    wrong = [str(row["seq"]) for row in rows if row.get("same") is False]
    if wrong:
        message = f"verdicts {', '.join(wrong)} do not follow from their inputs; keep a backup of "
        raise RolloutError(message + "the database as it is, and see docs/runbook.md")


def _acting(action: Action, about: str) -> None:
    """Make the command of an action that takes a reason and nothing else."""

    @command.command(action, help=about)
    @_which
    @_reason
    @tenant_option
    @administers
    def acting(which: str, reason: str, tenant_name: str, home: Path, *, as_json: bool) -> None:
        _act(home, tenant_name, which, action, reason, as_json=as_json)


_acting("pause", "Let ROLLOUT go no further; it is still watched, and rolled back if it harms.")
_acting("resume", "Let ROLLOUT go on, or a frozen decision point learn on.")
_acting("rollback", "Take the candidate of ROLLOUT back, freeze it, and open an incident.")
_acting("freeze", "Pin what serves beside ROLLOUT to one state until `resume`.")


@command.command("promote")
@_which
@_reason
@click.option("--force", is_flag=True, help="Though there is no evidence.")
@tenant_option
@administers
def promote_command(
    which: str, reason: str, tenant_name: str, home: Path, *, force: bool, as_json: bool
) -> None:
    """Let ROLLOUT go on to its next stage, or from the last one let the candidate take over.

    The last verdict must say so unless it is forced. The candidate must verify in any case.
    """
    _act(home, tenant_name, which, "promote", reason, as_json=as_json, force=force)


def _act(
    home: Path,
    tenant_name: str,
    which: str,
    action: Action,
    reason: str,
    *,
    as_json: bool,
    force: bool = False,
) -> None:
    async def work(database: Database, tenant: Tenant) -> RolloutRow:
        row = await _reading(database, tenant, lambda it: _find(it, tenant, which))
        bases = Verified(home)
        try:
            return await act(
                database,
                tenant.id,
                row.id,
                action,
                actor=actor(),
                reason=reason,
                clock=time.time,
                force=force,
                bases=bases,
            )
        finally:
            bases.close()

    show(shown_row(for_tenant(home, tenant_name, work)), as_json=as_json)


def _explained(home: Path, tenant_name: str, which: str) -> Explained:
    async def work(database: Database, tenant: Tenant) -> Explained:
        async def read(connection: Any) -> Explained:
            row = await _find(connection, tenant, which)
            return await explain(connection, tenant.id, row.id)

        return await _reading(database, tenant, read)

    return for_tenant(home, tenant_name, work)


async def _reading(database: Database, tenant: Tenant, work: Callable[[Any], Awaitable[T]]) -> T:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant.id):
            return await work(connection)
    finally:
        await connection.close()


async def _find(connection: Any, tenant: Tenant, which: str) -> RolloutRow:
    """Return the rollout of an id, of its first characters, or the latest of skill/point."""
    try:
        row = await find_rollout(connection, tenant.id, UUID(which))
    except ValueError:
        skill, _, point = which.partition("/")
        rows = await rollouts_of(connection, tenant.id, limit=1000)
        if point:
            found = [row for row in rows if (row.skill, row.point) == (skill, point)][:1]
        else:
            found = [row for row in rows if str(row.id).startswith(which)]
        row = found[0] if len(found) == 1 else None
    if row is None:
        message = f"{tenant.name} has no one rollout {which!r:.60}; "
        raise RolloutError(message + "`steersman rollout status --all` lists those there are")
    return row


async def _declared(connection: Any, tenant: Tenant, skill: str, point: str) -> PointRow:
    for row in await points_of(connection, tenant.id):
        if (row.skill, row.point) == (skill, point):
            return row
    message = f"{tenant.name} has no decision point {skill}/{point}; "
    raise RolloutError(message + f"`steersman tenant points {tenant.name}` shows those there are")


def _overrides(changes: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for change in changes:
        name, sign, text = change.partition("=")
        try:
            found[name] = msgspec.json.decode(text.encode())
        except msgspec.DecodeError:
            found[name] = text
        if not sign:
            raise click.BadParameter(f"{change!r} is no FIELD=JSON", param_hint="--set")
    return found
