"""Demo command ``steersman demo rag-tuner``: record, tune and judge retrieval configurations."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from steersman.cli.arguments import Folder
from steersman.cli.output import check_writable, write_text
from steersman_systems.reports.charts import need_charts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.recorded import Recorded
    from steersman_systems.rag_tuner.report import Report

_SETS = ("cranfield", "scifact", "hotpotqa")
_EVALUATIONS, _SLICE = 80, 32


@click.command("rag-tuner")
@click.option(
    "--data",
    envvar="STEERSMAN_DATA",
    show_envvar=True,
    type=Folder(),
    default=None,
    help="Directory of collections with relevance judgements.  [default: none; the tool catalogue "
    "is used]",
)
@click.option(
    "--sets",
    default=",".join(_SETS),
    show_default=True,
    help="Folders of --data, separated by commas.",
)
@click.option(
    "--questions", type=click.IntRange(40), default=500, show_default=True,
    help="Number of requests of the tool catalogue, drawn at random.",
)  # fmt: skip
@click.option(
    "--out",
    type=Folder(),
    default=Path("demo"),
    show_default=True,
    help="Directory for pictures, report pages and runs.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report as JSON to FILE.",
)
def rag_tuner(
    data: Path | None, sets: str, questions: int, out: Path, seed: int, json_file: Path | None
) -> None:
    """Tune a retrieval configuration and report the gain on held-out questions.

    Without --data, the passages are 729 tools and the questions are real requests, with recorded
    vectors; the demo downloads one wheel. With --data, it uses real collections, embedded by
    MiniLM (extra `rag`). "No gain" is a possible result.
    """
    from steersman_systems.rag_tuner.policy_config import load_policy_config  # noqa: PLC0415 (slow)

    names = list(dict.fromkeys(filter(None, map(str.strip, sets.split(",")))))
    if data is not None and not names:
        raise click.BadParameter(
            "no set given; name one or more folders of --data", param_hint="--sets"
        )
    check_writable(json_file, out / "any" / "report.html")
    need_charts("matplotlib")
    tuned = load_policy_config()
    found = {}
    for recorded in _recordings(data, names, questions, tuned, seed):
        report = _run(recorded, tuned, out / recorded.collection, seed)
        found[recorded.collection] = _told(report, tuned, out / recorded.collection)
    if json_file is not None:
        write_text(json_file, json.dumps(found, indent=2) + "\n")


def _recordings(
    data: Path | None, names: Iterable[str], questions: int, tuned: PolicyConfig, seed: int
) -> Iterator[Recorded]:
    if data is None:
        yield _catalogue(questions, tuned, seed)
        return
    from steersman_systems.rag_tuner.commands.record import recorded_collection  # noqa: PLC0415 (slow)

    for name in names:
        click.echo(f"{name}: running every configuration on every question (once)", err=True)
        yield recorded_collection(data / name, tuned, None, progress=True)


def _catalogue(questions: int, tuned: PolicyConfig, seed: int) -> Recorded:
    from steersman.retrieval.passage_links import link_titles  # noqa: PLC0415 (slow)
    from steersman.retrieval.rerank import CosineReranker  # noqa: PLC0415
    from steersman.retrieval.searcher import Searcher  # noqa: PLC0415
    from steersman_systems.rag_tuner.catalogue import catalogue_collection  # noqa: PLC0415
    from steersman_systems.rag_tuner.hygiene import ready_to_split  # noqa: PLC0415
    from steersman_systems.rag_tuner.recorder import record  # noqa: PLC0415

    drawn, vectors = catalogue_collection(most=questions, seed=seed)
    collection, hygiene = ready_to_split(drawn)
    searcher = Searcher(
        collection.passages,
        embedder=vectors,
        links=link_titles(collection.passages),
        rerankers={"cosine": CosineReranker(vectors)},
    )
    with _bar() as bar:
        task = bar.add_task("running every configuration", total=len(collection.questions))
        return record(
            searcher,
            collection,
            tuned.space,
            about={"embedder": vectors.name, **hygiene},
            done=lambda count: bar.advance(task, count),
        )


def _run(recorded: Recorded, tuned: PolicyConfig, folder: Path, seed: int) -> Report:
    from steersman_systems.rag_tuner.configuration import Configuration  # noqa: PLC0415 (slow)
    from steersman_systems.rag_tuner.loop import tune  # noqa: PLC0415 (slow)
    from steersman_systems.rag_tuner.report import compile_report  # noqa: PLC0415
    from steersman_systems.rag_tuner.run_folder import RunFolder  # noqa: PLC0415 (slow)
    from steersman_systems.rag_tuner.slices import rotating, stratified  # noqa: PLC0415 (slow)
    from steersman_systems.rag_tuner.strategies.factory import (  # noqa: PLC0415
        DEFAULT,
        build_strategy,
    )

    run = RunFolder(folder / f"run-{time.strftime('%Y%m%d-%H%M%S')}")
    about = {"collection": recorded.collection, "strategy": DEFAULT, "seed": seed}
    run.begin({**about, "recorded": dict(recorded.about)}, tuned.model_dump_json(by_alias=True))
    rng = np.random.default_rng([seed, 5])
    split = stratified(recorded.categories, rng, groups=recorded.groups)
    strategy = build_strategy(DEFAULT, tuned, queries=len(recorded), seed=seed)
    slices = rotating(split.tuning, _SLICE, np.random.default_rng([seed, 6]))
    with _bar() as bar:
        told = tune(strategy, recorded, tuned, slices, evaluations=_EVALUATIONS, seed=seed)
        for one in bar.track(told, _EVALUATIONS, description="evaluating"):
            run.append(one)
    report = compile_report(
        recorded, tuned, held_out=split.held_out, candidate=strategy.recommend(),
        baseline=Configuration("rrf", k=10), lines=run.episodes(),
    )  # fmt: skip
    run.finish(report.verdict)
    return report


def _told(report: Report, tuned: PolicyConfig, folder: Path) -> dict[str, Any]:
    from steersman_systems.rag_tuner.page import facts, write_page  # noqa: PLC0415 (slow)
    from steersman_systems.rag_tuner.pictures import frontier, write_png  # noqa: PLC0415

    picture, page = folder / "frontier.png", folder / "report.html"
    title = f"{report.collection}: quality and cost of every configuration"
    write_png(frontier(report.places, report.marked, title), picture)
    write_page(page, report)
    console = Console()
    console.print(_table(report))
    weights = tuned.reward_weights
    console.print(
        f"reward = {weights.alpha + weights.beta:g} quality − {weights.gamma:g} latency − "
        f"{weights.delta:g} cost, each divided by its reference value. A configuration with lower "
        "quality can therefore have a higher reward.",
        highlight=False,
    )
    console.print(str(report.verdict), highlight=False)
    console.print(_to_know_more(report), highlight=False)
    console.print(f"picture: {picture}\nreport:  {page}", highlight=False)
    return {**facts(report), "picture": str(picture), "page": str(page)}


def _to_know_more(report: Report) -> str:
    """Return the number of judged queries to add, and their search time."""
    verdict = report.verdict
    of = {one.configuration: one.latency_ms for one in report.places}
    both_ms = of[verdict.candidate.canonical()] + of[verdict.baseline.canonical()]
    # Four times as many queries halve the width of an interval.
    queries, what = 4 * verdict.queries, "To halve the confidence interval"
    if verdict.state == "no gain" and verdict.needed:
        queries, what = verdict.needed, "To show a gain of this size"
    return (
        f"{what}, use {queries:,} judged queries (here: {verdict.queries:,} held out). Both "
        f"configurations then take about {queries * both_ms / 1_000:,.0f} s of search time."
    )


def _table(report: Report) -> Table:
    table = Table(title=f"{report.collection}: held-out queries", title_justify="left")
    for name in ("", "configuration", "quality", "95 % CI", "ms", "cost"):
        table.add_column(name, justify="left" if name in {"", "configuration"} else "right")
    of = {one.configuration: one for one in report.places}
    for label, configuration in report.marked.items():
        one = of[configuration]
        spread = f"{one.low:.3f}–{one.high:.3f}"
        figures = (f"{one.quality:.3f}", spread, f"{one.latency_ms:.1f}", f"{one.cost:.2f}")
        table.add_row(label, str(configuration), *figures)
    return table


def _bar() -> Progress:
    return Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
