"""One file of JSON lines for a run: what was asked, every selection, all figures; MLflow if wanted.

The first line has ``kind`` config, then come selections, and at last figures. Everything that a
figure was made of is in it: ids of what was picked in order, steps with propensities, answers.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from steersman.systems.leadr.evaluation import Evaluation, Row
    from steersman.systems.leadr.paired import Estimate


def write_log(
    file: Path,
    config: Mapping[str, Any],
    evaluations: Iterable[Evaluation],
    figures: Mapping[str, Estimate],
) -> None:
    """Write the log of a run.

    Args:
        file: to be written; its folder is made.
        config: what was asked, in JSON's types.
        evaluations: of all sets.
        figures: name -> figure.

    Raises:
        DataError: the file cannot be written.

    No doctest: it writes a file; ``tests/systems/leadr/test_report.py`` shows it.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", encoding="utf-8") as stream:
            for line in _lines(config, evaluations, figures):
                stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise DataError(f"{file} cannot be written: {error}; name another file") from error


def log_to_mlflow(
    uri: str, config: Mapping[str, Any], figures: Mapping[str, Estimate], files: Iterable[Path]
) -> None:
    """Tell MLflow of a run.

    Args:
        uri: of its tracking server or folder.
        config: its parameters.
        figures: its metrics; characters that MLflow takes in no name become ``_``.
        files: kept with it.

    Raises:
        DataError: the extra ``mlflow`` is not installed.

    No doctest: it needs an extra; ``tests/systems/leadr/test_report.py`` shows it.
    """
    try:
        import mlflow  # noqa: PLC0415 (an extra)
    except ImportError as error:
        message = "mlflow is not installed; it needs: pip install 'steersman[mlflow]'"
        raise DataError(message) from error
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("steersman-evidence")
    with mlflow.start_run():
        mlflow.log_params({name: str(value)[:500] for name, value in config.items()})
        for name, figure in figures.items():
            if math.isfinite(figure.value):
                mlflow.log_metric(_plain(name), figure.value)
        for file in files:
            mlflow.log_artifact(str(file))


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
    """JSON has no NaN: what is not there is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def _plain(name: str) -> str:
    return "".join(one if one.isalnum() or one in "_-./ " else "_" for one in name)[:250]
