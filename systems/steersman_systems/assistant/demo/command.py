"""The demo of the assistant: ``steersman demo assistant``."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from steersman.cli.arguments import Folder
from steersman.cli.output import check_writable, write_text
from steersman_systems.assistant.demo.rollout import ship
from steersman_systems.assistant.demo.routing import chosen_sets, learn_on, print_routed
from steersman_systems.assistant.demo.service import drive, explanations, measure
from steersman_systems.assistant.demo.tables import print_explanation, print_report
from steersman_systems.assistant.evidence import evidence_log, route_evidence
from steersman_systems.assistant.report import compile_report, explain
from steersman_systems.assistant.routes import Deep
from steersman_systems.assistant.trial import (
    Job,
    Plan,
    Trial,
    figures_of,
    replay_set,
    run_trials,
    stream_of,
)
from steersman_systems.assistant.world import World
from steersman_systems.reports.charts import need_charts, terminal_chart, write_png

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from steersman_systems.assistant.log import Log
    from steersman_systems.assistant.stream import Stream

_SWEEP = (Deep(worth=0.5), Deep.ask(0.7), Deep.ask(0.5))
"""Other assumptions about an escalation; the main one is a strong model right in 70 %."""


@click.command()
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report as JSON to FILE.",
)
@click.option(
    "--explain",
    "arrival",
    type=click.IntRange(min=1),
    help="Explain all decisions about request N, and measure nothing.",
)
@click.option(
    "--orders",
    default=10,
    show_default=True,
    type=click.IntRange(min=2),
    help="Number of arrival orders; the confidence intervals are computed over them.",
)
@click.option(
    "--sweep-orders",
    default=2,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of arrival orders for each other assumption about an escalation.",
)
@click.option(
    "--arrivals",
    type=click.IntRange(min=1311),
    help="Number of arrivals in each order, 1,311 (each request once) or more.  [default: 2139, as "
    "in a production trace]",
)
@click.option(
    "--out",
    type=Folder(),
    default=Path("out"),
    show_default=True,
    help="Directory for the picture of the learning curve.",
)
@click.option(
    "--home",
    type=Folder(),
    help="Directory for caches and the store.  [default: $STEERSMAN_HOME or ~/.steersman for "
    "caches, a temporary directory for the store]",
)
@click.option(
    "--processes",
    default=2,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of processes that replay arrival orders; it does not change the result.",
)
@click.option(
    "--in-process", is_flag=True, help="Call the policies in this process, without a service."
)
@click.option(
    "--data",
    type=Folder(),
    help="Learn on public routing data instead: a directory with the folders routerbench_subset, "
    "llmrouter_dc or metatool, or other folders in one of their formats.",
)
@click.option(
    "--sets",
    default="",
    help="Folders of --data or $STEERSMAN_DATA, separated by commas.  [default: the known folders "
    "that exist]",
)
def assistant(
    json_file: Path | None,
    arrival: int | None,
    orders: int,
    sweep_orders: int,
    arrivals: int | None,
    out: Path,
    home: Path | None,
    processes: int,
    data: Path | None,
    sets: str,
    *,
    in_process: bool,
) -> None:
    """Replay 1,311 real requests while cache, route and tool policies learn online.

    The demo starts an embedded store, two service processes and a learner. The service decides
    the first arrival order over HTTP. The demo then publishes and signs what the route learned,
    and rolls it out in stages. A deliberately broken version follows and is rolled back. The
    other arrival orders run at the same time without a service, with the same policies.

    The report compares the learned policies with the declared rules, the best fixed choice in
    hindsight and an oracle (upper bound) on the same arrivals. It ends with the gain per 1,000
    requests and its 95 % confidence interval. With --explain N the demo prints every decision
    about request N of the first order: probabilities, outcomes and reward.

    With --data the demo replays routing data in which the score of every choice is known. The
    policy learns only from the score of its own choice. If a set has a train split, the policy
    and the best fixed choice start from it, and the rest is measured.
    """
    console = Console()
    if sets and data is None and (named := os.environ.get("STEERSMAN_DATA")):
        data = Path(named)
    if data is not None:
        own = {"--explain": arrival, "--arrivals": arrivals}
        _other_data(console, data, sets, orders, json_file, own)
        return
    if sets:
        raise click.UsageError("--sets needs a directory: give --data DIR or set $STEERSMAN_DATA")
    picture = out / "learning-curve.png"
    check_writable(json_file)
    if arrival is None:
        check_writable(picture)
        need_charts("matplotlib", "plotille")
    world = World.load(home)
    if arrival is not None:
        stream = stream_of(0, home, arrivals)
        result = _explain(console, world, stream, arrival, home, in_process=in_process)
        print_explanation(console, result)
        if json_file is not None:
            _write(json_file, result)
        return
    started = time.perf_counter()
    plans = _plans(orders, sweep_orders, arrivals)
    with _bar(console) as bar, _beside(bar, plans, home, processes) as trials:
        stream = stream_of(0, home, arrivals)
        over_http = None if in_process else _over_http(bar, world, stream, home)
        report, trial = _measure(bar, world, stream, trials.result(), home, over_http)
    report["seconds"] = round(time.perf_counter() - started, 1)
    _show(console, world, report, trial, picture)
    if json_file is not None:
        _write(json_file, report)
        console.print(f"report as JSON      {json_file}", highlight=False, soft_wrap=True)
    same = "" if arrivals is None else f" --arrivals {arrivals}"
    again = f"{sys.argv[0]} demo assistant{same} --explain 700"
    console.print("\n[bold]Next steps[/bold]")
    for step, what in (
        ("explain a decision", again),
        ("run the service", "make up"),
        ("read the tutorial", "docs/tutorial/install-and-run.md"),
    ):
        console.print(f"{step:<20}{what}", highlight=False, soft_wrap=True)


def _plans(orders: int, sweep_orders: int, arrivals: int | None) -> list[Plan]:
    """Return the plan of the main assumption about an escalation, then the others."""
    fewer = min(orders, sweep_orders)
    others = [Plan(deep, orders=fewer, scouts=1, arrivals=arrivals) for deep in _SWEEP]
    return [Plan(orders=orders, extra=("beta_tools",), arrivals=arrivals), *others]


def _show(
    console: Console, world: World, report: dict[str, Any], trial: Trial, picture: Path
) -> None:
    curves = {
        "oracle": trial.curve("oracle"),
        "learned": trial.curve("learned"),
        "best fixed": trial.curve(trial.best_fixed),
        "rules": trial.curve("rules"),
    }
    came, orders = report["requests"], report["orders"]
    title = f"{len(world):,} real requests, {came:,} arrivals, mean of {orders} orders"
    write_png(curves, picture, title=title)
    width = min(console.width, 100)
    print_report(console, report, terminal_chart(curves, width=width, colours=console.is_terminal))
    console.print(f"\nlearning curve      {picture}", highlight=False, soft_wrap=True)


def _other_data(
    console: Console,
    data: Path,
    sets: str,
    orders: int,
    json_file: Path | None,
    own: Mapping[str, int | None],
) -> None:
    for option, given in own.items():
        if given is not None:
            raise click.UsageError(f"{option} cannot be used with --data; remove one of the two")
    check_writable(json_file)
    with _bar(console) as bar:
        names = chosen_sets(data, sets)
        show = partial(print_routed, console)
        report = {"data": learn_on(data, names, orders, bar, show)}
    if json_file is not None:
        _write(json_file, report)
        console.print(f"\nreport as JSON  {json_file}", highlight=False, soft_wrap=True)


@contextmanager
def _beside(
    bar: Progress, plans: Sequence[Plan], home: Path | None, processes: int
) -> Iterator[Future[list[Trial]]]:
    """Replay the other orders at low priority while the service decides the first one."""
    task = bar.add_task("replaying arrival orders", total=sum(plan.orders for plan in plans))
    over = Event()

    def done() -> None:
        bar.advance(task)
        if over.is_set():
            raise CancelledError

    others = set(active_children())
    with ThreadPoolExecutor(1) as thread:
        replayed = thread.submit(
            run_trials, plans, home=home, processes=processes, patient=True, done=done
        )
        try:
            yield replayed
        finally:
            over.set()
            while not replayed.done():  # after a failure the replays are useless
                for child in set(active_children()) - others:
                    child.terminate()
                time.sleep(0.05)


def _over_http(
    bar: Progress, world: World, stream: Stream, home: Path | None
) -> tuple[Log, dict[str, Any]]:
    """Return the log of the first order as decided by the service, and the measurements."""
    task = bar.add_task("deciding over HTTP", total=None)

    def progress(places: Iterable[int]) -> Iterator[int]:
        bar.update(task, total=len(list(places)))
        for place in places:
            yield place
            bar.advance(task)

    driving = drive(world, stream, order=0, home=home, say=_say, controller=True, progress=progress)
    with driving as driven:
        measured = measure(driven)
        bar.update(task, description="rolling out", total=None)
        shipped = ship(driven, world, bar.console.print)
        bar.update(task, total=1, completed=1)
        return driven.log, measured | shipped


def _measure(
    bar: Progress,
    world: World,
    stream: Stream,
    trials: Sequence[Trial],
    home: Path | None,
    over_http: tuple[Log, dict[str, Any]] | None,
) -> tuple[dict[str, Any], Trial]:
    trial, *sweep = trials
    measured: dict[str, Any] = {}
    log = None
    if over_http is not None:
        log, measured = over_http
        in_process = trial.orders[0].sets["learned"].figures["reward"]
        measured["service"]["in_process_reward"] = in_process
        trial = trial.replaced(0, "learned", figures_of(world, stream, log))
    task = bar.add_task("off-policy evaluation", total=2)
    evidence, refused = _evidence(world, stream, trial, home, log, lambda: bar.advance(task))
    return compile_report(trial, sweep, evidence, refused) | measured, trial


def _evidence(
    world: World,
    stream: Stream,
    trial: Trial,
    home: Path | None,
    log: Log | None,
    step: Callable[[], None],
) -> tuple[list[Any], list[Any]]:
    """Return the evidence of a log with a wide floor, and of one with the declared floor."""
    job = Job(0, ("learned",), trial.deep, home)
    wide = route_evidence(evidence_log(world, stream, job))
    step()
    declared = route_evidence(log or replay_set(world, stream, "learned", job, keep=True))
    step()
    return wide, declared


def _explain(
    console: Console,
    world: World,
    stream: Stream,
    arrival: int,
    home: Path | None,
    *,
    in_process: bool,
) -> dict[str, Any]:
    if arrival > len(stream):
        raise click.BadParameter(
            f"request {arrival} not found; allowed: 1 to {len(stream)}",
            param_hint="--explain",
        )
    with _bar(console) as bar:
        task = bar.add_task("replaying", total=arrival)

        def progress(places: Iterable[int]) -> Iterator[int]:
            for place in places:
                yield place
                bar.advance(task)

        if in_process:
            places = progress(range(arrival))  # later arrivals do not change it
            job = Job(0, ("learned",), Deep(), home)
            log = replay_set(world, stream, "learned", job, keep=True, progress=places)
            told = explain(log.at(arrival - 1))
        else:
            driving = drive(
                world, stream, order=0, home=home, say=_say, arrivals=arrival, progress=progress
            )
            with driving as driven:
                log = driven.log
                said = map(_from_service, explanations(driven, arrival - 1))
                told = [a | b for a, b in zip(explain(log.at(arrival - 1)), said, strict=True)]
    request = world.catalogue.requests[int(stream.requests[arrival - 1])]
    answered = log.answered[arrival - 1]
    return {
        "request": arrival,
        "text": request.text,
        "needs": world.names([request.tool])[0],
        "reward": answered.reward,
        "outcomes": dict(answered.outcomes),
        "decisions": told,
    }


def _from_service(said: dict[str, Any]) -> dict[str, Any]:
    recomputed = said.get("recomputed", {})
    return {
        "decision_id": said["decision_id"],
        "u": said["uniform"],
        "snapshot": said["snapshot"],
        "update_seq": said["update_seq"],
        "recomputed_the_same": recomputed.get("same"),
    }


def _say(text: str) -> None:
    click.echo(text, err=True)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=console.is_terminal,
    )


def _write(file: Path, content: dict[str, Any]) -> None:
    write_text(file, json.dumps(content, indent=2) + "\n")
