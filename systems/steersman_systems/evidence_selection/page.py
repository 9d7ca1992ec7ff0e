"""HTML report of an evaluation, in one file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from steersman.errors import DataError
from steersman_systems.evidence_selection.contenders import BASELINE
from steersman_systems.evidence_selection.pictures import found_by_policy
from steersman_systems.evidence_selection.report import (
    ABOUT_MEASURES,
    ABOUT_POLICIES,
    DIFFERENCES,
    LESS_IS_BETTER,
    NEUTRAL,
    PUBLISHED,
)
from steersman_systems.reports.html import as_svg, html_table, table, write_html

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from steersman_systems.evidence_selection.ablations import AblationResult
    from steersman_systems.evidence_selection.case_studies import CaseStudy, PolicyOutcome
    from steersman_systems.evidence_selection.form_trial import FormComparison
    from steersman_systems.evidence_selection.paired import Estimate
    from steersman_systems.evidence_selection.report import SetReport

_STYLE = """
th, td { white-space: nowrap; }
.better { color: #0a7a35; } .worse { color: #b3261e; }
.case { border: 1px solid #8884; border-radius: .5rem; padding: .5rem 1rem; margin: 1rem 0; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.5rem; }
.case ol { padding-left: 1.4rem; } .case li { margin: .4rem 0; }
.gold { font-weight: 600; } .why, .missed { color: #777; font-size: .9rem; }
@media (prefers-color-scheme: dark) { .better { color: #5bd08a; } .worse { color: #ff8a80; } }
"""
KINDS = {
    "gained": "Found by the selector, missed by the ranking",
    "lost": "Found by the ranking, missed by the selector",
    "both missed": "Missed by both",
    "both found": "Found by both",
}
"""Label of each kind of case study."""
ENDED = {
    "steps": "maximum number of passages",
    "stop": "stopped",
    "budget": "token budget used",
    "confidence": "answering model is confident",
}
"""Why a selection ended -> label."""


def write_page(
    file: Path, reports: Sequence[SetReport], about: Mapping[str, str], *, missing: Sequence[str]
) -> None:
    """Write the page.

    Raises:
        DataError: the file cannot be written.
    """
    parts = [
        "<h1>Evidence selection</h1>",
        f"<p>Settings: {escape('; '.join(f'{name} {told}' for name, told in about.items()))}.</p>",
        ("<p>All figures are for held-out questions, with 95 % bootstrap confidence intervals. "
         "Differences are paired by question; conversations are resampled as a whole.</p>"),
        *(f"<p><strong>Missing:</strong> {escape(one)}</p>" for one in missing),
    ]  # fmt: skip
    for report in reports:
        parts += list(_set(report))
    write_html(file, "Evidence selection", parts, style=_STYLE)


def _set(report: SetReport) -> Iterator[str]:
    evaluation = report.evaluation
    share, short = report.ceiling
    yield f"<h2>{escape(evaluation.name)}: {len(evaluation.pools)} questions</h2>"
    if share == share:  # noqa: PLR0124 (not NaN: some question has gold)
        whole, reached = report.ceilings
        yield (
            f"<p>The search retrieves {share:.1%} of the gold passages; {short} questions lack at "
            f"least one. Upper bound for questions with all gold passages: {whole:.1%} without "
            f"links, {reached:.1%} with links.</p>"
        )
    if report.left_out:
        yield (
            f"<p>{report.left_out:,} passages of the collection were not searched, which makes "
            "the search easier.</p>"
        )
    if report.note:
        yield f"<p><strong>{escape(evaluation.name)}:</strong> {escape(report.note)}.</p>"
    for policy, why in evaluation.absent.items():
        yield f"<p><strong>{escape(policy)} did not take part:</strong> {escape(why)}</p>"
    yield from _picture(report)
    yield "<h3>Figures</h3>"
    heads = ("policy", *(one.replace("_", " ") for one in report.measures))
    rows = [(escape(policy), *(_with_interval(values[one]) for one in report.measures))
            for policy, values in report.means.items()]  # fmt: skip
    yield html_table(heads, rows)
    told = "; ".join(f"{one.replace('_', ' ')}: {ABOUT_MEASURES[one]}" for one in report.measures)
    yield f"<p><small>{escape(told)}.</small></p><p><small>{escape(ABOUT_POLICIES)}</small></p>"
    if report.ahead:
        yield f"<h3>Difference to {escape(BASELINE)}</h3>"
        yield html_table(heads, _differences(report))
        yield (
            f"<p>{len(report.ahead)} policies are compared with one. For each measure, the 95 % "
            "intervals are simultaneous (Bonferroni). Colour marks significant differences.</p>"
        )
    yield from _published(report)
    if report.forms is not None:
        yield from _forms(report.forms)
    if report.ablated:
        yield "<h3>Ablations: all gold found</h3>"
        yield table(
            ("part", "variant", "all gold", "compared with", "difference"),
            map(_ablated, report.ablated),
        )
        yield (
            "<p>One part is changed at a time. Each interval is for one row, so some of many rows "
            "differ by chance. The intervals of the steps of learning from feedback are "
            "simultaneous (Bonferroni).</p>"
        )
    if report.cases:
        yield (
            "<h3>Cases, drawn at random from each kind</h3><p>✓: needed for the answer. ⤷: linked "
            "from a picked passage. Below each passage: the features with the largest effect on "
            "its score at that step.</p>"
        )
        yield from map(_case, report.cases)


def _picture(report: SetReport) -> Iterator[str]:
    if "all_gold" not in report.measures:
        return
    try:
        yield as_svg(found_by_policy(report))
    except DataError as missing:  # the page has the figures as numbers, too
        yield f"<p>No picture: {escape(str(missing))}</p>"


def _differences(report: SetReport) -> Iterator[Sequence[str]]:
    for policy, values in report.ahead.items():
        cells = [escape(policy)]
        for measure in report.measures:
            one = values[measure]
            sign = -1 if measure in LESS_IS_BETTER else 0 if measure in NEUTRAL else 1
            kind = (
                "better" if min(sign * one.low, sign * one.high) > 0
                else "worse" if max(sign * one.low, sign * one.high) < 0 else ""
            )  # fmt: skip
            cells.append(f'<span class="{kind}">{_with_interval(one, "+")}</span>')
        yield cells


def _published(report: SetReport) -> Iterator[str]:
    if not report.retrieval:
        return
    own = report.retrieval
    collection = report.evaluation.pools[0].collection
    engines = "BM25" if collection.vectors is None else "BM25 and vectors, fused"
    rows = [(f"here: {engines}", *(f"{100 * own[one]:.1f}" for one in own))]
    known = PUBLISHED.get(report.evaluation.name, {})
    rows += [(f"{name} (published)", *map(str, values)) for name, values in known.items()]
    yield f"<h3>Retrieval{' beside published figures' if known else ''}</h3>"
    yield table(("", *own), rows)
    if known:
        yield f"<p>{escape(DIFFERENCES)}</p>"


def _forms(forms: FormComparison) -> Iterator[str]:
    yield "<h3>Query forms: recall@5</h3>"
    rows = [(name, str(one), f"{forms.shares.get(name, 0.0):.0%}")
            for name, one in forms.forms.items()]  # fmt: skip
    rows.append(("learned, held-out turns", str(forms.learned), ""))
    rows.append(("best form of each turn, in hindsight", f"{forms.hindsight:.3f}", ""))
    yield table(("form", "recall@5", "share of the learned policy"), rows)
    yield (
        f"<p>Learned policy minus {escape(forms.best)}, the best single form in hindsight: "
        f"{escape(str(forms.ahead))}. Loss of the whole history against the last turn alone: "
        f"{escape(str(forms.history_costs))}.</p>"
    )


def _ablated(one: AblationResult) -> Sequence[str]:
    if one.figure is None:
        return one.part, one.variant, "not measured", "", one.why
    if one.ahead is None:
        return one.part, one.variant, str(one.figure), "", ""
    ahead = f"{one.ahead.value:+.3f} ({one.ahead.low:+.3f} to {one.ahead.high:+.3f})"
    return one.part, one.variant, str(one.figure), one.over, ahead


def _case(case: CaseStudy) -> str:
    answers = ", ".join(case.answers[:3])
    sides = "".join(map(_side, case.sides))
    searched = f"search query: {escape(case.searched)}<br>" if case.searched else ""
    return (
        f'<div class="case"><p><small>{escape(KINDS.get(case.kind, case.kind))}</small><br>'
        f"<strong>{escape(case.question)}</strong><br>{searched}answer: {escape(answers)}</p>"
        f'<div class="sides">{sides}</div></div>'
    )


def _side(side: PolicyOutcome) -> str:
    items = "".join(
        f"<li><span class={'gold' if one.gold else 'plain'!r}>{escape(one.title or '(no title)')}"
        f"{' ✓' if one.gold else ''}{' ⤷ by a link' if one.brought else ''}</span><br>"
        f"<small>{escape(one.excerpt)}</small>"
        f'<br><span class="why">{escape(one.why)}</span></li>'
        for one in side.picked
    )
    missed = (
        f'<p class="missed">missed: {escape(", ".join(side.missed))}</p>' if side.missed else ""
    )
    answer = f"<p>answer: {escape(side.answer)}</p>" if side.answer else ""
    return (
        f"<div><strong>{escape(side.policy)}</strong> "
        f"<small>({escape(ENDED.get(side.stopped, side.stopped))})</small>"
        f"<ol>{items}</ol>{missed}{answer}</div>"
    )


def _with_interval(one: Estimate, sign: str = "") -> str:
    if one.value == one.low == one.high:
        return number(one.value, sign) if one.value else "0"
    interval = f"{number(one.low, sign)} to {number(one.high, sign)}"
    return f"{number(one.value, sign)}<br><small>{interval}</small>"


def number(value: float, sign: str = "") -> str:
    """Return a formatted figure.

    Args:
        sign: ``+`` to show the sign of positive numbers.

    >>> number(0.5), number(1234.5, "+"), number(float("nan"))
    ('0.500', '+1,234', '–')
    """
    if value != value:  # noqa: PLR0124 (NaN)
        return "–"
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3f}"
