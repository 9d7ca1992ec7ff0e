"""Printed rollouts, verdicts and forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.output import as_text, show, show_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.db.rollouts import RolloutRow
    from steersman.rollouts.commands import RolloutExplanation
    from steersman.rollouts.forecast import Forecast, Traffic
    from steersman.rollouts.plan import RolloutPlan

COLUMNS = ("id", "skill", "decision", "candidate", "status", "stage", "share", "started_at")


def shown_row(row: RolloutRow) -> dict[str, Any]:
    """Return the printed fields of a rollout."""
    return {
        "id": row.id,
        "skill": row.skill,
        "decision": row.point,
        "candidate": row.candidate,
        "control": row.control,
        "control_seq": row.control_seq,
        "status": row.status,
        "stage": row.stage,
        "step": row.step,
        "share": row.share,
        "started_at": row.started_at,
        "step_started_at": row.step_started_at,
        "ended_at": row.ended_at,
        "reason": row.reason,
    }


def show_explained(found: RolloutExplanation, *, as_json: bool) -> None:
    """Print the state of a rollout and its reasons."""
    if as_json:
        told = found.to_json()
        told["decision"] = told.pop("point")
        click.echo(as_text(told))
        return
    stages = [
        f"{'*' if step == found.rollout.step else ' '} {stage.name} {stage.share:.0%}"
        for step, stage in enumerate(found.plan.stages)
    ]
    show({**shown_row(found.rollout), "stages": stages}, as_json=False)
    show({"allowed_actions": list(found.legal), "frozen": found.frozen}, as_json=False)
    if found.verdict is not None:
        click.echo(f"\nverdict {found.verdict.seq}: {found.verdict.verdict}")
        for reason in found.verdict.reasons:
            click.echo(f"  - {reason}")
        _show_compared(found.verdict.inputs.get("compared", ()))
    for incident in found.incidents:
        state = "closed" if incident.closed_at else "open"
        click.echo(f"\nincident {incident.id} ({incident.kind}, {state}): {incident.summary}")


def show_history(rows: Sequence[Mapping[str, Any]], *, recomputed: bool, as_json: bool) -> None:
    """Print verdicts."""
    columns: tuple[str, ...] = ("seq", "at", "stage", "share", "verdict", "acted", "reasons")
    if recomputed:
        columns = (*columns[:-1], "same", "reasons")
    shown = rows if as_json else [{**row, "reasons": list(row["reasons"])[:1]} for row in rows]
    show_rows(
        shown,
        columns,
        as_json=as_json,
        none="no verdicts yet; check that a controller runs: `steersman rollout run`",
    )


def show_forecast(plan: RolloutPlan, found: Forecast, logged: Traffic, *, as_json: bool) -> None:
    """Print the forecast duration of a rollout."""
    if as_json:
        click.echo(as_text({**found.to_json(), "plan": plan.to_json(), "logged": logged}))
        return
    rows = [
        {
            "stage": one.name,
            "share": one.share,
            "units_per_arm": one.units,
            "days": round(one.days, 3),
        }
        for one in found.stages
    ]
    show_rows(rows, ("stage", "share", "units_per_arm", "days"), as_json=False, none="no stages")
    click.echo(
        f"\nDetecting an effect of {found.effect:+g} (sd {found.sd:.3g}) with power "
        f"{found.power:.0%} needs {found.needed_units:,} units per arm.\n"
        "With the minimum of each stage, the rollout takes "
        f"{found.units:,} units per arm and {found.days:.3g} days."
    )
    if found.harm_units is None:
        click.echo(
            "An equal loss is not rolled back: the guardrail tolerates it, or holds the rollout."
        )
    else:
        click.echo(
            f"An equal loss is rolled back after {found.harm_units:,} units of the candidate, "
            "with probability 95 %."
        )
    click.echo(
        f"The log holds {logged.units:,} units in {_span(logged.days)}"
        + (f", mean {logged.mean:.3g}, sd {logged.sd:.3g}." if logged.sd is not None else ".")
    )


def _span(days: float) -> str:
    """Return the length of a log in words, at least an hour."""
    hours = round(days * 24.0, 1)
    return f"{days:.3g} days" if days >= 1.0 else f"{hours:g} hours" if hours > 1 else "an hour"


def _show_compared(compared: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        {
            "guardrail": one["name"],
            "candidate": one["candidate"],
            "control": one["control"],
            "low": one["low"],
            "high": one["high"],
            "units": one["units"],
        }
        for one in compared
    ]
    if rows:
        click.echo()
        show_rows(rows, tuple(rows[0]), as_json=False, none="")
