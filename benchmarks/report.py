"""Command line of all benchmarks: options, printed table and JSON."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.extras import advice
from benchmarks.machine import CoreTime, describe_machine
from steersman.errors import DataError, SteersmanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Figure", "Options", "command", "load_figures", "show_number", "show_verdict"]


@dataclass(frozen=True)
class Figure:
    """Measured number, with its goal and the values of rivals in the same run.

    Args:
        name: Name, unique within a benchmark, for example ``"LinUCB decide (64, 3)"``.
        value: The measurement, in ``unit``.
        low: Lower end of its interval, or None.
        high: Upper end of its interval, or None.
        unit: Unit of value, low, high and peers; empty for pure numbers.
        goal: Goal as text, for example ``"< fastest peer"``; None for none.
        holds: Whether the goal was reached; None without a goal.
        peers: Value of each rival by name, from the same run and data.

    Example:
        >>> Figure("recall", 0.94, 0.92, 0.96, goal="> .80", holds=True, peers={"BM25": 0.81}).value
        0.94
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    unit: str = ""
    goal: str | float | None = None
    holds: bool | None = None
    peers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """Options of a benchmark.

    Args:
        data: Directory of the data sets, or None when neither ``--data`` nor ``STEERSMAN_DATA`` is
            given.
        sets: Names given with ``--sets``; empty means the benchmark's own choice.
        quick: True for a run of about a minute; its figures must not be quoted.
        page: Output file of an HTML page, beside the JSON; None for no page.
        ray: Address of a Ray cluster, for benchmarks that support it; None: this machine.
    """

    data: Path | None = None
    sets: tuple[str, ...] = ()
    quick: bool = False
    page: Path | None = None
    ray: str | None = None

    def folder(self, name: str, origin: str) -> Path:
        """Return the folder of one data set.

        Args:
            name: Folder of the set inside the data directory.
            origin: Public source of the set, for the error message.

        Returns:
            An existing directory.

        Raises:
            DataError: No data directory was named, or it does not hold this set.

        Example:
            >>> Options().folder("uci", "the UCI repository")
            Traceback (most recent call last):
            steersman.errors.DataError: data set 'uci' is needed and no data directory was named; \
give --data DIR or set STEERSMAN_DATA; the original is at the UCI repository
        """
        if self.data is None:
            message = (
                f"data set {name!r} is needed and no data directory was named; "
                f"give --data DIR or set STEERSMAN_DATA; the original is at {origin}"
            )
            raise DataError(message)
        folder = self.data / name
        if not folder.is_dir():
            message = (
                f"data set {name!r} is not in {self.data}; put it there "
                f"as a folder of that name; the original is at {origin}"
            )
            raise DataError(message)
        return folder


def command(
    name: str, run: Callable[[Options], Iterable[Figure]], *, doc: str | None = None
) -> None:
    """Parse the command line, run one benchmark, print its table and write its JSON.

    The exit status is 0 after a run, even if goals do not hold, because a slow machine is not a
    failure. It is 1 if data or a library are missing, and 2 for invalid options. Figures measured
    before an error are shown and written.

    Args:
        name: Name of the benchmark, as in ``python -m benchmarks.NAME``.
        run: Returns the figures.
        doc: Text of ``--help`` and title of the table; default: the name.

    Raises:
        SystemExit: Always, with the status above.
    """

    @click.command(name=name, help=doc)
    @click.option(
        "--json",
        "json_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the figures to FILE as JSON.",
    )
    @click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        default=lambda: os.environ.get("STEERSMAN_DATA") or None,
        help="Directory of the data sets (default: STEERSMAN_DATA).",
    )
    @click.option("--sets", default="", help="Comma-separated names of the sets to run.")
    @click.option("--quick", is_flag=True, help="Do a short run; do not quote its figures.")
    @click.option("--ray", metavar="ADDRESS", help="Run the tuning trials on this Ray cluster.")
    def main(
        json_file: Path | None, data: Path | None, sets: str, ray: str | None, *, quick: bool
    ) -> None:
        chosen = tuple(part.strip() for part in sets.split(",") if part.strip())
        page = None if json_file is None else json_file.with_suffix(".html")
        options = Options(data=data, sets=chosen, quick=quick, page=page, ray=ray)
        figures: list[Figure] = []
        stopped: str | None = None
        cores = CoreTime()
        try:
            figures.extend(run(options))  # one by one, to keep figures before an error
        except (SteersmanError, ImportError) as error:
            stopped = advice(error)
            if stopped is None and isinstance(error, ImportError):
                raise
            stopped = stopped or str(error)
            if not figures:
                raise click.ClickException(stopped) from error
        machine = {**describe_machine(), "share_of_cores": cores.share()}
        _print(name, figures, machine)
        if json_file is not None:
            _write(json_file, figures, machine)
        if stopped is not None:
            message = f"{stopped}; the {len(figures)} figures above are all that was measured"
            raise click.ClickException(message)

    main(prog_name=f"python -m benchmarks.{name}")


def show_number(value: float | None) -> str:
    """Return a number as text: four significant digits, thousands separated.

    Args:
        value: Any float; None and NaN are shown as a dash.

    Returns:
        Text without a unit.

    Example:
        >>> [show_number(value) for value in (0.81234, 12345.6, 3.0, None)]
        ['0.8123', '12,346', '3', '–']
    """
    if value is None or math.isnan(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def show_verdict(*, holds: bool | None) -> str:
    """Return whether a goal was reached, as one word.

    Args:
        holds: None without a goal.

    Returns:
        ``"yes"``, ``"NO"`` (in capitals to stand out) or an empty text.
    """
    return {True: "yes", False: "NO", None: ""}[holds]


def load_figures(file: Path) -> tuple[dict[str, Any], list[Figure]]:
    """Return the machine and the figures in a benchmark's JSON file.

    Args:
        file: File of ``--json``.

    Returns:
        The facts about the machine, and the figures in order.
    """
    document = json.loads(file.read_text(encoding="utf-8"))
    return document["machine"], [Figure(**entry) for entry in document["figures"]]


def _print(name: str, figures: list[Figure], machine: Mapping[str, object]) -> None:
    table = Table(title=f"benchmarks.{name}")
    for heading in ("figure", "value", "low", "high", "unit", "goal", "holds", "peers"):
        right = heading in {"value", "low", "high"}
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for figure in figures:
        table.add_row(
            figure.name,
            show_number(figure.value),
            show_number(figure.low),
            show_number(figure.high),
            figure.unit,
            "" if figure.goal is None else str(figure.goal),
            show_verdict(holds=figure.holds),
            ", ".join(f"{peer} {show_number(value)}" for peer, value in figure.peers.items()),
        )
    # Piped output has no width; the default of 80 columns would fold every row.
    console = Console(width=None if Console().is_terminal else 160)
    console.print(table)
    console.print(" · ".join(f"{key} {value}" for key, value in machine.items()), markup=False)


def _write(file: Path, figures: list[Figure], machine: Mapping[str, object]) -> None:
    document = {"machine": machine, "figures": [_plain(figure) for figure in figures]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _plain(figure: Figure) -> dict[str, Any]:
    return {key: _json_value(value) for key, value in asdict(figure).items()}


def _json_value(value: object) -> object:
    # JSON supports neither numpy scalars nor NaN.
    if isinstance(value, dict):
        return {key: _json_value(entry) for key, entry in value.items()}
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
