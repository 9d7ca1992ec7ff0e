"""``steersman tune``: tuning of retrieval configurations on measured evaluations."""

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
from steersman.cli.output import show, show_rows
from steersman_systems.configs import shipped
from steersman_systems.rag_tuner.commands.inputs import (
    check_writable,
    opened,
    parts_of,
    policy_of,
    read_parts,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar
    from uuid import UUID

    from steersman_systems.rag_tuner.verdict import Verdict

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
    help="File of bounds, gates and weights.  [default: configs/rl/policy.defaults.yaml]",
)
baseline_option = click.option(
    "--baseline",
    default="variant=rrf,k=10",
    show_default=True,
    help="Baseline configuration, as name=value,…",
)

held_out_option = click.option(
    "--held-out",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Share of the queries that are held out for the evaluation.",
)
temporal_option = click.option(
    "--temporal", is_flag=True,
    help="Hold out the latest queries by last_updated, instead of a random share.",
)  # fmt: skip
seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed."
)


@click.group()
def command() -> None:
    """Record, tune and evaluate retrieval configurations."""


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
@click.option("--out", type=_file, default=None, help="NPZ file to write.  [default: NAME.npz]")
@click.option(
    "--log", "logs", type=_file, multiple=True, metavar="JSONL",
    help="Import earlier evaluations from this file; repeatable.",
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
    """Evaluate every configuration on every judged question of a collection, and record it.

    NAME is a folder of --data with corpus, queries and qrels, or with passages and questions. The
    command needs the extra `rag`. Embeddings are cached.

    With --log, the command evaluates nothing: it imports earlier evaluations, and `tune run`
    chooses only among these. The file has one JSON object per line with question, configuration,
    quality, latency_ms, cost and, if the configuration was drawn, propensity; or it is
    episodes.jsonl of a run.
    """
    out = out or Path(f"{name}.npz")
    check_writable(out)  # check first: the evaluation may take minutes
    if logs:
        from steersman_systems.rag_tuner.log_reader import read_log  # noqa: PLC0415 (slow)

        log = read_log(logs, name)
        log.save(out)
        sizes = {"questions": len(log), "configurations": len(log.configurations)}
        show({"file": str(out), **sizes, **log.about}, as_json=as_json)
        return
    from steersman_systems.rag_tuner.commands.record import recorded_collection  # noqa: PLC0415 (slow)

    done = recorded_collection(data / name, policy_of(policy_file), home, progress=not as_json)
    done.save(out)
    about = {"file": str(out), "questions": len(done), "rankings": len(done.keys)}
    show({**about, **done.about}, as_json=as_json)


@command.command("run")
@recording_argument
@click.option("--out", type=_folder, default=Path("tuning"), show_default=True,
              help="Folder of the run.")  # fmt: skip
@click.option(
    "--strategy", default="factored", show_default=True,
    help="Search strategy: factored, halving, random, tpe (extra tune) or ppo (extra rl).",
)  # fmt: skip
@click.option(
    "--evaluations",
    type=click.IntRange(1, 100_000),
    default=160,
    show_default=True,
    help="Number of evaluations.",
)
@click.option("--after", type=_folder, default=None,
              help="Earlier run to start from, under the current weights.")  # fmt: skip
@click.option("--slice", "size", type=click.IntRange(1, 10_000), default=32, show_default=True,
              help="Queries per evaluation.")  # fmt: skip
@held_out_option
@temporal_option
@click.option("--holdout", default=None, metavar="SPLIT",
              help="Split to use as a one-time holdout set, instead of a share.")  # fmt: skip
@click.option(
    "--effect", type=Number(0, min_open=True), default=0.005, show_default=True,
    help="Smallest reward gain of interest, for the power check before the run.",
)  # fmt: skip
@seed_option
@baseline_option
@policy_option
@json_option
def run_command(
    recording: Path, out: Path, policy_file: Path | None, baseline: str, *, as_json: bool,
    **asked: Any,
) -> None:  # fmt: skip
    """Tune on one part of the questions of a recording or log; evaluate once on the rest.

    A stopped run continues when it is started again. The exit status is 1 if no gain is shown.
    After a change of reward weights, --after starts a new run with the evaluations of an old run.
    Both runs need the same recording, --seed and --held-out.

    A --holdout split evaluates one run only. A second use fails and names the first run; the
    folder `holdouts` beside the recording keeps this record.
    """
    from steersman_systems.rag_tuner.commands.run import RunOptions, tuned_run  # noqa: PLC0415 (slow)
    from steersman_systems.rag_tuner.hygiene import leakage_said  # noqa: PLC0415

    recorded, tuned = opened(recording), policy_of(policy_file)
    text = (policy_file or shipped("rl/policy.defaults.yaml")).read_text(encoding="utf-8")
    wanted = RunOptions(
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
    """Show the best configuration for different weights of latency and cost.

    The sweep uses only the tuning questions of `tune run` with the same seed. Weights chosen on the
    held-out questions would bias the evaluation. For a log, the sweep compares configurations with
    ten or more evaluated tuning questions, each on its own questions.
    """
    from steersman_systems.rag_tuner.commands.run import split_of  # noqa: PLC0415 (slow)
    from steersman_systems.rag_tuner.sweep import sweep  # noqa: PLC0415

    recorded, tuned = opened(recording), policy_of(policy_file)
    queries = split_of(recorded, seed, held_out, by_time=temporal).tuning
    # Ray reports lost nodes on standard output, which must hold only the result.
    with redirect_stdout(sys.stderr):
        found = sweep(recorded, tuned, queries, parts_of(baseline), address=ray_address)
    rows = [
        {**{n: getattr(one, n) for n in _COLUMNS}, "best": str(one.best or "none passes the gates"),
         "quality": " ".join(f"{value:.3f}" for value in one.quality)}
        for one in found
    ]  # fmt: skip
    show_rows(rows, _COLUMNS, as_json=as_json, none="no weights to compare")


@command.command("report")
@click.argument("run", type=_folder)
@recording_argument
@click.option(
    "--out", type=_folder, default=None, help="Folder of the report.  [default: RUN/report]"
)
@click.option(
    "--rollout",
    type=click.UUID,
    default=None,
    help="Rollout of the tuned configuration: chart its canary latency against the baseline.",
)
@click.option(
    "--episode", type=click.IntRange(10), default=100, show_default=True,
    help="Canary decisions per episode.",
)  # fmt: skip
@tenant_option
@home_option
@json_option
def report_command(
    run: Path, recording: Path, out: Path | None, rollout: UUID | None, episode: int,
    tenant_name: str, home: Path, *, as_json: bool,
) -> None:  # fmt: skip
    """Write a report of RUN, a folder of `tune run`, on its RECORDING: a page and charts.

    The command does not tune or evaluate; the page shows the verdict of the run. With --rollout of
    --tenant, it reads latencies of decisions from the store of --home. It needs the extra `demo`.
    """
    from steersman_systems.rag_tuner.commands.report import canary_of, reported  # noqa: PLC0415 (slow)

    canary = None if rollout is None else partial(canary_of, home, tenant_name, rollout, episode)
    told = dict(reported(run, opened(recording), out or run / "report", canary))
    if not as_json:  # long lists per episode: only in JSON and in the report
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
    help="Tracking URI of an MLflow store.  [default: an SQLite file in --home]",
)
@click.option(
    "--experiment", default="rl_autotuner", show_default=True, help="Name of the MLflow experiment."
)
@click.option(
    "--commit", default=None, help="Commit of the code that ran.  [default: from git, if available]"
)
@click.option(
    "--keep-days",
    type=click.IntRange(0),
    default=90,
    show_default=True,
    help="Mark exported runs older than this as deleted, in days; 0: never.",
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
    """Export RUN, a finished folder of `tune run`, to MLflow; idempotent.

    It needs the extra `mlflow`.
    """
    from steersman_systems.rag_tuner.commands.report import exported  # noqa: PLC0415 (slow)

    show(exported(run, home, **asked), as_json=as_json)


@command.command("estimate")
@click.argument("run", type=_folder)
@click.option(
    "--among", default="", metavar="PARTS",
    help="Fixed parts, as name=value,…; each other part is drawn independently.",
)  # fmt: skip
@json_option
def estimate_command(run: Path, among: str, *, as_json: bool) -> None:
    """Estimate the reward of other choices from the log of RUN, a folder of `tune run`.

    It evaluates nothing: importance weights use the exact propensities of the run. The exit status
    is 1 if the log does not support an estimate; the output says why.
    """
    from steersman_systems.rag_tuner.commands.report import estimates  # noqa: PLC0415 (slow)

    rows, reasons = estimates(run, read_parts(among) if among else {})
    show_rows(rows, _ESTIMATED, as_json=as_json, none="no estimate: " + "; ".join(reasons))
    if reasons:
        raise click.exceptions.Exit(1)


@command.command("canary")
@policy_option
@json_option
def canary_command(policy_file: Path | None, *, as_json: bool) -> None:
    """Print options of `rollout start` for a tuned configuration.

    They require that the 95 % interval of the reward is above zero before the rollout leaves the
    canary. The error rate must stay within the gates, and no gated number may be shown to be worse:

        steersman rollout start rag retrieval VERSION $(steersman tune canary)
    """
    from steersman_systems.rag_tuner.canary import canary_plan  # noqa: PLC0415 (slow)

    plan = canary_plan(policy_of(policy_file))
    if as_json:
        click.echo(json.dumps(plan))
        return
    compact = {name: json.dumps(value, separators=(",", ":")) for name, value in plan.items()}
    click.echo(" ".join(f"--set {name}={value}" for name, value in compact.items()))


def _tell(verdict: Verdict, out: Path, more: Mapping[str, str], *, as_json: bool) -> None:
    from steersman_systems.rag_tuner.run_folder import RunFolder  # noqa: PLC0415 (slow)

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
