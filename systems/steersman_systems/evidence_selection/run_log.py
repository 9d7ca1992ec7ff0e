"""Run log in JSON lines, and MLflow export.

The first line has ``kind`` config; then selections, and the figures at the end. A selection has the
ids of its picked passages in order, its steps with propensities, and its answer.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman_systems.reports.mlflow_runs import export, metric_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from steersman_systems.evidence_selection.evaluation import Evaluation, Row
    from steersman_systems.evidence_selection.paired import Estimate
    from steersman_systems.reports.mlflow_runs import Destination, Exported

EXPERIMENT = "steersman-evidence"
_BATCH, _LONGEST = 1_000, 500


def write_log(
    file: Path,
    config: Mapping[str, Any],
    evaluations: Iterable[Evaluation],
    figures: Mapping[str, Estimate],
) -> None:
    """Write the log of a run.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", encoding="utf-8") as stream:
            for line in _lines(config, evaluations, figures):
                stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise DataError(f"{file} cannot be written: {error}; use another file") from error


def export_evaluation(
    to: Destination,
    config: Mapping[str, Any],
    figures: Mapping[str, Estimate],
    files: Sequence[Path],
) -> Exported:
    """Export an evaluation to MLflow: configuration, figures with intervals, files.

    Raises:
        DataError: the extra ``mlflow`` is not installed, or the store cannot be written.
    """
    found = dict(_metrics(figures))
    # Latency differs in every run.
    lasting = {name: value for name, value in found.items() if "latency" not in name}
    told = json.dumps([dict(config), lasting], sort_keys=True, default=str)
    key = hashlib.sha256(told.encode()).hexdigest()

    def write(client: Any, run: str) -> None:
        from mlflow.entities import Metric, Param  # noqa: PLC0415 (an extra, and slow)

        when = int(to.now.timestamp() * 1000)
        metrics = [Metric(name, value, when, 0) for name, value in found.items()]
        client.log_batch(run, params=[Param(name, str(value)[:_LONGEST])
                                      for name, value in config.items()])  # fmt: skip
        for start in range(0, len(metrics), _BATCH):
            client.log_batch(run, metrics=metrics[start : start + _BATCH])
        for file in files:
            client.log_artifact(run, str(file))

    return export(to, key, f"{config.get('sets', 'evidence')} {to.now:%Y-%m-%d %H:%M}", write)


def _metrics(figures: Mapping[str, Estimate]) -> Iterator[tuple[str, float]]:
    for name, one in figures.items():
        for part, value in (("", one.value), ("/low", one.low), ("/high", one.high)):
            if math.isfinite(value):
                yield metric_name(name + part), value


def _lines(
    config: Mapping[str, Any], evaluations: Iterable[Evaluation], figures: Mapping[str, Estimate]
) -> Iterator[dict[str, Any]]:
    yield {"kind": "config", **config}
    for evaluation in evaluations:
        for rows in evaluation.rows.values():
            for row in rows:
                yield {"kind": "selection", "set": evaluation.name, **_selection(row)}
        for policy, why in evaluation.absent.items():
            yield {"kind": "absent", "set": evaluation.name, "policy": policy, "why": why}
    for name, figure in figures.items():
        yield {"kind": "figure", "name": name, **_finite(asdict(figure))}


def _selection(row: Row) -> dict[str, Any]:
    selection = row.selection
    steps = [
        {"eligible": list(step.eligible), "action": step.action, "p": step.p}
        for step in selection.steps
    ]
    told: dict[str, Any] = {
        "policy": row.policy, "question": row.question, "fold": row.fold,
        "picked": list(selection.picked), "stopped": selection.stopped,
        "propensity": selection.propensity, "steps": steps,
        "why": [dict(one) for one in selection.why], "measures": _finite(row.values),
    }  # fmt: skip
    if row.answered is not None:
        told |= {"answer": row.answered.text, "unanswered": row.answered.failed}
    return told


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return null for NaN, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
