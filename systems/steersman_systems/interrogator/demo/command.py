"""Demo command ``steersman demo interrogator``: one investigation, then a comparison."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console

from steersman.cli.arguments import Folder
from steersman.cli.output import check_writable, write_text
from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman_systems.interrogator.demo.tables import as_json, print_investigation, print_report

if TYPE_CHECKING:
    from steersman.retrieval.dense import Embedder
    from steersman_systems.interrogator.answer_cache import AnswerCache
    from steersman_systems.interrogator.answers import Answerer
    from steersman_systems.interrogator.choosers import Chooser
    from steersman_systems.interrogator.demo.cache import DemoMetrics
    from steersman_systems.interrogator.demo.http_choosers import ServiceChooser
    from steersman_systems.interrogator.drift import GuardedChooser
    from steersman_systems.interrogator.investigation import Investigation
    from steersman_systems.interrogator.questions import Questions
    from steersman_systems.interrogator.step_log import StepLog
    from steersman_systems.interrogator.targets import Target

_SEARCHED = 10
"""Maximum number of targets per set for the exhaustive search before the comparison."""
_MOST_BYTES = 16 << 20
"""Size limit; the .npy file of one embedding has a few KiB."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """Resources of all parts of the demo."""

    console: Console
    questions: Questions
    embedder: Embedder
    home: Path | None


@click.command()
@click.option("--text", help="Investigate the embedding of this text.")
@click.option(
    "--embedding",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Investigate the vector in this .npy file: 384 numbers of all-MiniLM-L6-v2.",
)
@click.option(
    "--target",
    type=click.IntRange(min=1),
    help="Investigate target N of the sets.  [default: 1]",
)
@click.option(
    "--rl/--no-rl",
    default=None,
    help="Choose the questions with the learned policy in a service, or with the heuristic.  "
    "[default: value in configs/interrogator/rl.yaml]",
)
@click.option(
    "--data",
    envvar="STEERSMAN_DATA",
    show_envvar=True,
    type=Folder(),
    help="Directory of the data sets clapnq, scifact and metatool.",
)
@click.option("--sets", default="bfcl", show_default=True, help="Target sets, separated by commas.")
@click.option(
    "--targets",
    "targets",
    default=8,
    show_default=True,
    type=click.IntRange(min=0),
    help="Number of targets per set for the comparison, 2 or more; 0 skips the comparison. Eight "
    "targets take about a minute.",
)
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(min=1),
              help="Number of random seeds of the comparison.")  # fmt: skip
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the investigation and the comparison as JSON to FILE.")  # fmt: skip
@click.option("--metrics", "metrics_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the investigation's metrics to FILE for the textfile collector of the "
              "Prometheus node exporter; the name must end in .prom.")  # fmt: skip
@click.option("--html", "html_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the comparison as an HTML page with plots to FILE.")  # fmt: skip
@click.option(
    "--answerer",
    type=click.Choice(["options", "llm"]),
    default="options",
    show_default=True,
    help="Source of the answers: the options of each question, or a language model (falls back to "
    "the options).",
)
@click.option(
    "--llm-url", help="URL of the language model server, for example http://127.0.0.1:8080/v1."
)
@click.option("--llm-model", help="Name of the language model.")
@click.option(
    "--llm-key",
    envvar="STEERSMAN_LLM_KEY",
    show_envvar=True,
    help="API key of the language model server. Prefer the environment variable: other users "
    "can see command lines.",
)
@click.option(
    "--home",
    type=Folder(),
    help="Directory for caches and the store.  [default: $STEERSMAN_HOME or ~/.steersman for "
    "caches, a temporary directory for the store]",
)
def interrogator(**given: Any) -> None:
    """Investigate an unknown embedding with questions and print every step.

    With --no-rl, the heuristic chooses the questions in this process. With --rl, a service chooses
    them over HTTP: the demo starts an embedded store, a service process and a learner. The learner
    first reads the shipped log of 10,000 questions, then each new answer. A drift guard checks
    gains and contexts. If it fires, or if the service does not answer, the heuristic chooses.

    Then the demo compares the heuristic with bandit policies on held-out targets. Each policy has a
    separate cache.
    """
    from steersman_systems.interrogator.gate import load_switch  # noqa: PLC0415
    from steersman_systems.interrogator.questions import load_questions  # noqa: PLC0415 (slow)
    from steersman_systems.interrogator.trial import cached_minilm  # noqa: PLC0415

    console = Console()
    _check_usage(given)
    check_writable(*(given[name] for name in ("json_file", "metrics_file", "html_file")))
    _sets(given)  # fail before the first output
    switch = load_switch()
    ready = _Ready(console, load_questions(), cached_minilm(given["home"]), given["home"])
    target = _target(ready, given)
    rl = (switch.rl == "on") if given["rl"] is None else given["rl"]
    told = _with_service(ready, target, given) if rl else _alone(ready, target, given)
    result: dict[str, Any] = {"rl": rl, "investigation": told}
    if given["targets"]:
        result["comparison"] = _compare(ready, given)
    if given["json_file"] is not None:
        write_text(given["json_file"], json.dumps(result, indent=2) + "\n")
        console.print(f"report as JSON  {given['json_file']}", highlight=False, soft_wrap=True)


def _check_usage(given: dict[str, Any]) -> None:
    named = [name for name in ("text", "embedding", "target") if given[name] is not None]
    if len(named) > 1:
        raise click.UsageError(f"--{' and --'.join(named)} cannot be combined; give one of them")
    if given["answerer"] == "llm" and not (given["llm_url"] and given["llm_model"]):
        raise click.UsageError("--answerer llm needs --llm-url and --llm-model")
    if given["metrics_file"] is not None and given["metrics_file"].suffix != ".prom":
        raise click.UsageError(
            "--metrics must end in .prom; the node exporter reads no other files"
        )
    if given["targets"] == 1:
        raise click.UsageError(
            "--targets 1 is too few to compare; allowed: 2 or more, or 0 to skip"
        )
    if given["html_file"] is not None and given["targets"] == 0:
        raise click.UsageError("--html needs the comparison; give --targets 2 or more")
    if given["html_file"] is not None and find_spec("matplotlib") is None:
        # Fail now, not after minutes of comparing.
        message = "--html needs matplotlib; install it with: "
        raise DataError(message + how_to_install("demo"))


def _target(ready: _Ready, given: dict[str, Any]) -> Target:
    from steersman_systems.interrogator.target_sets import load_targets  # noqa: PLC0415 (slow)
    from steersman_systems.interrogator.targets import Target  # noqa: PLC0415

    if given["text"] is not None:
        if not given["text"].strip():
            raise InputError("--text is empty; give at least one word")
        vector = ready.embedder.encode([given["text"]])[0].astype(np.float16)
        return Target.of_vector(vector, name="text", text=given["text"])
    if given["embedding"] is not None:
        return read_embedding(given["embedding"], ready.embedder.size)
    number = given["target"] or 1
    targets = load_targets(
        _sets(given), part="ab", data=given["data"], embedder=ready.embedder, home=ready.home
    )
    if number > len(targets):
        message = f"target {number} not found; allowed: 1 to {len(targets)}"
        raise click.BadParameter(message, param_hint="--target")
    return targets[number - 1]


def read_embedding(file: Path, size: int) -> Target:
    """Return the target in an .npy file.

    Raises:
        DataError: The file cannot be read, is too large, or is not an .npy file of numbers.
        InputError: Wrong dimension, NaN or infinite numbers, or the zero vector.
    """
    from steersman_systems.interrogator.targets import Target  # noqa: PLC0415 (slow)

    advice = "write one with numpy.save(file, vector)"
    try:
        held = file.stat().st_size
        if held > _MOST_BYTES:
            raise DataError(f"{file} has {held} bytes; allowed: up to {_MOST_BYTES}; {advice}")
        # Not numpy.load: it opens archives of arrays as well. This call reads no pickles.
        vector = np.lib.format.open_memmap(file, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} is not a readable .npy file: {error}; {advice}") from error
    if vector.shape != (size,):
        message = f"{file} holds an array of shape {vector.shape}; expected ({size},)"
        raise InputError(f"{message}; embed the text with all-MiniLM-L6-v2")
    return Target.of_vector(vector, name=file.name)


def _sets(given: dict[str, Any]) -> list[str]:
    from steersman_systems.interrogator.target_sets import SETS, is_set  # noqa: PLC0415 (slow)

    named = list(dict.fromkeys(name.strip() for name in given["sets"].split(",") if name.strip()))
    unknown = [name for name in named if not is_set(name, given["data"])]
    if unknown or not named:
        message = f"unknown set: {', '.join(unknown)}" if unknown else "no set given"
        message += f"; allowed: {', '.join(SETS)} and folders of --data"
        raise click.BadParameter(message, param_hint="--sets")
    return named


def _answerer(ready: _Ready, cache: AnswerCache, given: dict[str, Any]) -> Answerer:
    from steersman.providers.chat import ChatBackend  # noqa: PLC0415
    from steersman_systems.interrogator.answers import OptionAnswerer  # noqa: PLC0415 (slow)
    from steersman_systems.interrogator.llm_answers import LLMAnswerer  # noqa: PLC0415

    options = OptionAnswerer(ready.embedder, cache)
    if given["answerer"] == "options":
        return options
    backend = ChatBackend(given["llm_url"], given["llm_model"], api_key=given["llm_key"])
    return LLMAnswerer(backend, ready.embedder, cache, otherwise=options)


def _investigate(
    ready: _Ready, target: Target, chooser: Chooser, answerer: Answerer, *, counted: DemoMetrics
) -> Investigation:
    from steersman_systems.interrogator.investigation import investigate  # noqa: PLC0415 (slow)

    rng = np.random.default_rng(0)
    done = investigate(
        target, questions=ready.questions, chooser=chooser, answerer=answerer, rng=rng,
        on_step=counted.metrics.on_step,
    )  # fmt: skip
    counted.end(done, chooser)
    return done


def _shown(ready: _Ready, done: Investigation, answerer: Answerer) -> dict[str, Any]:
    from steersman_systems.interrogator.llm_answers import LLMAnswerer  # noqa: PLC0415 (slow)

    print_investigation(ready.console, done)
    told = as_json(done)
    if isinstance(answerer, LLMAnswerer):
        if answerer.fallbacks:
            times = ", ".join(f"{number} × {name}" for name, number in answerer.fallbacks.items())
            ready.console.print(
                f"answers from the options, not the language model: {times}", highlight=False
            )
        told["llm"] = {"asked": answerer.asked, "fallbacks": dict(answerer.fallbacks)}
    return told


def _alone(ready: _Ready, target: Target, given: dict[str, Any]) -> dict[str, Any]:
    """Run and print the investigation with the heuristic, in this process."""
    from steersman_systems.interrogator.choosers import Heuristic  # noqa: PLC0415
    from steersman_systems.interrogator.demo.cache import DemoMetrics, demo_cache  # noqa: PLC0415 (slow)

    with demo_cache(None, say=_say) as cache:
        answerer = _answerer(ready, cache, given)
        counted = DemoMetrics(cache, given["metrics_file"], ready.console)
        done = _investigate(ready, target, Heuristic(), answerer, counted=counted)
        return _shown(ready, done, answerer) | counted.shown()


def _with_service(ready: _Ready, target: Target, given: dict[str, Any]) -> dict[str, Any]:
    """Run and print the investigation with the service."""
    from steersman_systems.interrogator.choosers import Heuristic  # noqa: PLC0415
    from steersman_systems.interrogator.demo.cache import DemoMetrics, demo_cache  # noqa: PLC0415
    from steersman_systems.interrogator.demo.http_choosers import ServiceChooser, serving  # noqa: PLC0415 (slow)
    from steersman_systems.interrogator.drift import DriftGuard, GuardedChooser  # noqa: PLC0415
    from steersman_systems.interrogator.point import load_point  # noqa: PLC0415

    log, vectors = _log(ready.questions)
    point = load_point(ready.questions)
    guard = DriftGuard.of_log(point, log, vectors, rng=np.random.default_rng(0))
    ready.console.print(
        f"starting a service with {len(log):,} logged questions to learn", highlight=False
    )
    with ExitStack() as exits:
        running = exits.enter_context(serving(ready.home, log, vectors, say=_say))
        ready.console.print(
            f"learned {running.imported:,} logged questions in {running.seconds:.1f} s",
            highlight=False,
        )
        cache = exits.enter_context(demo_cache(running.service.database, say=_say))
        asking = ServiceChooser(running.client, point)
        guarded = GuardedChooser(asking, Heuristic(), guard, point)
        answerer = _answerer(ready, cache, given)
        counted = DemoMetrics(cache, given["metrics_file"], ready.console)
        done = _investigate(ready, target, guarded, answerer, counted=counted)
        running.learned()
        told = _shown(ready, done, answerer) | counted.shown()
        return told | _of_service(ready.console, running.imported, asking, guarded)


def _of_service(
    console: Console, imported: int, asking: ServiceChooser, guarded: GuardedChooser
) -> dict[str, Any]:
    if guarded.reason is not None:
        console.print(f"drift guard: switched to the heuristic: {guarded.reason}")
    if asking.unanswered:
        console.print(f"{asking.unanswered} questions without an answer from the service")
    decisions = [
        {
            "decision_id": str(decision.decision_id),
            "snapshot": decision.snapshot,
            "update_seq": decision.update_seq,
            "logged": decision.logged,
            "degraded": decision.degraded,
        }
        for decision in asking.asked
    ]
    return {
        "imported": imported,
        "decisions": decisions,
        "unanswered": asking.unanswered,
        "drift": {"reason": guarded.reason, "questions": guarded.questions},
    }


def _compare(ready: _Ready, given: dict[str, Any]) -> dict[str, Any]:
    """Run and print the comparison; return its report."""
    from steersman_systems.interrogator.gate import load_switch  # noqa: PLC0415
    from steersman_systems.interrogator.page import write_page  # noqa: PLC0415
    from steersman_systems.interrogator.point import load_point  # noqa: PLC0415
    from steersman_systems.interrogator.report import compile_report, counted  # noqa: PLC0415
    from steersman_systems.interrogator.target_sets import load_targets  # noqa: PLC0415 (slow)
    from steersman_systems.interrogator.trial import Plan, run_trial  # noqa: PLC0415

    log, vectors = _log(ready.questions)
    trials = {}
    for name in _sets(given):
        targets = load_targets(
            [name], part="ab", most=given["targets"], data=given["data"],
            embedder=ready.embedder, home=ready.home,
        )  # fmt: skip
        plan = Plan(
            targets, ready.questions, load_point(ready.questions), log, vectors,
            seeds=tuple(range(given["seeds"])), searched=min(len(targets), _SEARCHED),
            home=ready.home,
        )  # fmt: skip
        with ready.console.status(f"{counted(len(targets), 'target')} of {name}"):
            trials[name] = run_trial(plan)
    report = compile_report(trials, load_switch().gate, candidate="warm_online")
    print_report(ready.console, report)
    if given["html_file"] is not None:
        write_page(given["html_file"], report, trials, title="The interrogator")
        ready.console.print(f"page  {given['html_file']}", highlight=False, soft_wrap=True)
    return report


def _log(questions: Questions) -> tuple[StepLog, Any]:
    from steersman_systems.interrogator.step_log import load_steps  # noqa: PLC0415
    from steersman_systems.interrogator.target_sets import recorded_vectors  # noqa: PLC0415 (slow)

    return load_steps(questions), recorded_vectors()


def _say(text: str) -> None:
    click.echo(text, err=True)
