"""HTML report of a trial: figures, plots and the regression gate, in one file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from steersman_systems.interrogator.gate import FEWEST_SOLVED, WIDEST
from steersman_systems.interrogator.measures import SHARE
from steersman_systems.interrogator.pictures import arm_name, draw
from steersman_systems.interrogator.report import SAYS, counted
from steersman_systems.reports.html import captioned, html_table, write_html

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from steersman_systems.interrogator.trial import Trial

_STATES = {
    "passed": ("yes", "yes"),
    "failed": ("no", "no"),
    "unknown": ("unknown", "cannot be known"),
    "not_measured": ("no", "not measured"),
}
_STYLE = """
th { vertical-align: bottom; font-weight: 600; } td { vertical-align: top; }
td small { display: block; white-space: nowrap; opacity: .75; }
td:first-child small { white-space: normal; }
th:first-child, td:first-child { min-width: 5.5rem; }
.yes::before { content: "\\2713\\00a0"; } .no::before { content: "\\2717\\00a0"; }
.unknown::before { content: "?\\00a0"; }
.no { color: #b3261e; } @media (prefers-color-scheme: dark) { .no { color: #ff8a80; } }
"""


def write_page(
    file: Path, report: Mapping[str, Any], trials: Mapping[str, Trial], *, title: str
) -> None:
    """Write the page.

    Raises:
        DataError: matplotlib is not installed, or the file cannot be written.
    """
    body = [f"<h1>{escape(title)}</h1>", _verdict(report)]
    for name, found in report["sets"].items():
        body += _set(name, found, trials[name], report["candidate"])
    write_html(file, title, body, style=_STYLE)


def _verdict(report: Mapping[str, Any]) -> str:
    arm = arm_name(report["candidate"])
    passed = report["passed"]
    says = (
        f"The regression gate lets the {arm} policy ask."
        if passed
        else f"The regression gate keeps the heuristic: the {arm} policy "
        f"{_shortcomings(report)}, so <code>--rl</code> stays off."
    )
    return f'<p class="{"yes" if passed else "no"}"><strong>{says}</strong></p>'


def _shortcomings(report: Mapping[str, Any]) -> str:
    states = {
        one["state"] for found in report["sets"].values() for one in found["gate"]["measures"]
    }
    if "failed" in states:
        return "is not shown to be no worse on every measure"
    return "was not measured on every measure" if "not_measured" in states else "cannot be judged"


def _set(name: str, found: Mapping[str, Any], trial: Trial, candidate: str) -> list[str]:
    size = f"{counted(found['targets'], 'target')}, {counted(found['seeds'], 'seed')}"
    over = "targets and seeds" if found["seeds"] > 1 else "the targets of one seed"
    about = (
        f"{size}, at most {found['limit']} questions each; the same targets for every way of "
        f"choosing, each with a separate cache. Intervals are 95 %, over {over}. An embedder "
        "call is one text that no cache had."
    )
    if found["searched"]:
        about += (
            f" Beforehand {found['searched']} targets were searched: at each step "
            f"{_tried(found['search_tries'])} tried, and the best kept; that came to "
            f"{found['search_similarity']:.3f}."
        )
    parts = [f"<h2>{escape(name)}</h2>", f"<p>{about}</p>", _arms(found), _against(found)]
    return [*parts, _gate(found), *(captioned(*one) for one in draw(trial, candidate))]


def _tried(tries: int | str) -> str:
    if tries == "all":
        return "all questions were"
    return f"the {tries} questions with the nearest options were"


def _arms(found: Mapping[str, Any]) -> str:
    heads = ["policy", "similarity reached", "embedder calls", "cache hits", "solved at .90"]
    heads += ["questions to .90"]
    timed = any("steps_to_share" in arm for arm in found["arms"].values())
    share = f"{SHARE:.0%} of the search"
    heads += [f"reached {share}", f"questions to {share}"] if timed else []
    rows = []
    for arm, figures in found["arms"].items():
        row = [
            escape(arm_name(arm)),
            _estimate(figures["similarity"], 3),
            _estimate(figures["embedder_calls"], 1),
            _estimate(figures["cache_hit_rate"], 3),
            f"{figures['steps_to_090']['solved']:.1%}",
            _median(figures["steps_to_090"]),
        ]
        if timed:
            row += [
                f"{figures['steps_to_share']['solved']:.1%}",
                _median(figures["steps_to_share"]),
            ]
        rows.append(row)
    return html_table(heads, rows)


def _against(found: Mapping[str, Any]) -> str:
    heads = ["against the heuristic", "fewer calls to the same similarity", "similarity"]
    heads += ["cache hits", "calls in all", "questions to .90"]
    timed = any("steps_to_share" in one for one in found["against_heuristic"].values())
    heads += [f"questions to {SHARE:.0%} of the search"] if timed else []
    rows = []
    for arm, one in found["against_heuristic"].items():
        fewer = _estimate(one["fewer_calls_to_same_similarity"], 1, signed=True)
        fewer += f"<small>of {one['calls_of_heuristic']:.1f}</small>"
        row = [escape(arm_name(arm)), fewer]
        row += [_estimate(one[key], 3, signed=True) for key in ("similarity", "cache_hit_rate")]
        row += [_estimate(one[key], 1, signed=True) for key in ("embedder_calls", "steps_to_090")]
        row += [_estimate(one["steps_to_share"], 1, signed=True)] if timed else []
        rows.append(row)
    note = (
        f"An unreached level counts as {found['limit']} questions. Figures are means of paired "
        "differences over targets and seeds."
    )
    return f"{html_table(heads, rows)}\n<p>{note}</p>"


def _gate(found: Mapping[str, Any]) -> str:
    gate = found["gate"]
    heads = ["gate", "heuristic", "policy", "worse by at most", f"within {gate['tolerance']:.0%}"]
    rows = []
    for one in gate["measures"]:
        kind, says = _STATES[one["state"]]
        passed = f'<span class="{kind}">{says}</span>'
        name = SAYS[one["measure"]]
        name += f"<small>{escape(one['says'])}</small>" if one["says"] else ""
        figures = (_number(one["control"]), _number(one["candidate"]), _share(one["worse_by"]))
        rows.append([name, *figures, passed])
    note = (
        "The gate passes if all measures are measured, none failed, and at least one passed. Steps "
        f"to a level count only if at least {FEWEST_SOLVED:.0%} of the sessions of one policy "
        "reach it."
    )
    return f"{html_table(heads, rows)}\n<p>{note}</p>"


def _estimate(one: Mapping[str, float], digits: int, *, signed: bool = False) -> str:
    form = f"{'+' if signed else ''}.{digits}f"
    value, low, high = (_minus(f"{one[key]:{form}}") for key in ("value", "low", "high"))
    return f"{value}<small>[{low}, {high}]</small>"


def _median(one: Mapping[str, float | None]) -> str:
    if one["median"] is None:
        return "–<small>over half unsolved</small>"
    high = "–" if one["high"] is None else f"{one['high']:.0f}"
    low = "–" if one["low"] is None else f"{one['low']:.0f}"
    return f"{one['median']:.0f}<small>[{low}, {high}]</small>"


def _number(value: float | None) -> str:
    return "–" if value is None else _minus(f"{value:.3g}")


def _share(worst: float | None) -> str:
    if worst is None:
        return "–"
    # The search for the loss stops there.
    return f"over {WIDEST:+.0%}" if worst >= WIDEST else _minus(f"{worst:+.1%}")


def _minus(number: str) -> str:
    return number.replace("-", "\N{MINUS SIGN}")
