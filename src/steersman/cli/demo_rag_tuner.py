"""``steersman demo rag-tuner``: record, tune, judge; ends with the frontier and a plain verdict."""

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
from steersman.cli.charts import need_charts
from steersman.cli.showing import check_writable, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.systems.rag_tuner import Recorded, Tuned
    from steersman.systems.rag_tuner.report import Report

_SETS = ("cranfield", "scifact", "hotpotqa")
_EVALUATIONS, _SLICE = 80, 32


@click.command("rag-tuner")
@click.option(
    "--data",
    envvar="STEERSMAN_DATA",
    show_envvar=True,
    type=Folder(),
    default=None,
    help="Directory of judged collections; the catalogue of tools alone without it.",
)
@click.option("--sets", default=",".join(_SETS), show_default=True, help="Folders of --data.")
@click.option(
    "--questions", type=click.IntRange(40), default=500, show_default=True,
    help="Requests of the catalogue, drawn at random.",
)  # fmt: skip
@click.option(
    "--out",
    type=Folder(),
    default=Path("demo"),
    show_default=True,
    help="Directory of pictures, pages and runs.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all that is drawn."
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write it here."
)
def rag_tuner(
    data: Path | None, sets: str, questions: int, out: Path, seed: int, json_file: Path | None
) -> None:
    """Tune retrieval on measured evaluations, and say plainly what it brought.

    Without --data: 729 tools as passages, real requests as questions, recorded vectors; nothing but
    a wheel is fetched. With --data: real collections, embedded by MiniLM (extra `rag`).
    """
    from steersman.systems.rag_tuner import load_policy_config  # noqa: PLC0415 (slow)

    names = list(dict.fromkeys(filter(None, map(str.strip, sets.split(",")))))
    if data is not None and not names:
        raise click.BadParameter("no set was named; give folders of --data", param_hint="--sets")
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
    data: Path | None, names: Iterable[str], questions: int, tuned: Tuned, seed: int
) -> Iterator[Recorded]:
    if data is None:
        yield _catalogue(questions, tuned, seed)
        return
    from steersman.cli.tune_recording import recorded_collection  # noqa: PLC0415 (slow)

    for name in names:
        click.echo(f"{name}: every configuration on every question, once", err=True)
        yield recorded_collection(data / name, tuned, None, progress=True)


def _catalogue(questions: int, tuned: Tuned, seed: int) -> Recorded:
    from steersman.retrieval import CosineReranker, Searcher, link_titles  # noqa: PLC0415 (slow)
    from steersman.systems.rag_tuner import record  # noqa: PLC0415
    from steersman.systems.rag_tuner.catalogue import catalogue_collection  # noqa: PLC0415
    from steersman.systems.rag_tuner.hygiene import ready_to_split  # noqa: PLC0415

    drawn, vectors = catalogue_collection(most=questions, seed=seed)
    collection, hygiene = ready_to_split(drawn)
    searcher = Searcher(
        collection.passages,
        embedder=vectors,
        links=link_titles(collection.passages),
        rerankers={"cosine": CosineReranker(vectors)},
    )
    with _bar() as bar:
        task = bar.add_task("every configuration, every question", total=len(collection.questions))
        return record(
            searcher,
            collection,
            tuned.space,
            about={"embedder": vectors.name, **hygiene},
            done=lambda count: bar.advance(task, count),
        )


def _run(recorded: Recorded, tuned: Tuned, folder: Path, seed: int) -> Report:
    from steersman.systems.rag_tuner import (  # noqa: PLC0415 (slow)
        Configuration,
        RunFolder,
        build_strategy,
        rotating,
        stratified,
        tune,
    )
    from steersman.systems.rag_tuner.report import compile_report  # noqa: PLC0415
    from steersman.systems.rag_tuner.strategies import DEFAULT  # noqa: PLC0415

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


def _told(report: Report, tuned: Tuned, folder: Path) -> dict[str, Any]:
    from steersman.systems.rag_tuner.page import facts, write_page  # noqa: PLC0415 (slow)
    from steersman.systems.rag_tuner.pictures import frontier, write_png  # noqa: PLC0415

    picture, page = folder / "frontier.png", folder / "report.html"
    title = f"{report.collection}: quality and cost of every configuration"
    write_png(frontier(report.places, report.marked, title), picture)
    write_page(page, report)
    console = Console()
    console.print(_table(report))
    weights = tuned.reward_weights
    console.print(
        f"reward = {weights.alpha + weights.beta:g} quality − {weights.gamma:g} latency − "
        f"{weights.delta:g} cost, in units of their references: less quality may be worth it.",
        highlight=False,
    )
    console.print(str(report.verdict), highlight=False)
    console.print(_to_know_more(report), highlight=False)
    console.print(f"picture: {picture}\nreport:  {page}", highlight=False)
    return {**facts(report), "picture": str(picture), "page": str(page)}


def _to_know_more(report: Report) -> str:
    """Return how many queries would tell more, and how long they would take under both."""
    verdict = report.verdict
    of = {one.configuration: one.latency_ms for one in report.places}
    both_ms = of[verdict.candidate.canonical()] + of[verdict.baseline.canonical()]
    # An interval is half as wide with four times as many.
    queries, what = 4 * verdict.queries, "To know it twice as exactly"
    if verdict.state == "no gain" and verdict.needed:
        queries, what = verdict.needed, "To know more"
    return (
        f"{what}: {queries:,} judged queries ({verdict.queries:,} were held out here), under both "
        f"configurations some {queries * both_ms / 1_000:,.0f} s of searching."
    )


def _table(report: Report) -> Table:
    table = Table(title=f"{report.collection}: held-out queries", title_justify="left")
    for name in ("", "configuration", "quality", "95 %", "ms", "cost"):
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
