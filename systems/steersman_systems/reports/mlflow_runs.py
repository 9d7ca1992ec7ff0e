"""Export of runs to MLflow, without duplicates and with a retention limit."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

KEEP_DAYS = 90
_TAG = "steersman.run"
_OURS = re.compile(r"[^\w. /-]")
_LONGEST = 250
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Destination:
    """Target store of runs, with its retention.

    Args:
        store: folder of the local store: an SQLite file and artifacts.
        experiment: experiment name; created if missing.
        now: current time.
        tracking_uri: address of another store; None: the local one.
        commit: git commit of the code.
        keep_days: age in days at which our runs are marked as deleted, 1 or more; None: never.

    Raises:
        InputError: `keep_days` is below 1.
    """

    store: Path
    experiment: str
    now: datetime
    tracking_uri: str | None = None
    commit: str = _UNKNOWN
    keep_days: int | None = KEEP_DAYS

    def __post_init__(self) -> None:
        if self.keep_days is not None and self.keep_days < 1:
            raise InputError(f"keep_days is {self.keep_days!r}; allowed is 1 or more, or None")


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of an export.

    Args:
        run: MLflow run id.
        experiment: experiment name.
        tracking_uri: address of the store.
        new: whether the run was written; False if it exists already.
        removed: number of expired runs.
    """

    run: str
    experiment: str
    tracking_uri: str
    new: bool
    removed: int


def export(
    to: Destination,
    key: str,
    name: str,
    write: Callable[[Any, str], None],
    tags: Mapping[str, str] | None = None,
) -> Exported:
    """Write a run unless it exists.

    MLflow's telemetry is turned off.

    Raises:
        DataError: the extra ``mlflow`` is not installed, or the store cannot be written.
    """
    client, problem = _client(to)
    try:
        place = _experiment(client, to)
        known = client.search_runs([place], f"tags.`{_TAG}` = '{key}'", max_results=1)
        if known:
            identifier = known[0].info.run_id
        else:
            said = {_TAG: key, "mlflow.source.git.commit": to.commit, **(tags or {})}
            identifier = client.create_run(place, run_name=name, tags=said).info.run_id
            write(client, identifier)
            client.log_text(identifier, f"{to.commit}\n", "commit.txt")
            client.set_terminated(identifier)
        removed = 0 if to.keep_days is None else _forget(client, place, to.keep_days, to.now)
        uri = str(client.tracking_uri)
    except problem as error:
        message = f"MLflow at {to.tracking_uri or to.store} refused: {str(error)[:300]}"
        raise DataError(f"{message}; check the address and its rights") from error
    return Exported(identifier, to.experiment, uri, new=not known, removed=removed)


def metric_name(name: str) -> str:
    """Return a valid MLflow metric name.

    >>> metric_name("recall@k, λ 0.5")
    'recall_at_k_ λ 0.5'
    """
    return _OURS.sub("_", name.replace("@", "_at_"))[:_LONGEST]


def code_commit() -> str:
    """Return the git commit of the working directory; ``unknown`` without one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607 (whichever git the person uses)
            capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return _UNKNOWN
    return done.stdout.strip() or _UNKNOWN


def _client(to: Destination) -> tuple[Any, type[Exception]]:
    # Set before the import, because the library reads them once.
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        os.environ.setdefault(name, "true")
    try:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 (an extra, and slow)
        from mlflow.tracking import MlflowClient  # noqa: PLC0415
    except ImportError as missing:
        message = f"the export needs the package {missing.name}; install it with: "
        raise DataError(message + how_to_install("mlflow")) from missing
    where = to.tracking_uri
    if where is None:
        to.store.mkdir(parents=True, exist_ok=True)
        where = f"sqlite:///{to.store.absolute() / 'mlflow.db'}"
    return MlflowClient(tracking_uri=where), MlflowException


def _experiment(client: Any, to: Destination) -> str:
    found = client.get_experiment_by_name(to.experiment)
    if found is None:
        local = (to.store.absolute() / "artifacts").as_uri()
        where = local if to.tracking_uri is None else None
        made = client.create_experiment(to.experiment, artifact_location=where)
    else:
        made = found.experiment_id
    kept = "always" if to.keep_days is None else str(to.keep_days)
    client.set_experiment_tag(made, "steersman.keep_days", kept)
    return str(made)


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
