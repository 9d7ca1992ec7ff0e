"""Layout of a ``steersman monitor`` frame with rich, for 80 columns or more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from steersman.cli import monitor_format as words
from steersman.cli.monitor_panel import rollout_panel
from steersman.db.window_figures import MOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from steersman.cli.monitor_rollout import IncidentView
    from steersman.cli.monitor_values import Frame, PointView, TenantView, UnreadableView

_STATES = {"NORMAL": "green", "BROWNOUT": "yellow", "LOCKDOWN": "bold red"}
_NARROW, _WIDE, _WIDEST, _ROOMY = 100, 120, 156, 176
_LATE_S = 60.0
_MANY_ERRORS = 0.01


def draw(frame: Frame, width: int, *, footer: str = "") -> RenderableType:
    """Return a frame as rich renderables; ``footer`` is a line at its end."""
    parts: list[RenderableType] = [_head(frame)]
    if not frame.tenants and not frame.away:
        parts.append(Text("\n no tenants yet: `steersman up` creates one", style="dim"))
    for view in frame.tenants:
        parts += _tenant(view, width)
    if footer:
        parts.append(Text(f"\n {footer}", style="dim"))
    return Group(*parts)


def _head(frame: Frame) -> RenderableType:
    left = Text(" ")
    service = frame.service
    if service.state is None:
        left.append("◌ ", style="red").append(f"{service.url} {service.why}", style="dim")
    else:
        style = _STATES[service.state]
        left.append("● ", style=style).append(service.state, style=style)
        processes = f"{service.processes} process{'es' if service.processes != 1 else ''}"
        told = [service.url, processes, f"{service.waiting:,} waiting"]
        if service.p95_ms is not None:
            told.append(f"p95 {words.milliseconds(service.p95_ms)}")
        left.append(f"  {' · '.join(told)}", style="dim")
    right = Text(f"{frame.at:%H:%M:%S} UTC", style="bold")
    head = Table.grid(expand=True)
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    head.add_row(left, right)
    if frame.away:
        return Group(head, Text(f" ◌ database unavailable: {frame.away}", style="bold red"))
    return head


def _tenant(view: TenantView, width: int) -> Iterator[RenderableType]:
    about = f"last {words.span(view.window_s)}"
    if view.capped:
        about += f", newest {MOST:,} decisions only"
    title = Text.assemble((f" {view.tenant} ", "bold"), (f"{about} ", "dim"))
    yield Padding(Rule(title, align="left", style="dim"), (1, 0, 0, 0))
    if view.points:
        yield _points(view, width)
    elif not view.unreadable:
        yield Text(" no decision points yet: `steersman tenant declare`", style="dim")
        return
    for point in view.unreadable:
        yield _unreadable(point)
    for rollout in view.rollouts:
        yield rollout_panel(rollout, width)
    for incident in view.incidents:
        yield _incident(incident)


def _points(view: TenantView, width: int) -> Table:
    columns = _columns(width)
    padding = 2 if width >= _ROOMY else 1
    table = Table(box=None, padding=(0, padding, 0, 0), header_style="dim", pad_edge=False)
    for name, options in columns.items():
        table.add_column(name.strip("_"), no_wrap=True, **options)
    skill = None
    for point in view.points:
        if point.skill != skill:
            skill = point.skill
            table.add_row(Text(f" {skill}", style="bold cyan"))
        cells = _cells(point, view.window_s, 12 if width >= _WIDE else 8)
        table.add_row(*(cells[name] for name in columns))
    return table


def _columns(width: int) -> dict[str, dict[str, Any]]:
    """Return the columns that fit, with their options for rich."""
    columns: dict[str, dict[str, Any]] = {
        " decision point": {"overflow": "ellipsis", "min_width": 13, "max_width": 32},
        "policy": {"style": "dim", "overflow": "ellipsis", "max_width": 16},
        "serves": {},
        "age": {"justify": "right", "style": "dim"},
        "learned": {"justify": "right", "style": "dim"},
        "traffic": {"justify": "right"},
        "_": {},
        "reward": {"justify": "right", "style": "bold"},
        "__": {},
        **{
            name: {"justify": "right", "min_width": len(name)}
            for name in ("success", "errors", "p95", "$/1000", "lag")
        },
        "learner": {"style": "dim", "overflow": "ellipsis", "max_width": 20},
    }
    left_out = {"policy", "learned", "learner"} if width < _WIDEST else set()
    if width < _WIDE:
        left_out |= {"__"}
    if width < _NARROW:
        left_out |= {"_", "age", "$/1000"}
    return {name: options for name, options in columns.items() if name not in left_out}


def _cells(point: PointView, window_s: float, width: int) -> dict[str, RenderableType]:
    figures = point.figures
    learned = point.learned_age_s if point.update_seq else None
    bad = figures.errors is not None and figures.errors > _MANY_ERRORS
    return {
        " decision point": Text(f"   {point.decision}"),
        "policy": f"{point.algorithm}{'' if point.learning == 'online' else ', frozen'}",
        "serves": Text.assemble(
            point.snapshot,
            (f" +{point.update_seq:,}", "dim"),
            (" pinned", "yellow") if point.pinned else "",
        ),
        "age": words.span(point.snapshot_age_s),
        "learned": words.span(learned),
        "traffic": words.rate(point.traffic, window_s),
        "_": words.spark(point.traffic, width, style="cyan"),
        "reward": words.reward(figures.reward),
        "__": words.spark(point.rewards, width, style="green"),
        "success": words.share(figures.success),
        "errors": Text(words.share(figures.errors), style="red" if bad else ""),
        "p95": words.milliseconds(figures.p95_ms),
        "$/1000": words.money(figures.cost_usd),
        "lag": Text(words.span(point.lag_s), style="yellow" if point.lag_s > _LATE_S else ""),
        "learner": point.learner or "none",
    }


def _unreadable(point: UnreadableView) -> Text:
    """Return the full reason why a point is not shown, with what to do."""
    name = f"{point.skill}/{point.decision}"
    return Text.assemble((" ▲ ", "bold red"), (name, "bold red"), f"  {point.why}", overflow="fold")


def _incident(incident: IncidentView) -> Text:
    return Text.assemble(
        (" ▲ ", "bold red"),
        (incident.kind.replace("_", " "), "bold red"),
        f"  {incident.summary}",
        (f"  {words.span(incident.age_s)} ago", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
