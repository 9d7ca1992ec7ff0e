"""Export of a run folder as an MLflow run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from steersman_systems.rag_tuner.manifest import NAME, load_manifest
from steersman_systems.rag_tuner.run_folder import RunFolder
from steersman_systems.reports.mlflow_runs import (
    KEEP_DAYS,
    Destination,
    Exported,
    export,
    metric_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

EXPERIMENT = "rl_autotuner"
_ARTIFACTS = (
    "manifest.json", "policy.yaml", "episodes.jsonl", "summary.csv", "verdict.json",
    "predictions.jsonl", "contexts.jsonl", NAME,
)  # fmt: skip
_PAID = ("faithfulness", "relevancy")


def export_run(
    folder: Path,
    *,
    store: Path,
    tracking_uri: str | None = None,
    experiment: str = EXPERIMENT,
    commit: str,
    keep_days: int | None = KEEP_DAYS,
    now: datetime,
) -> Exported:
    """Write a finished run to MLflow: parameters, metrics by evaluation, and all files.

    The metric of the first measure is ``faithfulness`` from a judge, and ``recall_at_k`` from
    judged passages. The cost is ``cost_usd`` if money was paid, else ``cost``. MLflow's telemetry
    is turned off.

    Args:
        tracking_uri: URI of another store; None: the local one.
        keep_days: Age in days after which exported runs are marked as deleted, 1 or more; None:
            never.

    Raises:
        DataError: The extra ``mlflow`` is not installed, the run is damaged or has no verdict, or
            the store cannot be written.
        InputError: `keep_days` is below 1.
    """
    to = Destination(store, experiment, now, tracking_uri, commit, keep_days)
    run = RunFolder(folder)
    manifest, verdict, lines = run.manifest(), run.verdict(), run.episodes()
    parameters = _parameters(folder, manifest, verdict)

    def write(client: Any, identifier: str) -> None:
        _write(client, identifier, folder, parameters, lines)

    return export(to, _key(folder), folder.name, write, {"verdict": verdict["state"]})


def metrics_of(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of one evaluation, with valid names for MLflow.

    >>> line = {
    ...     "measures": ["recall@k", "ndcg"],
    ...     "quality": [0.5, None],
    ...     "reward": 0.4,
    ...     "latency_p95_ms": 7.0,
    ...     "cost": 0.6,
    ... }
    >>> metrics_of(line)
    {'recall_at_k': 0.5, 'reward': 0.4, 'p95_latency': 7.0, 'cost': 0.6}
    """
    quality = zip(line["measures"], line["quality"], strict=True)
    paid = tuple(line["measures"]) == _PAID
    found = {
        **dict(quality),
        "reward": line["reward"],
        "p95_latency": line["latency_p95_ms"],
        "cost_usd" if paid else "cost": line["cost"],
    }
    return {metric_name(name): float(value) for name, value in found.items() if value is not None}


def _parameters(
    folder: Path, manifest: Mapping[str, Any], verdict: Mapping[str, Any]
) -> dict[str, str]:
    parts = verdict["candidate"]
    file = folder / NAME
    if file.exists():
        data = load_manifest(file).id
    else:
        recorded = manifest.get("recorded", {}).get("sha256", "")
        data = f"{manifest.get('collection', 'unknown')}@{recorded[:12]}"
    return {
        **{name: str(parts[name]) for name in ("variant", "k", "rerank", "fusion_weight")},
        "prompt_id": str(parts["prompt"]),
        "expansion": str(parts["expansion"]),
        "dataset_id": data,
        "seed": str(manifest.get("seed", "")),
        "strategy": str(manifest.get("strategy", "")),
    }


def _write(
    client: Any,
    run: str,
    folder: Path,
    parameters: Mapping[str, str],
    lines: list[dict[str, Any]],
) -> None:
    for name, text in parameters.items():
        client.log_param(run, name, text)
    for line in lines:
        for name, value in metrics_of(line).items():
            client.log_metric(run, name, value, step=int(line["number"]))
    for name in _ARTIFACTS:
        if (folder / name).exists():
            client.log_artifact(run, str(folder / name))


def _key(folder: Path) -> str:
    """Return the hash of the run's manifest, policy, evaluations and verdict."""
    told = hashlib.sha256()
    for name in _ARTIFACTS[:5]:
        file = folder / name
        told.update(f"{name} ".encode())
        told.update(hashlib.sha256(file.read_bytes()).digest() if file.exists() else b"none")
    return told.hexdigest()
