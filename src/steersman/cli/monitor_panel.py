"""Layout of an active rollout in ``steersman monitor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from steersman.cli import monitor_format as words
from steersman.db.window_figures import Figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from steersman.cli.monitor_rollout import Comparison, RolloutView, VerdictView

_VERDICTS = {
    "promote": "bold green",
    "hold": "bold yellow",
    "roll_back": "bold red",
    "not_enough_data": "cyan",
}
_BORDERS = {"running": "green", "paused": "yellow"}
_SILENT_S = 15.0
_MOST_REASONS = 4


def rollout_panel(rollout: RolloutView, width: int) -> Panel:
    """Return a rollout as a panel: steps, arms, comparisons and the last verdict."""
    parts: list[RenderableType] = [_way(rollout), _progress(rollout), Text(), _arms(rollout)]
    verdict = rollout.verdict
    if verdict is not None and verdict.comparisons:
        parts += [Text(), _comparisons(verdict.comparisons, width)]
    parts += [Text(), *_said(verdict)]
    return Panel(
        Group(*parts),
        title=Text.assemble(
            (f"{rollout.skill}/{rollout.decision}", "bold"),
            f" {rollout.status}",
            (f" for {words.span(rollout.age_s)}", "dim"),
        ),
        title_align="left",
        subtitle=_controller(rollout),
        subtitle_align="right",
        border_style=_BORDERS[rollout.status],
        padding=(0, 1),
    )


def _way(rollout: RolloutView) -> Text:
    """Return the steps: done, current, and to come."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for number, step in enumerate(rollout.steps):
        if number:
            line.append(" ── " if number > rollout.step else " ━━ ", style="dim")
        name = step.stage if step.stage == "shadow" else f"{step.stage} {100 * step.share:g} %"
        if number < rollout.step:
            line.append(f"✔ {name}", style="green")
        elif number == rollout.step:
            line.append(f" {name} ", style="bold reverse")
        else:
            line.append(name, style="dim")
    return line


def _progress(rollout: RolloutView) -> Text:
    if not rollout.step < len(rollout.steps):
        return Text()
    step = rollout.steps[rollout.step]
    line = Text("this step ", style="dim")
    line.append(words.span(rollout.step_age_s), style="bold")
    if step.min_s:
        line.append(f" of {words.span(step.min_s)} ").append(_bar(rollout.step_age_s / step.min_s))
    if step.min_units:
        units = 0 if rollout.verdict is None else rollout.verdict.units
        what = "decisions" if step.stage == "shadow" else "units per arm"
        line.append(f"   {what} ", style="dim").append(f"{units:,}", style="bold")
        line.append(f" of {step.min_units:,} ").append(_bar(units / step.min_units))
    return line


def _bar(done: float, width: int = 12) -> Text:
    filled = round(min(1.0, max(0.0, done)) * width)
    return Text.assemble(("━" * filled, "green"), ("─" * (width - filled), "dim"))


def _arms(rollout: RolloutView) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("arm", "serves"):
        table.add_column(name, no_wrap=True)
    for name in ("decisions", "reward", "success", "errors", "p95", "$/1000"):
        table.add_column(name, justify="right", no_wrap=True)
    serving = {
        "control": f"{rollout.control} +{rollout.control_seq:,}",
        "candidate": rollout.candidate,
    }
    for arm, state in serving.items():
        figures = rollout.arms.get(arm, Figures())
        table.add_row(
            Text(arm, style="bold" if arm == "candidate" else ""),
            state,
            f"{figures.decisions:,}",
            words.reward(figures.reward),
            words.share(figures.success),
            words.share(figures.errors),
            words.milliseconds(figures.p95_ms),
            words.money(figures.cost_usd),
        )
    return table


def _comparisons(found: tuple[Comparison, ...], width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("by unit", no_wrap=True, overflow="ellipsis", max_width=24)
    for name in ("control", "candidate", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    columns = 41 if width >= 120 else 25
    table.add_column(
        " worse ┊ better".center(columns), no_wrap=True
    )  # rich strips trailing spaces: keep the axis
    for one in found:
        table.add_row(*_compared(one, columns))
    return table


def _compared(one: Comparison, columns: int) -> Iterator[RenderableType]:
    yield one.metric
    yield words.reward(one.control)
    yield words.reward(one.candidate)
    if one.low is None or one.high is None:
        yield words.NONE
        yield Text("not enough units yet".center(columns), style="dim")
        return
    yield f"{words.signed(one.low)} to {words.signed(one.high)}"
    low, high = (one.low, one.high) if one.better == "higher" else (-one.high, -one.low)
    style = "green" if low > 0 else "red" if high < 0 else "yellow"
    yield words.interval(low, high, -one.margin, columns, style=style)


def _said(verdict: VerdictView | None) -> Iterator[Text]:
    if verdict is None:
        yield Text("no verdict yet", style="dim")
        return
    line = Text.assemble(
        (verdict.verdict.replace("_", " "), _VERDICTS[verdict.verdict]),
        (f"  {words.span(verdict.age_s)} ago", "dim"),
    )
    if verdict.acted != "none":
        line.append(f"  {verdict.acted.replace('_', ' ')}", style="bold")
    yield line
    for reason in verdict.reasons[:_MOST_REASONS]:
        yield Text(f"  {reason}", overflow="fold")
    if len(verdict.reasons) > _MOST_REASONS:
        left = len(verdict.reasons) - _MOST_REASONS
        yield Text(f"  and {left} more: `steersman rollout explain`", style="dim")


def _controller(rollout: RolloutView) -> Text:
    if not rollout.controller:
        return Text("no controller yet", style="yellow")
    silent = rollout.controller_seen_s > _SILENT_S
    said = f"{rollout.controller} seen {words.span(rollout.controller_seen_s)} ago"
    return Text(said, style="bold red" if silent else "dim")
