"""``steersman data fetch|record assistant``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from steersman.cli.data import checked_output
from steersman_systems.assistant import requests

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from steersman_systems.assistant.requests import Request


def fetch(home: Path | None) -> dict[str, Any]:
    """Download the requests and return the file, and the numbers of requests and tools."""
    catalogue = requests.load_catalogue(home)
    return {
        "file": str(requests.WHEEL.path(home)),
        "requests": len(catalogue.requests),
        "tools": len(catalogue.tools),
    }


def record(home: Path | None, out: Path | None) -> tuple[Path, bytes, dict[str, Any]]:
    """Run every engine on every request; return the file, its bytes and its provenance."""
    from steersman_systems.assistant import recorded_engines as engines_said  # noqa: PLC0415 (slow)
    from steersman_systems.assistant.engines import Engines  # noqa: PLC0415

    out = checked_output(out or engines_said.ARRAYS)
    catalogue = requests.load_catalogue(home)
    recording = engines_said.record(
        catalogue, Engines(catalogue, home), clock=time.perf_counter, progress=_bar
    )
    content = recording.to_bytes()
    return out, content, engines_said.provenance(recording, content)


def _bar(rows: Iterable[Request]) -> Iterable[Request]:
    return track(rows, description="recording assistant", console=Console(stderr=True))
