"""Evaluation and printed report of ``steersman demo evidence``."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import click
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from steersman_systems.evidence_selection.baselines import Oracle, TopK
from steersman_systems.evidence_selection.case_studies import case_studies
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.commands.progress import progress_bar
from steersman_systems.evidence_selection.commands.run import opened_embedder
from steersman_systems.evidence_selection.contenders import BASELINE, Cloned, LinearlyCloned
from steersman_systems.evidence_selection.demo_set import load_two_tools
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.evaluate import Fixed, evaluate
from steersman_systems.evidence_selection.page import KINDS, write_page
from steersman_systems.evidence_selection.prepared_set import prepare, ready
from steersman_systems.evidence_selection.report import facts, set_report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from steersman_systems.evidence_selection.case_studies import CaseStudy, PolicyOutcome
    from steersman_systems.evidence_selection.evaluate import Contender
    from steersman_systems.evidence_selection.evaluation import Evaluation
    from steersman_systems.evidence_selection.prepared_set import Prepared

_MEASURES = ("all_gold", "recall", "holds_answer", "redundancy", "tokens")
_WIDE = 100
_TITLE, _QUESTION = 56, 400
"""Printed characters; the page has the full text."""


def shown(**asked: Any) -> dict[str, Any]:
    """Compare the learned selector with the best by rank and print the result.

    Raises:
        DataError: A set or an extra is missing.
    """
    console, found = Console(), {}
    with ExitStack() as stack:
        for name, prepared in _prepared(stack, asked):
            evaluation, learned = _evaluated(name, prepared, asked)
            found[name] = _told(console, evaluation, learned, asked)
    return found


def _prepared(stack: ExitStack, asked: dict[str, Any]) -> Iterator[tuple[str, Prepared]]:
    data, most = asked["data"], asked["questions"]
    if data is None:
        found = load_two_tools()
        found = found if most is None else found.first(most)
        click.echo(
            f"tools: {len(found.questions)} requests that need two or more tools, "
            f"{len(found.passages):,} tools", err=True,
        )  # fmt: skip
        yield "tools", ready(found, Collection(found.passages))
        return
    embedder = opened_embedder(stack, None, words_alone=False)
    for name in filter(None, map(str.strip, asked["sets"].split(","))):
        click.echo(f"{name}: embedding and linking the passages (once)", err=True)
        yield name, prepare(name, data, embedder=embedder, most=most)


def _evaluated(name: str, prepared: Prepared, asked: dict[str, Any]) -> tuple[Evaluation, str]:
    limits = Limits(picks=asked["picks"], expanding="always", may_stop=False)
    rules = Environment(limits)
    # Trees need passages with vectors and links; the tool catalogue has short texts only.
    trees = find_spec("lightgbm") is not None and asked["data"] is not None
    clone: Contender = LinearlyCloned("clone, linear", limits, seed=asked["seed"])
    if trees:
        clone = Cloned("clone, trees", limits, seed=asked["seed"])
    taking_part: list[Contender] = [Fixed(TopK("fused", rules)), clone, Fixed(Oracle(rules))]
    with progress_bar(quiet=False) as bar:
        task = bar.add_task(f"{name}: selecting", total=len(taking_part) * len(prepared.questions))
        evaluation = evaluate(
            name, prepared.pools, taking_part, groups=prepared.groups, seed=asked["seed"],
            done=lambda count: bar.advance(task, count),
        )  # fmt: skip
    return evaluation, clone.name


def _told(
    console: Console, evaluation: Evaluation, learned: str, asked: dict[str, Any]
) -> dict[str, Any]:
    if asked["show"]:
        for case in case_studies(
            evaluation, BASELINE, learned, each=asked["show"], seed=asked["seed"]
        ):
            _show_case(console, case)
    console.print(_table(evaluation))
    ahead = evaluation.difference(learned, BASELINE, "all_gold")
    share, short = evaluation.ceiling()
    console.print(
        f"Questions with all needed passages, learned selector minus best by rank: "
        f"{100 * ahead.value:+.1f} percentage points (95 % confidence interval "
        f"{100 * ahead.low:+.1f} to {100 * ahead.high:+.1f}).\nThe selector was not trained on "
        f"these questions.\nLimit: the search retrieves {share:.1%} of the needed passages; "
        f"{short} of {len(evaluation.pools)} questions lack at least one.", highlight=False,
    )  # fmt: skip
    page = asked["out"] / evaluation.name / "evidence.html"
    report = set_report(evaluation, shown=learned)
    about = {"set": evaluation.name, "picks": str(asked["picks"]), "seed": str(asked["seed"])}
    write_page(page, [report], about, missing=())
    console.print(f"report: {page}", highlight=False, soft_wrap=True)
    return {**facts([report]), "learned": learned, "page": str(page)}


def _show_case(console: Console, case: CaseStudy) -> None:
    right = f"\nanswer: {', '.join(case.answers[:3])}" if case.answers else ""
    console.print(f"\n[bold]{KINDS[case.kind]}[/bold]")
    question = shorten(case.question, _QUESTION, placeholder=" …")
    searched = shorten(case.searched, _QUESTION, placeholder=" …")
    told = f"\nsearch query: {searched}" if searched else ""
    console.print(f"{question}{told}{right}", markup=False, highlight=False)
    width = max(36, min(console.width, 160) // len(case.sides) - 1)  # a blank between them
    panels = [Panel(_side(side), title=side.policy, width=width) for side in case.sides]
    console.print(Columns(panels))


def _side(side: PolicyOutcome) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    table.add_column()
    for step, one in enumerate(side.picked, 1):
        mark = "[green]✓[/green]" if one.gold else " "
        by = "  ⤷ by a link" if one.brought else ""
        name = one.title or shorten(one.excerpt, _TITLE, placeholder=" …")
        table.add_row(f"{step} {mark}", f"[bold]{_plain(name)}[/bold]{by}")
        if one.why:
            table.add_row("", f"[dim]{_plain(one.why)}[/dim]")
    for missed in side.missed:
        table.add_row("[red]✗[/red]", f"missed: {_plain(missed)}")
    return table


def _plain(text: str) -> str:
    """Escape rich markup in a passage."""
    return text.replace("[", "\\[")


def _table(evaluation: Evaluation) -> Table:
    table = Table(
        title=f"{evaluation.name}: {len(evaluation.pools)} held-out questions",
        title_justify="left",
    )
    table.add_column("")
    measures = [one for one in _MEASURES if _known(evaluation, one)]
    for one in measures:
        table.add_column(one.replace("_", " "), justify="right")
    for policy in evaluation.rows:
        means: Sequence[float] = [evaluation.mean(policy, one).value for one in measures]
        table.add_row(policy, *(f"{v:.0f}" if v >= _WIDE else f"{v:.3f}" for v in means))
    return table


def _known(evaluation: Evaluation, measure: str) -> bool:
    return all(evaluation.mean(policy, measure).count for policy in evaluation.rows)
