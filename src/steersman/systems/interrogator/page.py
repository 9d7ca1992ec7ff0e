"""The report of a trial as one HTML page that needs nothing else: figures, pictures, the gate."""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError
from steersman.systems.interrogator.gate import calls
from steersman.systems.interrogator.measures import SHARE
from steersman.systems.interrogator.report import curve_by_calls, curve_by_steps
from steersman.systems.interrogator.trial import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from steersman.systems.interrogator.trial import Trial

# Colours that people with any colour vision can tell apart (Okabe and Ito).
_COLOURS = {
    "heuristic": "#000000",
    "cold": "#56b4e9",
    "warm": "#009e73",
    "warm_online": "#d55e00",
    "uniform": "#999999",
    "nearest": "#cc79a7",
}
_NAMES = {"warm_online": "warm + online"}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; background: #fff; border-radius: .4rem; padding: .5rem; }
figure svg { width: 100%; height: auto; }
figcaption { color: #444; font-size: .9rem; padding: 0 .5rem; }
.yes::before { content: "\\2713\\00a0"; } .no::before { content: "\\2717\\00a0"; }
.no { color: #b3261e; } @media (prefers-color-scheme: dark) { .no { color: #ff8a80; } }
"""


def write_page(
    file: Path, report: Mapping[str, Any], trials: Mapping[str, Trial], *, title: str
) -> None:
    """Write the page.

    Args:
        file: To be written; its folder is made.
        report: As `compile_report` returns it.
        trials: That it was compiled from.
        title: Its heading.

    Raises:
        DataError: matplotlib is not installed, or the file cannot be written.

    No doctest: it writes a file; ``tests/systems/interrogator/test_page.py`` shows it.
    """
    body = [f"<h1>{escape(title)}</h1>", _verdict(report)]
    for name, found in report["sets"].items():
        body += _set(name, found, trials[name], report["candidate"])
    page = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n<body>\n"
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page + "\n".join(body) + "\n</body>\n</html>\n", encoding="utf-8")
    except OSError as error:
        message = f"{file} cannot be written: {error}; name a file in a folder that can be"
        raise DataError(message) from error


def _verdict(report: Mapping[str, Any]) -> str:
    arm = _name(report["candidate"])
    passed = report["passed"]
    says = (
        f"The regression gate lets the {arm} policy ask."
        if passed
        else f"The regression gate keeps the heuristic: the {arm} policy is not shown to be no "
        "worse on every measure, so <code>--rl</code> stays off."
    )
    return f'<p class="{"yes" if passed else "no"}"><strong>{says}</strong></p>'


def _set(name: str, found: Mapping[str, Any], trial: Trial, candidate: str) -> list[str]:
    about = (
        f"{found['targets']} targets, {found['seeds']} seeds, at most {found['limit']} questions "
        "each; the same targets for every way of choosing, each with a cache of its own. Intervals "
        "are 95 %, over targets. An embedder call is one text that no cache had."
    )
    if found["searched"]:
        about += (
            f" Beforehand {found['searched']} targets were searched: at each step "
            f"{found['search_tries']} questions tried, those with the nearest options, the best "
            f"kept; that came to {found['search_similarity']:.3f}."
        )
    parts = [f"<h2>{escape(name)}</h2>", f"<p>{about}</p>", _arms(found), _against(found)]
    parts += [_gate(found), *_pictures(trial, candidate)]
    return parts


def _arms(found: Mapping[str, Any]) -> str:
    heads = ["chosen by", "similarity reached", "embedder calls", "cache hits", "solved at .90"]
    heads += ["questions to .90"]
    timed = any("steps_to_share" in arm for arm in found["arms"].values())
    share = f"{SHARE:.0%} of the search"
    heads += [f"reached {share}", f"questions to {share}"] if timed else []
    rows = []
    for arm, figures in found["arms"].items():
        row = [
            _name(arm),
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
    return _table(heads, rows)


def _against(found: Mapping[str, Any]) -> str:
    heads = ["against the heuristic", "fewer calls to the same similarity", "similarity"]
    heads += ["cache hits", "calls in all"]
    rows = [
        [
            _name(arm),
            f"{_estimate(one['fewer_calls'], 1)} of {one['calls_of_heuristic']:.1f}",
            *(_estimate(one[key], 3, signed=True) for key in ("similarity", "cache_hit_rate")),
            _estimate(one["embedder_calls"], 1, signed=True),
        ]
        for arm, one in found["against_heuristic"].items()
    ]
    return _table(heads, rows)


def _gate(found: Mapping[str, Any]) -> str:
    gate = found["gate"]
    heads = ["gate", "heuristic", "policy", "worse by at most", f"within {gate['tolerance']:.0%}"]
    rows = []
    for one in gate["measures"]:
        passed = f'<span class="{"yes" if one["passed"] else "no"}">'
        passed += f"{'yes' if one['passed'] else 'no'}</span>"
        worst = "–" if one["worse_by"] is None else f"{one['worse_by']:+.1%}"
        name = one["measure"].replace("_", " ") + (f" ({one['says']})" if one["says"] else "")
        rows.append([name, _number(one["control"]), _number(one["candidate"]), worst, passed])
    return _table(heads, rows, raw_last=True)


def _pictures(trial: Trial, candidate: str) -> list[str]:
    return [
        _figure(_by_calls(trial), "Mean similarity reached with at most so many embedded texts."),
        _figure(_by_steps(trial), "Mean similarity after each question."),
        _figure(
            _differences(trial, candidate),
            "Each target: texts that the heuristic embedded, less those of the policy, until both "
            "were equally close. Right of the line the policy needed fewer.",
        ),
    ]


def _by_calls(trial: Trial) -> Any:
    most = max(
        course.calls[-1] for runs in trial.courses.values() for run in runs for course in run
    )
    grid = np.linspace(0, float(most), 200)
    figure, axes = _axes("embedded texts", "cosine similarity")
    for arm, runs in trial.courses.items():
        axes.plot(grid, curve_by_calls(runs, grid), color=_COLOURS[arm], label=_name(arm))
    axes.legend(frameon=False)
    return figure


def _by_steps(trial: Trial) -> Any:
    figure, axes = _axes("questions", "cosine similarity")
    for arm, runs in trial.courses.items():
        curve = curve_by_steps(runs, trial.limit)
        axes.plot(curve, color=_COLOURS[arm], label=_name(arm), marker=".")
    if len(trial.best):
        axes.axhline(trial.best.mean(), color="#888", linestyle=":", label="search")
    axes.legend(frameon=False)
    return figure


def _differences(trial: Trial, candidate: str) -> Any:
    spent, spends = calls(trial.courses[CONTROL], trial.courses[candidate])
    figure, axes = _axes("fewer texts than the heuristic", "targets", height=2.6)
    axes.hist(spent - spends, bins=40, color=_COLOURS[candidate])
    axes.axvline(0.0, color="#000", linewidth=1)
    return figure


def _axes(across: str, up: str, *, height: float = 3.6) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 -- an extra, and heavy
    except ImportError as error:
        message = "matplotlib is not installed; the page needs: pip install 'steersman[demo]'"
        raise DataError(message) from error
    figure = Figure(figsize=(8.0, height), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def _figure(figure: Any, caption: str) -> str:
    written = io.StringIO()
    # No date, so that one trial is one page.
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, raw_last: bool = False) -> str:
    lines = ["<table>", _row("th", map(escape, heads))]
    for row in rows:
        cells = [escape(cell) for cell in row]
        if raw_last:
            cells[-1] = row[-1]
        lines.append(_row("td", cells))
    return "\n".join([*lines, "</table>"])


def _row(kind: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{cell}</{kind}>' for cell in cells)}</tr>"


def _name(arm: str) -> str:
    return _NAMES.get(arm, arm)


def _estimate(one: Mapping[str, float], digits: int, *, signed: bool = False) -> str:
    form = f"{'+' if signed else ''}.{digits}f"
    return f"{one['value']:{form}} [{one['low']:{form}}, {one['high']:{form}}]"


def _median(one: Mapping[str, float | None]) -> str:
    if one["median"] is None:
        return "more than half unsolved"
    high = "–" if one["high"] is None else f"{one['high']:.0f}"
    low = "–" if one["low"] is None else f"{one['low']:.0f}"
    return f"{one['median']:.0f} [{low}, {high}]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
