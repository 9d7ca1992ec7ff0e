"""``steersman evidence``: which passages, picked one after the other; measured, trained, used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from steersman.cli.arguments import Folder
from steersman.cli.evidence_growing import grow_command
from steersman.cli.evidence_log import weigh_command
from steersman.cli.options import json_option, ray_option
from steersman.cli.showing import show, show_rows

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
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all that is drawn."
)
words_option = click.option(
    "--words", "words_alone", is_flag=True, help="Search by words alone: no vectors."
)
tokens_option = click.option(
    "--tokens",
    type=click.IntRange(1),
    default=4_000,
    show_default=True,
    help="Of a selection, at most.",
)
form_option = click.option(
    "--form",
    default="",
    help="Of the query: last, last_two, history, keywords, rewrite.  [default: keywords in "
    "conversations, else last]",
)


@click.group()
def command() -> None:
    """Select passages one after the other; measure, train and use who selects."""


command.add_command(grow_command)
command.add_command(weigh_command)


@command.command("evaluate")
@data_option
@click.option("--sets", "names", default="hotpotqa,musique,mtrag", show_default=True,
              help="Folders of --data, comma-separated.")  # fmt: skip
@click.option("--policies", default="all", show_default=True,
              help="Names as the report has them, separated by semicolons; or all.")  # fmt: skip
@click.option("--report", "page", type=_file, default=None, help="Write the page (HTML) here.")
@click.option("--log", "log", type=_file, default=None, help="Write every selection (JSONL) here.")
@click.option("--questions", type=click.IntRange(10), default=None,
              help="The first so many of each set; all without it.")  # fmt: skip
@click.option("--picks", type=click.IntRange(1, 8), default=5, show_default=True,
              help="Passages of a selection, at most.")  # fmt: skip
@tokens_option
@click.option("--folds", type=click.IntRange(2, 20), default=5, show_default=True,
              help="Each is measured on what the others trained.")  # fmt: skip
@click.option("--ablations/--no-ablations", default=False, show_default=True,
              help="Change one part at a time: K, λ, reranker, expanding, stopping, shaping, steps "
              "of learning.")  # fmt: skip
@form_option
@words_option
@click.option("--answers", default="none", show_default=True,
              help="Who answers from what was picked: none, local (extra `local`), or the URL of a "
              "server of chat completions, its key in STEERSMAN_LLM_KEY.")  # fmt: skip
@click.option("--model", default="",
              help="Name of the server's model, or of a local one: smollm2, which is taken without "
              "this, or gemma3-270m, which comes under the Gemma Terms of Use and judges "
              "nothing.")  # fmt: skip
@click.option("--judge", is_flag=True, help="Judge faithfulness by the same server.")
@click.option("--until-sure", is_flag=True,
              help="Let a clone take part that stops when who answers is sure: the same answer "
              "twice, and it stands in a passage.")  # fmt: skip
@click.option("--max-calls", type=click.IntRange(0), default=None,
              help="Calls of the model, at most; what was answered before costs none.")  # fmt: skip
@click.option("--passages", "at_most", type=click.IntRange(0), default=1_000_000,
              show_default=True, help="Read of each collection, beside the gold ones.")  # fmt: skip
@ray_option
@click.option("--mlflow", "uri", metavar="URI", default=None,
              help="Tell this tracking server as well (extra `mlflow`); local: a store under "
              "--home.")  # fmt: skip
@home_option
@seed_option
@json_option
def evaluate_command(*, as_json: bool, **asked: Any) -> None:
    """Measure policies on sets of questions, each on questions it did not learn from.

    A set that is absent, or a policy that cannot take part, is told; it is never left out silently.
    Exit status 1 when a set was missing.
    """
    from steersman.cli.evidence_running import evaluated  # noqa: PLC0415 (slow)

    done = evaluated(quiet=as_json, **asked)
    if as_json:
        show(done.facts, as_json=True)
    else:
        for rows, columns in done.tables:
            show_rows(rows, columns, as_json=False, none="nothing was measured")
        for line in done.told:
            click.echo(line)
    if done.missing:
        raise click.exceptions.Exit(1)


@command.command("train")
@data_option
@click.option("--set", "name", default="hotpotqa", show_default=True, help="Folder of --data.")
@click.option("--out", type=_file, default=Path("selector.state"), show_default=True,
              help="The scorer to write.")  # fmt: skip
@click.option("--from", "source", type=click.Choice(["gold", "feedback"]), default="gold",
              show_default=True, help="Clone who knows the gold passages; or learn, without them, "
              "from whether an answer stands in what was picked.")  # fmt: skip
@click.option("--may-stop", is_flag=True, help="Let it learn when to stop.")
@click.option("--picks", type=click.IntRange(1, 8), default=5, show_default=True,
              help="Passages of a selection, at most.")  # fmt: skip
@tokens_option
@form_option
@words_option
@ray_option
@home_option
@seed_option
@json_option
def train_command(*, as_json: bool, **asked: Any) -> None:
    """Train a selector on all questions of a set (extra `evidence`).

    From feedback, short selections that explore are drawn for each question, and what made a
    difference to whether an answer was there is learned on top of a search along links.
    """
    from steersman.cli.evidence_training import trained  # noqa: PLC0415 (slow)

    show(trained(quiet=as_json, **asked), as_json=as_json)


@command.command("select")
@click.argument("question")
@data_option
@click.option("--set", "name", default="hotpotqa", show_default=True,
              help="Folder of --data whose passages are searched.")  # fmt: skip
@click.option("--selector", type=_file, default=None,
              help="Of `evidence train`; the best by rank without it.")  # fmt: skip
@click.option("--picks", type=click.IntRange(1, 8), default=None,
              help="Passages at most.  [default: as the selector was trained, or 5]")  # fmt: skip
@click.option("--may-stop/--no-stop", default=None,
              help="Let the selector stop before.  [default: if it learned to]")  # fmt: skip
@words_option
@home_option
@json_option
def select_command(*, as_json: bool, **asked: Any) -> None:
    """Pick passages for a question, step by step, with what spoke for each."""
    from steersman.cli.evidence_training import selected  # noqa: PLC0415 (slow)

    columns = ("step", "id", "title", "why", "text")
    show_rows(selected(**asked), columns, as_json=as_json, none="nothing was found")


@command.command("judge")
@data_option
@click.option("--set", "name", default="judge_human", show_default=True,
              help="Folder of --data with human verdicts: LLMBar's, PandaLM's.")  # fmt: skip
@click.option("--answers", default="local", show_default=True,
              help="Who judges: local (extra `local`), or the URL of a server of chat completions, "
              "its key in STEERSMAN_LLM_KEY.")  # fmt: skip
@click.option("--model", default="", help="Name of the server's model.")
@click.option("--pairs", type=click.IntRange(2), default=100, show_default=True,
              help="Drawn at random; each is asked in both orders.")  # fmt: skip
@click.option("--max-calls", type=click.IntRange(0), default=None,
              help="Calls of the model, at most; what was judged before costs none.")  # fmt: skip
@home_option
@seed_option
@json_option
def judge_command(*, as_json: bool, **asked: Any) -> None:
    """Hold a model that judges pairs of answers against people, and distil it if it can be.

    Told are agreement, abstentions with their reasons, and the biases of position and length beside
    people's. Exit status 1 when it could not judge a single pair.
    """
    from steersman.cli.evidence_judging import judged  # noqa: PLC0415 (slow)

    told = judged(quiet=as_json, **asked)
    show(told, as_json=as_json)
    if not told["judged"]:
        raise click.exceptions.Exit(1)
