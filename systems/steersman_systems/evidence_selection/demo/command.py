"""Demo command ``steersman demo evidence``: top-k and a learned selector side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from steersman.cli.arguments import Folder
from steersman.cli.output import check_writable, write_text
from steersman_systems.reports.charts import need_charts


@click.command("evidence")
@click.option(
    "--data",
    envvar="STEERSMAN_DATA",
    show_envvar=True,
    type=Folder(),
    default=None,
    help="Directory of question sets.  [default: none; the tool catalogue is used]",
)
@click.option(
    "--sets", default="hotpotqa", show_default=True, help="Folders of --data, separated by commas."
)
@click.option("--questions", type=click.IntRange(20), default=None,
              help="Use only the first N questions of each set.  [default: all]")  # fmt: skip
@click.option("--show", type=click.IntRange(0, 20), default=1, show_default=True,
              help="Questions to print per kind: gained, lost, missed, found.")  # fmt: skip
@click.option("--picks", type=click.IntRange(1, 8), default=5, show_default=True,
              help="Number of passages in a selection.")  # fmt: skip
@click.option("--out", type=Folder(), default=Path("demo"),
              show_default=True, help="Directory for the report pages.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report as JSON to FILE.",
)
def evidence(*, json_file: Path | None, **asked: Any) -> None:
    """Compare a learned passage selector with the best passages by rank (evidence selection).

    Without --data, the demo uses real requests that need two or more of about 1,200 tools. It
    searches by words and downloads one wheel. With --data, it uses real questions over Wikipedia,
    embedded by MiniLM (extra `rag`).

    The learned selector imitates an expert that knows the right passages. It is measured on
    questions that it was not trained on. With --data and the extra `evidence` it uses trees,
    otherwise a linear model.
    """
    from steersman_systems.evidence_selection.demo.walkthrough import shown  # noqa: PLC0415 (slow)

    if asked["data"] is not None and not asked["sets"].replace(",", "").strip():
        raise click.BadParameter(
            "no set given; name one or more folders of --data", param_hint="--sets"
        )
    check_writable(json_file, asked["out"] / "any" / "evidence.html")
    need_charts("matplotlib")
    found = shown(**asked)
    if json_file is not None:
        write_text(json_file, json.dumps(found, indent=2) + "\n")
