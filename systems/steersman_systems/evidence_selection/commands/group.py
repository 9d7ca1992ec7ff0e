"""``steersman evidence``: evidence selection, which picks passages one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from steersman.cli.arguments import Folder
from steersman.cli.options import json_option, ray_option
from steersman.cli.output import show, show_rows
from steersman_systems.evidence_selection.commands.grow import grow_command
from steersman_systems.evidence_selection.commands.weigh import weigh_command

_file = click.Path(path_type=Path, dir_okay=False)
_folder = Folder()
data_option = click.option(
    "--data",
    envvar="STEERSMAN_DATA",
    show_envvar=True,
    type=_folder,
    default=Path(),
    help="Directory of the sets.",
)
home_option = click.option(
    "--home",
    type=_folder,
    default=None,
    envvar="STEERSMAN_HOME",
    show_envvar=True,
    help="Directory of the caches.  [default: ~/.steersman]",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed."
)
words_option = click.option(
    "--words", "words_alone", is_flag=True, help="Search by words only, without vectors."
)
tokens_option = click.option(
    "--tokens",
    type=click.IntRange(1),
    default=4_000,
    show_default=True,
    help="Maximum number of tokens per selection.",
)
form_option = click.option(
    "--form",
    default="",
    help="Form of the query: last, last_two, history, keywords, rewrite.  [default: keywords in "
    "conversations, else last]",
)


@click.group()
def command() -> None:
    """Evaluate, train and use evidence selection, which picks passages one by one."""


command.add_command(grow_command)
command.add_command(weigh_command)


@command.command("evaluate")
@data_option
@click.option("--sets", "names", default="hotpotqa,musique,mtrag", show_default=True,
              help="Sets: folders of --data, comma-separated.")  # fmt: skip
@click.option("--policies", default="all", show_default=True,
              help="Policy names of the report, separated by semicolons; or all.")  # fmt: skip
@click.option(
    "--report", "page", type=_file, default=None, help="Write the HTML report to this file."
)
@click.option(
    "--log", "log", type=_file, default=None, help="Write every selection to this JSONL file."
)
@click.option("--questions", type=click.IntRange(10), default=None,
              help="Number of questions per set, from its beginning.  [default: all]")  # fmt: skip
@click.option("--picks", type=click.IntRange(1, 8), default=5, show_default=True,
              help="Maximum number of passages per selection.")  # fmt: skip
@tokens_option
@click.option("--folds", type=click.IntRange(2, 20), default=5, show_default=True,
              help="Folds of the cross-validation.")  # fmt: skip
@click.option("--ablations/--no-ablations", default=False, show_default=True,
              help="Change one part at a time: K, λ, reranker, expansion, stopping, shaping, "
              "learning steps.")  # fmt: skip
@form_option
@words_option
@click.option("--answers", default="none", show_default=True,
              help="Model that answers from the selected passages: none, local (extra `local`), or "
              "the URL of a chat completions server, its key in STEERSMAN_LLM_KEY.")  # fmt: skip
@click.option("--model", default="",
              help="Model name on the server, or a local model: smollm2 (default), or gemma3-270m "
              "(Gemma Terms of Use; cannot judge).")  # fmt: skip
@click.option("--judge", is_flag=True, help="Judge faithfulness with the same model.")
@click.option("--until-sure", is_flag=True,
              help="Add a clone that stops when the answering model is sure: it gives the same "
              "answer twice, and a passage contains it.")  # fmt: skip
@click.option("--max-calls", type=click.IntRange(0), default=None,
              help="Maximum number of model calls; cached answers need none.")  # fmt: skip
@click.option("--passages", "at_most", type=click.IntRange(0), default=1_000_000,
              show_default=True, help="Passages read per collection, plus gold ones.")  # fmt: skip
@ray_option
@click.option("--mlflow", "uri", metavar="URI", default=None,
              help="Export to this MLflow tracking server (extra `mlflow`); local: a store in "
              "--home.")  # fmt: skip
@home_option
@seed_option
@json_option
def evaluate_command(*, as_json: bool, **asked: Any) -> None:
    """Evaluate policies on sets of questions, with cross-validation.

    The output names every missing set and every policy that cannot take part. The exit status is 1
    if a set is missing.
    """
    from steersman_systems.evidence_selection.commands.run import evaluated  # noqa: PLC0415 (slow)

    done = evaluated(quiet=as_json, **asked)
    if as_json:
        show(done.facts, as_json=True)
    else:
        for rows, columns in done.tables:
            show_rows(rows, columns, as_json=False, none="no results")
        for line in done.told:
            click.echo(line)
    if done.missing:
        raise click.exceptions.Exit(1)


@command.command("train")
@data_option
@click.option(
    "--set", "name", default="hotpotqa", show_default=True, help="Set: a folder of --data."
)
@click.option("--out", type=_file, default=Path("selector.state"), show_default=True,
              help="File to write the scorer to.")  # fmt: skip
@click.option("--from", "source", type=click.Choice(["gold", "feedback"]), default="gold",
              show_default=True, help="Teacher: an expert that knows the gold passages, or "
              "feedback on whether the selected passages contain an answer.")  # fmt: skip
@click.option("--may-stop", is_flag=True, help="Also learn when to stop.")
@click.option("--picks", type=click.IntRange(1, 8), default=5, show_default=True,
              help="Maximum number of passages per selection.")  # fmt: skip
@tokens_option
@form_option
@words_option
@ray_option
@home_option
@seed_option
@json_option
def train_command(*, as_json: bool, **asked: Any) -> None:
    """Train a selector on all questions of a set (extra `evidence`).

    With --from feedback, the command draws short exploratory selections for each question. The
    selector learns which picks changed whether an answer was found, on top of a search along links.
    """
    from steersman_systems.evidence_selection.commands.train import trained  # noqa: PLC0415 (slow)

    show(trained(quiet=as_json, **asked), as_json=as_json)


@command.command("select")
@click.argument("question")
@data_option
@click.option("--set", "name", default="hotpotqa", show_default=True,
              help="Set to search: a folder of --data.")  # fmt: skip
@click.option("--selector", type=_file, default=None,
              help="File of `evidence train`.  [default: the best passages by rank]")  # fmt: skip
@click.option("--picks", type=click.IntRange(1, 8), default=None,
              help="Maximum number of passages.  [default: as in training, or 5]")  # fmt: skip
@click.option("--may-stop/--no-stop", default=None,
              help="Let the selector stop early.  [default: if it learned to]")  # fmt: skip
@words_option
@home_option
@json_option
def select_command(*, as_json: bool, **asked: Any) -> None:
    """Select passages for a question, step by step, with the reasons for each."""
    from steersman_systems.evidence_selection.commands.train import selected  # noqa: PLC0415 (slow)

    columns = ("step", "id", "title", "why", "text")
    show_rows(selected(**asked), columns, as_json=as_json, none="no passages found")


@command.command("judge")
@data_option
@click.option("--set", "name", default="judge_human", show_default=True,
              help="Folder of --data with human verdicts, such as LLMBar or PandaLM.")  # fmt: skip
@click.option("--answers", default="local", show_default=True,
              help="Judging model: local (extra `local`), or the URL of a chat completions server, "
              "its key in STEERSMAN_LLM_KEY.")  # fmt: skip
@click.option("--model", default="", help="Model name on the server.")
@click.option("--pairs", type=click.IntRange(2), default=100, show_default=True,
              help="Number of random pairs; each is judged in both orders.")  # fmt: skip
@click.option("--max-calls", type=click.IntRange(0), default=None,
              help="Maximum number of model calls; cached verdicts need none.")  # fmt: skip
@home_option
@seed_option
@json_option
def judge_command(*, as_json: bool, **asked: Any) -> None:
    """Compare a model that judges pairs of answers with human verdicts, and distil it.

    The output shows agreement, abstentions with their reasons, and the position and length biases
    beside those of people. Distillation needs enough verdicts. The exit status is 1 if the model
    judged no pair.
    """
    from steersman_systems.evidence_selection.commands.judge import judged  # noqa: PLC0415 (slow)

    told = judged(quiet=as_json, **asked)
    show(told, as_json=as_json)
    if not told["judged"]:
        raise click.exceptions.Exit(1)
