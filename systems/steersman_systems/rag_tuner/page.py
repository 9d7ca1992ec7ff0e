"""HTML report of a run, in one file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from steersman_systems.rag_tuner.frontier import rising
from steersman_systems.rag_tuner.pictures import episodes, frontier, latencies, shares
from steersman_systems.reports.html import as_svg, captioned, table, write_html

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from steersman_systems.rag_tuner.frontier import FrontierPoint
    from steersman_systems.rag_tuner.report import Report

_HEADS = ("", "configuration", "quality", "95 %", "latency ms", "p95 ms", "cost")
_STYLE = """.verdict { font-size: 1.1rem; border-left: .3rem solid #0072b2; padding-left: .8rem; }
"""


def write_page(file: Path, report: Report) -> None:
    """Write the page.

    Raises:
        DataError: matplotlib is not installed, or the file cannot be written.
    """
    title = f"Tuning on {report.collection}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="verdict">{escape(str(report.verdict))}</p>',
        f"<p>{escape(report.about)}</p>",
        f"<p>{escape(report.leakage)}</p>",
        _figure(
            frontier(report.places, report.marked, "Quality, cost and latency, held-out queries"),
            "All configurations on held-out queries; the colour is the latency. A configuration "
            "on the line has higher quality than all others of the same or lower cost. The "
            "numbers refer to the table.",
        ),
        "<h2>Frontier</h2>",
        table(_HEADS, _line(report)),
        "<h2>Marked configurations</h2>",
        table(_HEADS, _marked(report)),
        "<h2>Evaluations</h2>",
        _figure(episodes(report.lines), "Reward of every evaluation, with penalties."),
        _figure(shares(report.lines), "Evaluated variants and switches, with their mean reward."),
        _figure(
            latencies(report.latencies, report.gate_ms),
            "Latency of the queries, and of the same queries under the baseline.",
        ),
        *_canary(report),
        "<h2>Other weights</h2>",
        ("<p>The best configuration, in hindsight on all queries, for other weights of latency (γ) "
        "and cost (δ). The weights change the result more than tuning does.</p>"),
        table(("γ", "δ", "best", "reward", "gain over baseline"), _swept(report)),
        *_parts(report),
    ]  # fmt: skip
    write_html(file, title, parts, style=_STYLE)


def _parts(report: Report) -> list[str]:
    if not report.ablated:
        return []
    return [
        "<h2>Ablations: effect of each part</h2>",
        ("<p>Loss of the best configuration, in hindsight on all queries, if one part is held "
        "fixed.</p>"),
        table(("fixed part", "best configuration", "loss", "95 % CI"), _ablated(report)),
    ]  # fmt: skip


def _canary(report: Report) -> list[str]:
    if report.canary is None:
        return []
    picture = latencies(report.canary, report.gate_ms, own="canary", each="episode")
    caption = "Latency of queries under the canary, and under the baseline at the same time."
    return ["<h2>Canary</h2>", _figure(picture, caption)]


def _line(report: Report) -> Iterable[Sequence[str]]:
    for number, one in enumerate(rising(report.places), 1):
        yield str(number), *_figures(one)


def _marked(report: Report) -> Iterable[Sequence[str]]:
    of = {one.configuration: one for one in report.places}
    for label, configuration in report.marked.items():
        yield label, *_figures(of[configuration])


def _figures(one: FrontierPoint) -> Sequence[str]:
    return (str(one.configuration), f"{one.quality:.3f}", f"{one.low:.3f} to {one.high:.3f}",
            f"{one.latency_ms:.1f}", f"{one.p95_ms:.1f}", f"{one.cost:.3f}")  # fmt: skip


def _swept(report: Report) -> Iterable[Sequence[str]]:
    for one in report.swept:
        best = "none passes the gates" if one.best is None else str(one.best)
        yield f"{one.gamma:g}", f"{one.delta:g}", best, f"{one.reward:.3f}", f"{one.ahead:+.3f}"


def _ablated(report: Report) -> Iterable[Sequence[str]]:
    for one in report.ablated:
        yield (one.without, str(one.best), f"{one.loss:.4f}", f"{one.low:.4f} to {one.high:.4f}")


def _figure(figure: Any, caption: str) -> str:
    return captioned(as_svg(figure), caption)


def facts(report: Report) -> Mapping[str, Any]:
    """Return the content of the page as JSON values."""
    verdict = report.verdict
    return {
        "collection": report.collection,
        "verdict": verdict.state,
        "says": str(verdict),
        "gain": {"value": verdict.gain, "low": verdict.low, "high": verdict.high},
        "candidate": verdict.candidate.parts(),
        "baseline": verdict.baseline.parts(),
        "frontier": [one.configuration.parts() for one in report.places if one.best],
        "leakage": report.leakage,
        "latency": report.latencies.told(),
        "canary": None if report.canary is None else report.canary.told(),
        "ablations": {one.without: one.loss for one in report.ablated},
    }
