"""Run every benchmark, each in a separate process; rewrite ``docs/BENCHMARKS.md`` and its pages."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from benchmarks.pages import page_of, summary
from benchmarks.report import load_figures

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "BENCHMARKS.md"
PAGES = PAGE.parent / "benchmarks"
# A module that runs as a command is a benchmark; the others are shared parts.
BENCHMARKS = tuple(
    sorted(
        path.stem
        for path in HERE.glob("[!_]*.py")
        if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    )
)


@click.command(help=__doc__)
@click.option("--only", default="", help="Comma-separated names; keep the other pages.")
@click.option("--data", default=None, help="Directory of the data sets (default: STEERSMAN_DATA).")
@click.option("--quick", is_flag=True, help="Do short runs; write no pages.")
def main(only: str, data: str | None, *, quick: bool) -> None:
    """Run the benchmarks and write the pages."""
    names = [part.strip() for part in only.split(",") if part.strip()] or list(BENCHMARKS)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        message = f"unknown benchmark {', '.join(unknown)}; known are {', '.join(BENCHMARKS)}"
        raise click.UsageError(message)
    failed = []
    for name in names:
        page = _run(name, data, quick=quick)
        if page is None:
            failed.append(name)
        elif not quick:
            (PAGES / f"{name}.md").write_text(page, encoding="utf-8")
    if not quick:
        PAGE.write_text(summary(PAGES, BENCHMARKS), encoding="utf-8")
    if failed:
        message = f"failed: {', '.join(failed)}"
        raise click.ClickException(message)


def _run(name: str, data: str | None, *, quick: bool) -> str | None:
    """Return the page of one benchmark, or None if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / f"{name}.json"
        call = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(written)]
        call += ["--data", data] if data else []
        call += ["--quick"] if quick else []
        status = subprocess.run(call, check=False, cwd=HERE.parent).returncode
        if status != 0:
            return None
        machine, figures = load_figures(written)
    return page_of(name, machine, figures)


if __name__ == "__main__":
    main()
