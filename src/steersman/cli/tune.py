"""``steersman tune``: which retrieval configuration, from measured evaluations."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.arguments import Folder, Number
from steersman.cli.options import home_option, json_option, ray_option, tenant_option
from steersman.cli.showing import show, show_rows
from steersman.cli.tune_reading import (
    check_writable,
    opened,
    parts_of,
    policy_of,
    read_parts,
    shown,
)
from steersman.spec.reading import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar
    from uuid import UUID

    from steersman.systems.rag_tuner import Verdict

    T = TypeVar("T")

_COLUMNS = ("gamma", "delta", "best", "reward", "ahead", "quality", "latency_ms", "cost")
_ESTIMATED = ("estimator", "value", "low", "high", "evaluations", "effective")
_file = click.Path(path_type=Path, dir_okay=False)
_folder = Folder()
recording_argument = click.argument("recording", type=_file)
policy_option = click.option(
    "--policy",
    "policy_file",
    type=_file,
    default=None,
    help="Bounds, gates and weights.  [default: configs/rl/policy.defaults.yaml]",
)
baseline_option = click.option(
    "--baseline",
    default="variant=rrf,k=10",
    show_default=True,
    help="What it is held against: parts of a configuration, as name=value,…",
)

held_out_option = click.option(
    "--held-out",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Share of the queries that judge, and are not tuned on.",
)
temporal_option = click.option(
    "--temporal", is_flag=True,
    help="The latest queries judge, by their last_updated, and not a share that is drawn.",
)  # fmt: skip
seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all that is drawn."
)


@click.group()
def command() -> None:
    """Record, tune and judge retrieval configurations."""


@command.command("record")
@click.argument("name")
@click.option(
    "--data",
    envvar="STEERSMAN_DATA",
    show_envvar=True,
    type=_folder,
    default=Path(),
    help="Directory that holds NAME.",
)
@click.option("--out", type=_file, default=None, help="The npz to write.  [default: NAME.npz]")
@click.option(
    "--log", "logs", type=_file, multiple=True, metavar="JSONL",
    help="Take what was evaluated before instead, from here; may be given again.",
)  # fmt: skip
@policy_option
@click.option(
    "--home",
    type=_folder,
    default=None,
    envvar="STEERSMAN_HOME",
    show_envvar=True,
    help="Directory of the caches.  [default: ~/.steersman]",
)
@json_option
def record_command(
    name: str, data: Path, out: Path | None, logs: tuple[Path, ...], policy_file: Path | None,
    home: Path | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Evaluate every configuration on every judged question of a collection, once.

    NAME is a folder of --data with corpus, queries and qrels, or with passages and questions.
    Needs the extra `rag`; texts that were embedded before are not embedded again.

    With --log nothing is evaluated: what `tune run` then chooses among is what was evaluated
    before, and what was not is refused. One JSON object a line, with question, configuration,
    quality, latency_ms, cost and, where it was drawn, propensity; or episodes.jsonl of a run.
    """
    out = out or Path(f"{name}.npz")
    check_writable(out)  # it may take minutes until there is something to write
    if logs:
        from steersman.systems.rag_tuner.log_reading import read_log  # noqa: PLC0415 (slow)

        log = read_log(logs, name)
        log.save(out)
        sizes = {"questions": len(log), "configurations": len(log.configurations)}
        show({"file": str(out), **sizes, **log.about}, as_json=as_json)
        return
    from steersman.cli.tune_recording import recorded_collection  # noqa: PLC0415 (slow)

    done = recorded_collection(data / name, policy_of(policy_file), home, progress=not as_json)
    done.save(out)
    about = {"file": str(out), "questions": len(done), "rankings": len(done.keys)}
    show({**about, **done.about}, as_json=as_json)


@command.command("run")
@recording_argument
@click.option("--out", type=_folder, default=Path("tuning"), show_default=True, help="Of the run.")
@click.option(
    "--strategy", default="factored", show_default=True,
    help="Who asks: factored, halving, random, tpe (extra tune) or ppo (extra rl).",
)  # fmt: skip
@click.option(
    "--evaluations",
    type=click.IntRange(1, 100_000),
    default=160,
    show_default=True,
    help="How many are made.",
)
@click.option("--after", type=_folder, default=None,
              help="Run whose evaluations are told first, at what they are worth now.")  # fmt: skip
@click.option("--slice", "size", type=click.IntRange(1, 10_000), default=32, show_default=True,
              help="Queries of an evaluation.")  # fmt: skip
@held_out_option
@temporal_option
@click.option("--holdout", default=None, metavar="SPLIT",
              help="Split that judges, in place of a share: once, whoever asks.")  # fmt: skip
@click.option(
    "--effect", type=Number(0, min_open=True), default=0.005, show_default=True,
    help="Gain of reward that is sought: whether held-out queries can show it is said beforehand.",
)  # fmt: skip
@seed_option
@baseline_option
@policy_option
@json_option
def run_command(
    recording: Path, out: Path, policy_file: Path | None, baseline: str, *, as_json: bool,
    **asked: Any,
) -> None:  # fmt: skip
    """Tune on one part of a recording's or a log's questions, and judge once on the other.

    A run that was stopped goes on when it is started again. Exit status 1 when no gain is shown.
    Once the reward weights have changed, --after has a new run begin with what the old one paid
    for, of the same recording, --seed and --held-out.

    A --holdout judges one run and no other: that it did stands in the folder `holdouts` beside the
    recording.
    """
    from steersman.cli.tune_running import Asked, tuned_run  # noqa: PLC0415 (slow)
    from steersman.systems.rag_tuner.hygiene import leakage_said  # noqa: PLC0415

    recorded, tuned = opened(recording), policy_of(policy_file)
    text = (policy_file or shipped("rl/policy.defaults.yaml")).read_text(encoding="utf-8")
    wanted = Asked(
        baseline=parts_of(baseline), holdouts=recording.absolute().parent / "holdouts", **asked
    )

    def progress(rows: Iterable[T], total: int) -> Iterable[T]:
        return shown(rows, total, "evaluating", as_json=as_json)

    told = {"leakage": leakage_said(recorded.about)}

    def say(name: str, said: str) -> None:
        told[name] = said
        if not as_json:
            click.echo(f"{name.capitalize()}: {said}", err=True)

    verdict = tuned_run(recorded, tuned, text, out, wanted, progress, say)
    _tell(verdict, out, told, as_json=as_json)


@command.command("sweep")
@recording_argument
@held_out_option
@temporal_option
@seed_option
@baseline_option
@policy_option
@ray_option
@json_option
def sweep_command(
    recording: Path, held_out: float, seed: int, baseline: str, policy_file: Path | None,
    ray_address: str | None, *, temporal: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show the best configuration under other weights of latency and cost.

    It looks at the questions that `tune run` with the same seed would tune on: weights that were
    chosen with those that judge would make them judge too well. Of a log, it looks at what was
    evaluated on ten of these or more, each on its own questions.
    """
    from steersman.cli.tune_running import split_of  # noqa: PLC0415 (slow)
    from steersman.systems.rag_tuner import sweep  # noqa: PLC0415

    recorded, tuned = opened(recording), policy_of(policy_file)
    queries = split_of(recorded, seed, held_out, by_time=temporal).tuning
    # Ray tells of lost nodes on the standard output, which is the result's.
    with redirect_stdout(sys.stderr):
        found = sweep(recorded, tuned, queries, parts_of(baseline), address=ray_address)
    rows = [
        {**{n: getattr(one, n) for n in _COLUMNS}, "best": str(one.best or "none holds the gates"),
         "quality": " ".join(f"{value:.3f}" for value in one.quality)}
        for one in found
    ]  # fmt: skip
    show_rows(rows, _COLUMNS, as_json=as_json, none="no weights were tried")


@command.command("report")
@click.argument("run", type=_folder)
@recording_argument
@click.option("--out", type=_folder, default=None, help="Of the report.  [default: RUN/report]")
@click.option(
    "--rollout",
    type=click.UUID,
    default=None,
    help="Rollout of what was tuned: its canary's latency is drawn over the baseline's.",
)
@click.option(
    "--episode", type=click.IntRange(10), default=100, show_default=True,
    help="Decisions of the canary that make an episode.",
)  # fmt: skip
@tenant_option
@home_option
@json_option
def report_command(
    run: Path, recording: Path, out: Path | None, rollout: UUID | None, episode: int,
    tenant_name: str, home: Path, *, as_json: bool,
) -> None:  # fmt: skip
    """Draw what became of RUN, a folder of `tune run`, on its RECORDING: a page and pictures.

    Nothing is tuned and no verdict is made: the page says what was judged when the run ended. With
    --rollout of --tenant, the store of --home is asked how long decisions took. Needs the extra
    `demo`.
    """
    from steersman.cli.tune_reporting import canary_of, reported  # noqa: PLC0415 (slow)

    canary = None if rollout is None else partial(canary_of, home, tenant_name, rollout, episode)
    told = dict(reported(run, opened(recording), out or run / "report", canary))
    if not as_json:  # of every episode: for programs, and drawn in the report
        del told["latency"], told["canary"]
    show(told, as_json=as_json)


@command.command("export")
@click.argument("run", type=_folder)
@click.option(
    "--to",
    "tracking_uri",
    default=None,
    metavar="URI",
    envvar="MLFLOW_TRACKING_URI",
    show_envvar=True,
    help="Of an MLflow store.  [default: an SQLite file below --home]",
)
@click.option(
    "--experiment", default="rl_autotuner", show_default=True, help="The experiment's name there."
)
@click.option("--commit", default=None, help="Of the code that ran.  [default: git's, if it knows]")
@click.option(
    "--keep-days",
    type=click.IntRange(0),
    default=90,
    show_default=True,
    help="Exported runs older than this are marked as deleted; 0: never.",
)
@click.option(
    "--home",
    type=_folder,
    default=None,
    envvar="STEERSMAN_HOME",
    show_envvar=True,
    help="Directory of the local store.  [default: ~/.steersman]",
)
@json_option
def export_command(run: Path, home: Path | None, *, as_json: bool, **asked: Any) -> None:
    """Write RUN, a folder of `tune run` that was judged, to MLflow; again changes nothing.

    Needs the extra `mlflow`.
    """
    from steersman.cli.tune_reporting import exported  # noqa: PLC0415 (slow)

    show(exported(run, home, **asked), as_json=as_json)


@command.command("estimate")
@click.argument("run", type=_folder)
@click.option(
    "--among", default="", metavar="PARTS",
    help="Parts that are held, as name=value,…; each of the others is drawn by itself.",
)  # fmt: skip
@json_option
def estimate_command(run: Path, among: str, *, as_json: bool) -> None:
    """Estimate from the log of RUN, a folder of `tune run`, what choosing otherwise would bring.

    Nothing is evaluated: rewards are weighted by the exact probabilities with which the run drew.
    Exit status 1 when the log cannot tell; it says why.
    """
    from steersman.cli.tune_reporting import estimates  # noqa: PLC0415 (slow)

    rows, reasons = estimates(run, read_parts(among) if among else {})
    show_rows(rows, _ESTIMATED, as_json=as_json, none="the log cannot tell: " + "; ".join(reasons))
    if reasons:
        raise click.exceptions.Exit(1)


@command.command("canary")
@policy_option
@json_option
def canary_command(policy_file: Path | None, *, as_json: bool) -> None:
    """Print what a rollout of a tuned configuration asks for, as options of `rollout start`.

    A 95 % interval of the reward above zero before the canary is left, errors within the gates'
    rate, and no gated number shown to be worse:

        steersman rollout start rag retrieval VERSION $(steersman tune canary)
    """
    from steersman.systems.rag_tuner.canary import canary_plan  # noqa: PLC0415 (slow)

    plan = canary_plan(policy_of(policy_file))
    if as_json:
        click.echo(json.dumps(plan))
        return
    compact = {name: json.dumps(value, separators=(",", ":")) for name, value in plan.items()}
    click.echo(" ".join(f"--set {name}={value}" for name, value in compact.items()))


def _tell(verdict: Verdict, out: Path, more: Mapping[str, str], *, as_json: bool) -> None:
    from steersman.systems.rag_tuner import RunFolder  # noqa: PLC0415 (slow)

    reused = RunFolder(out).verdict().get("reused")
    show(
        {
            "verdict": verdict.state,
            "says": str(verdict),
            "candidate": str(verdict.candidate),
            "baseline": str(verdict.baseline),
            "gain": verdict.gain,
            "low": verdict.low,
            "high": verdict.high,
            **more,
            **({"reused": reused} if reused else {}),
            "run": str(out),
        },
        as_json=as_json,
    )
    if verdict.state != "gain":
        raise click.exceptions.Exit(1)
