"""What `steersman tune report` and `steersman tune export` do with the folder of a run."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.cli.tune_running import split_of
from steersman.errors import DataError
from steersman.retrieval import state_directory
from steersman.systems.mlflow_runs import code_commit
from steersman.systems.rag_tuner import (
    Configuration,
    RunFolder,
    export_run,
    load_policy_config,
)
from steersman.systems.rag_tuner.page import facts, write_page
from steersman.systems.rag_tuner.pictures import (
    episodes,
    frontier,
    latencies,
    shares,
    write_png,
)
from steersman.systems.rag_tuner.report import compile_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from steersman.systems.rag_tuner import Recorded


def reported(folder: Path, recorded: Recorded, out: Path) -> Mapping[str, Any]:
    """Draw the report of a run, and return what it says.

    Args:
        folder: Of the run.
        recorded: What it was tuned on.
        out: Of the page and its pictures.

    Raises:
        DataError: The run is damaged, was not judged, or was of another recording.
    """
    run = RunFolder(folder)
    manifest, said, lines = run.manifest(), run.verdict(), run.episodes()
    of = manifest.get("recorded", {}).get("sha256")
    if of != recorded.sha256 or not {"seed", "held_out"} <= manifest.keys():
        raise DataError(
            f"{folder} was not tuned on this recording of {recorded.collection} (SHA-256 "
            f"{recorded.sha256[:12]}…, the run names {str(of)[:12]}…); name the one it was"
        )
    tuned = load_policy_config(folder / "policy.yaml")
    split = split_of(recorded, manifest["seed"], manifest["held_out"], manifest.get("holdout"))
    candidate, baseline = (Configuration.of(said[name]) for name in ("candidate", "baseline"))
    report = compile_report(
        recorded, tuned, held_out=split.held_out, candidate=candidate, baseline=baseline,
        lines=lines,
    )  # fmt: skip
    write_page(out / "report.html", report)
    pictures = {
        "frontier": frontier(report.places, report.marked, "Quality, cost and latency"),
        "episodes": episodes(lines),
        "shares": shares(lines),
        "latencies": latencies(lines, report.gate_ms),
    }
    for name, figure in pictures.items():
        write_png(figure, out / f"{name}.png")
    told = facts(report)
    kept = ("verdict", "says", "candidate", "baseline")
    return {"page": str(out / "report.html"), **{name: told[name] for name in kept}}


def exported(
    folder: Path,
    home: Path | None,
    *,
    tracking_uri: str | None,
    experiment: str,
    commit: str | None,
    keep_days: int,
) -> Mapping[str, Any]:
    """Write a run to MLflow, and return where it is.

    Args:
        folder: Of the run.
        home: Directory of all state.
        tracking_uri: Of another store than the local one.
        experiment: Its name there.
        commit: Of the code that ran; None: git's of the working directory.
        keep_days: How long ours are kept; 0: always.

    Raises:
        DataError: As `export_run`.
    """
    return asdict(
        export_run(
            folder,
            store=state_directory(home) / "mlflow",
            tracking_uri=tracking_uri,
            experiment=experiment,
            commit=commit or code_commit(),
            keep_days=keep_days or None,
            now=datetime.now(UTC),
        )
    )
