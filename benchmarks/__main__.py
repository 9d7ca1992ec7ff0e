"""Run every benchmark, each in a process of its own, and rewrite ``docs/BENCHMARKS.md``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from benchmarks.report import Figure, load_figures, show_number, show_verdict

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "BENCHMARKS.md"
# What can be run as a command is a benchmark; other modules serve them.
BENCHMARKS = tuple(
    sorted(
        path.stem
        for path in HERE.glob("[!_]*.py")
        if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    )
)


@click.command(help=__doc__)
@click.option("--only", default="", help="Comma-separated names; the page keeps the others' part.")
@click.option("--data", default=None, help="Directory of the data sets (default: STEERSMAN_DATA).")
@click.option("--quick", is_flag=True, help="Short runs; the page is left as it is.")
def main(only: str, data: str | None, *, quick: bool) -> None:
    """Run the benchmarks and write the page."""
    names = [part.strip() for part in only.split(",") if part.strip()] or list(BENCHMARKS)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        message = f"unknown benchmark {', '.join(unknown)}; known are {', '.join(BENCHMARKS)}"
        raise click.UsageError(message)
    sections = _known_sections()
    failed = []
    for name in names:
        section = _run(name, data, quick=quick)
        if section is None:
            failed.append(name)
        else:
            sections[name] = section
    if not quick:
        PAGE.write_text(_page(sections), encoding="utf-8")
    if failed:
        message = f"failed: {', '.join(failed)}"
        raise click.ClickException(message)


def _run(name: str, data: str | None, *, quick: bool) -> str | None:
    """Return the page's section of one benchmark, or None when it failed."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / f"{name}.json"
        call = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(written)]
        call += ["--data", data] if data else []
        call += ["--quick"] if quick else []
        status = subprocess.run(call, check=False, cwd=HERE.parent).returncode
        if status != 0:
            return None
        machine, figures = load_figures(written)
    return _section(name, machine, figures)


def _section(name: str, machine: dict[str, object], figures: list[Figure]) -> str:
    lines = [f"## {name}", "", f"`python -m benchmarks.{name}`", ""]
    lines += ["| figure | value | interval | unit | goal | holds | peers in the same run |"]
    lines += ["|---|--:|---|---|---|---|---|"]
    lines += [_row(figure) for figure in figures]
    lines += ["", "Machine: " + ", ".join(f"{key} {value}" for key, value in machine.items()), ""]
    return "\n".join(lines)


def _row(figure: Figure) -> str:
    interval = ""
    if figure.low is not None or figure.high is not None:
        interval = f"{show_number(figure.low)} to {show_number(figure.high)}"
    cells = [
        figure.name,
        show_number(figure.value),
        interval,
        figure.unit,
        "" if figure.goal is None else str(figure.goal),
        show_verdict(holds=figure.holds),
        ", ".join(f"{peer} {show_number(value)}" for peer, value in figure.peers.items()),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _known_sections() -> dict[str, str]:
    """Return the sections of the page as it stands, by benchmark."""
    if not PAGE.is_file():
        return {}
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.splitlines()[0]: "## " + part.rstrip("\n") + "\n" for part in parts}


def _page(sections: dict[str, str]) -> str:
    head = (
        "# Benchmarks\n\n"
        "Written by `python -m benchmarks`; do not edit. Each section is one run on one machine,\n"
        "named below its table, with the peers measured in that same run. A goal that does not\n"
        "hold says NO.\n"
    )
    ordered = [sections[name] for name in BENCHMARKS if name in sections]
    return "\n".join([head, *ordered])


if __name__ == "__main__":
    main()
