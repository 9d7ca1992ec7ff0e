"""Plots of a run as SVG or PNG: frontier, episodes, evaluated configurations, latencies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman_systems.rag_tuner.frontier import rising
from steersman_systems.rag_tuner.reward import mean_of_defined
from steersman_systems.reports.html import new_axes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.frontier import FrontierPoint
    from steersman_systems.rag_tuner.latencies import Latencies

# Colours that people with any colour vision can tell apart (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GREY, _RED = "#0072b2", "#e69f00", "#009e73", "#999999", "#d55e00"
_WINDOW = 10
_MARKERS = "D*osv^P"


def frontier(
    places: Sequence[FrontierPoint], marked: Mapping[str, Configuration], title: str
) -> Any:
    """Return the plot of quality by cost, with the Pareto frontier and labels.

    Raises:
        DataError: matplotlib is not installed.
    """
    figure, axes = new_axes("cost of a query, in units of the reference", "quality", height=5.2)
    cost, quality = (np.array([getattr(one, n) for one in places]) for n in ("cost", "quality"))
    latency = [one.latency_ms for one in places]
    # Next to each other where many share a number of passages.
    aside = cost + np.linspace(-0.4, 0.4, len(cost))[np.argsort(np.argsort(latency))] / 40
    drawn = axes.scatter(aside, quality, s=5, c=latency, cmap="viridis_r", linewidths=0)
    figure.colorbar(drawn, ax=axes, label="mean latency, ms", pad=0.01)
    best = rising(places)
    spread = [[one.quality - one.low for one in best], [one.high - one.quality for one in best]]
    axes.step(
        [one.cost for one in best], [one.quality for one in best], where="post", color=_BLUE,
        linewidth=1.2, label="best quality at that cost or less, with 95 %",
    )  # fmt: skip
    axes.errorbar(
        [one.cost for one in best], [one.quality for one in best], yerr=spread, fmt="none",
        ecolor=_BLUE, elinewidth=0.8, capsize=2, alpha=0.7,
    )  # fmt: skip
    for number, one in enumerate(best, 1):  # numbers of the page's table
        axes.annotate(
            str(number), (one.cost, one.quality), (-3, 3), textcoords="offset points",
            ha="right", fontsize=7, color=_BLUE,
        )  # fmt: skip
    of = {one.configuration: one for one in places}
    for (configuration, label), marker in zip(_grouped(marked).items(), _MARKERS, strict=False):
        place = of[configuration]
        axes.plot(
            place.cost, place.quality, marker, color=_RED, markeredgecolor="white",
            markersize=15 if marker == "*" else 9,  # a star looks smaller
            label=f"{label}: {configuration}, {place.latency_ms:.1f} ms",
        )  # fmt: skip
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), fontsize=8, ncols=2)
    return figure


def episodes(lines: Sequence[Mapping[str, Any]]) -> Any:
    """Return the plot of rewards by evaluation, with broken gates marked."""
    figure, axes = new_axes("evaluation", "reward")
    rewards = np.array([np.nan if one["reward"] is None else one["reward"] for one in lines])
    numbers = np.arange(1, len(lines) + 1)
    axes.plot(numbers, rewards, ".", color=_GREY, markersize=4, label="each")
    axes.plot(numbers, _moving(rewards), color=_BLUE, label=f"mean of the last {_WINDOW}")
    broke = np.array([bool(one["breaches"]) for one in lines], bool)
    if broke.any():
        axes.plot(numbers[broke], rewards[broke], "x", color=_RED, label="broke a gate")
    axes.legend(frameon=False)
    return figure


def shares(lines: Sequence[Mapping[str, Any]]) -> Any:
    """Return the plot of evaluations and mean reward by variant and switch."""
    kinds = Counter(_kind(one) for one in lines)
    names = [name for name, _ in kinds.most_common()]
    rewards = {name: [_value(one) for one in lines if _kind(one) == name] for name in names}
    returns = [mean_of_defined(np.array(rewards[name])) for name in names]
    figure, axes = new_axes("share of the evaluations", "", height=0.8 + 0.32 * len(names))
    bars = axes.barh(names, [kinds[name] / len(lines) for name in names], color=_GREEN)
    said = ["no reward" if np.isnan(value) else f"mean reward {value:.3f}" for value in returns]
    axes.bar_label(bars, said, padding=4, fontsize=8)
    axes.set_xlim(0, 1.35 * max(kinds.values()) / len(lines))
    axes.invert_yaxis()
    return figure


def latencies(
    found: Latencies, gate_ms: float, *, own: str = "candidate", each: str = "evaluation"
) -> Any:
    """Return the plot of latency by episode, with the baseline.

    Args:
        gate_ms: Gate on the 95th percentile in milliseconds.
    """
    figure, axes = new_axes(each, "milliseconds")
    numbers = np.arange(1, len(found.p50) + 1)
    lines = [
        (found.p50, _BLUE, "-", f"{own}, median"),
        (found.p95, _ORANGE, "-", f"{own}, 95th percentile"),
        (found.baseline_p50, _BLUE, "--", "baseline, median"),
        (found.baseline_p95, _ORANGE, "--", "baseline, 95th percentile"),
    ]
    for values, colour, style, label in lines:
        # A line cannot show a single episode.
        marker = "o" if len(numbers) < 3 else ""
        axes.plot(numbers, values, style, color=colour, marker=marker, linewidth=1.2, label=label)
    if gate_ms < 3 * np.nanmax([*found.p95, *found.baseline_p95]):
        axes.axhline(gate_ms, color=_RED, linestyle=":", label="gate")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def write_png(figure: Any, file: Path) -> None:
    """Write a plot as PNG."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


def _grouped(marked: Mapping[str, Configuration]) -> dict[Configuration, str]:
    """Join the labels of a configuration that is marked several times."""
    found: dict[Configuration, str] = {}
    for label, configuration in marked.items():
        known = found.get(configuration)
        found[configuration] = f"{known} = {label}" if known else label
    return found


def _kind(line: Mapping[str, Any]) -> str:
    parts = line["configuration"]
    added = [name for name in ("rerank", "expansion") if parts[name]]
    return " +".join([str(parts["variant"]), *added])


def _value(line: Mapping[str, Any]) -> float:
    return np.nan if line["reward"] is None else float(line["reward"])


def _moving(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    return [mean_of_defined(values[max(0, n - _WINDOW) : n]) for n in range(1, len(values) + 1)]
