"""A run folder as a run of MLflow: who keeps all experiments there finds these beside them."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError, InputError
from steersman.systems.rag_tuner.manifest import NAME, load_manifest
from steersman.systems.rag_tuner.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

EXPERIMENT = "rl_autotuner"
KEEP_DAYS = 90
_TAG = "steersman.run"
_ARTIFACTS = (
    "manifest.json", "policy.yaml", "episodes.jsonl", "summary.csv", "verdict.json",
    "predictions.jsonl", "contexts.jsonl", NAME,
)  # fmt: skip
_OURS = re.compile(r"[^\w. /-]")
_PAID = ("faithfulness", "relevancy")


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of an export.

    Args:
        run: MLflow's id of the run.
        experiment: Its name.
        tracking_uri: Where it is.
        new: Whether it was written now; the same run again is not.
        removed: Runs of ours that were older than is kept.
    """

    run: str
    experiment: str
    tracking_uri: str
    new: bool
    removed: int


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
    """Write a finished run to MLflow: parameters, metrics by evaluation, and all of its files.

    Measures are called what they are: ``faithfulness`` where a judge gave it, ``recall_at_k`` where
    judged passages did, and money is ``cost_usd`` where money was paid, else ``cost``. MLflow's
    own reports of its use are turned off.

    Args:
        folder: Of a run that was judged.
        store: Directory of the local store, an SQLite file and artifacts beside it.
        tracking_uri: Of another store; None: the local one.
        experiment: The experiment's name; made if it is not there.
        commit: Of the code that ran.
        keep_days: Runs that this wrote before then are marked as deleted, 1 or more; None: never.
        now: The day it is.

    Returns:
        The run; the same folder again is the same run, and nothing is written.

    Raises:
        DataError: The extra ``mlflow`` is not installed, the run is damaged or was not judged, or
            the store cannot be written.
        InputError: `keep_days` is below 1.

    No doctest: it needs an extra; ``tests/systems/rag_tuner/test_mlflow_export.py`` shows it.
    """
    if keep_days is not None and keep_days < 1:
        raise InputError(f"keep_days is {keep_days!r}; allowed is 1 or more, or None")
    run = RunFolder(folder)
    manifest, verdict, lines = run.manifest(), run.verdict(), run.episodes()
    client, problem = _client(tracking_uri, store)
    try:
        place = _experiment(client, experiment, None if tracking_uri else store, keep_days)
        key = _key(folder)
        known = client.search_runs([place], f"tags.`{_TAG}` = '{key}'", max_results=1)
        if known:
            identifier = known[0].info.run_id
        else:
            tags = {_TAG: key, "mlflow.source.git.commit": commit, "verdict": verdict["state"]}
            made = client.create_run(place, run_name=folder.name, tags=tags)
            identifier = made.info.run_id
            _write(client, identifier, folder, _parameters(folder, manifest, verdict), lines)
            client.log_text(identifier, f"{commit}\n", "commit.txt")
            client.set_terminated(identifier)
        removed = 0 if keep_days is None else _forget(client, place, keep_days, now)
        uri = str(client.tracking_uri)
    except problem as error:
        message = f"MLflow at {tracking_uri or store} refused: {str(error)[:300]}"
        raise DataError(f"{message}; check the address and its rights") from error
    return Exported(identifier, experiment, uri, new=not known, removed=removed)


def metrics_of(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of one evaluation, under names that MLflow takes.

    Args:
        line: Of `RunFolder.episodes`.

    Returns:
        Name to value; what is undefined is not there.

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
    return {
        _OURS.sub("_", name.replace("@", "_at_")): float(value)
        for name, value in found.items()
        if value is not None
    }


def _client(tracking_uri: str | None, store: Path) -> tuple[Any, type[Exception]]:
    # Before the import: the library reads them once.
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        os.environ.setdefault(name, "true")
    try:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 (an extra, and slow)
        from mlflow.tracking import MlflowClient  # noqa: PLC0415
    except ImportError as missing:
        message = f"the export needs the package {missing.name}; "
        raise DataError(message + "install it with: pip install 'steersman[mlflow]'") from missing
    if tracking_uri is None:
        store.mkdir(parents=True, exist_ok=True)
        tracking_uri = f"sqlite:///{store.absolute() / 'mlflow.db'}"
    return MlflowClient(tracking_uri=tracking_uri), MlflowException


def _experiment(client: Any, name: str, store: Path | None, keep_days: int | None) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        where = None if store is None else (store.absolute() / "artifacts").as_uri()
        made = client.create_experiment(name, artifact_location=where)
    else:
        made = found.experiment_id
    kept = "always" if keep_days is None else str(keep_days)
    client.set_experiment_tag(made, "steersman.keep_days", kept)
    return str(made)


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


def _forget(client: Any, place: str, keep_days: int, now: datetime) -> int:
    before_ms = int((now.timestamp() - keep_days * 86_400) * 1000)
    wanted = f"attributes.start_time < {before_ms}"
    old = [one for one in _all(client, place, wanted) if _TAG in one.data.tags]
    for one in old:
        client.delete_run(one.info.run_id)
    return len(old)


def _all(client: Any, place: str, wanted: str) -> Iterator[Any]:
    token = None
    while True:
        found = client.search_runs([place], wanted, max_results=500, page_token=token)
        yield from found
        token = found.token
        if not token:
            return


def _key(folder: Path) -> str:
    """What the run is: its manifest, policy, evaluations and verdict."""
    told = hashlib.sha256()
    for name in _ARTIFACTS[:5]:
        file = folder / name
        told.update(f"{name} ".encode())
        told.update(hashlib.sha256(file.read_bytes()).digest() if file.exists() else b"none")
    return told.hexdigest()
