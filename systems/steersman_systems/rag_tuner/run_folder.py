"""Run folder: configuration of a run, and one line per evaluation.

Each line is written and flushed to disk after its evaluation. A killed process loses only the
current evaluation. One process at a time can continue a run; others can read it.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.reward import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from steersman_systems.rag_tuner.loop import EpisodeRecord
    from steersman_systems.rag_tuner.verdict import Verdict

_FORMAT = 1
_SUMMARY = ("number", "configuration", "propensity", "reward", "quality_1", "quality_2",
            "latency_p50_ms", "latency_p95_ms", "cost", "penalty", "breaches")  # fmt: skip


class RunFolder:
    """The files of one run.

    Args:
        folder: Folder of the run; created on first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log: IO[bytes] | None = None

    # -- manifest ---------------------------------------------------------------------------

    def begin(self, manifest: Mapping[str, Any], policy: str) -> None:
        """Write the manifest of a run, or check that this run was started here.

        Raises:
            DataError: Another run was started in this folder.
        """
        if self.check(manifest, policy):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "policy.yaml").write_text(policy, encoding="utf-8")
        _write_whole(self._manifest, _text_of(manifest))

    def check(self, manifest: Mapping[str, Any], policy: str) -> bool:
        """Return whether this run was started here; write nothing.

        Raises:
            DataError: Another run was started in this folder, or it cannot be a run folder.
        """
        if not self._manifest.exists():
            if self.folder.exists() and not self.folder.is_dir():
                raise DataError(f"{self.folder} is a file; give a folder")
            return False
        begun, wanted = self.manifest(), json.loads(_text_of(manifest))
        differs = [name for name in {*begun, *wanted} if begun.get(name) != wanted.get(name)]
        file = self.folder / "policy.yaml"
        if not file.is_file():
            raise DataError(f"{file} is missing; restore it, or use another folder")
        kept = file.read_text(encoding="utf-8")
        if differs or kept != policy:
            names = ", ".join(sorted(differs)) or "policy.yaml"
            raise DataError(
                f"{self.folder} has a run that differs in {names}; use another folder, or "
                "continue with the options of that run"
            )
        return True

    def identifier(self, manifest: Mapping[str, Any], policy: str) -> str:
        """Return the identifier of a run, started or not."""
        asked = json.dumps([_text_of(manifest), policy])
        found = hashlib.sha256(asked.encode()).hexdigest()[:16]
        return f"{self.folder.name} ({found})"

    @property
    def _manifest(self) -> Path:
        return self.folder / "manifest.json"

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the run.

        Raises:
            DataError: No run was started here, or its manifest is damaged.
        """
        file = self._manifest
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            message = f"{file}: {error}; give the folder of a run of `steersman tune run`"
            raise DataError(message) from None
        if found.get("format") != _FORMAT:
            raise DataError(f"{file}: format {found.get('format')!r}, expected {_FORMAT}")
        return found

    # -- results -------------------------------------------------------------------------------

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Lock the run within the context, and continue it.

        An incomplete last line of a killed process is removed.

        Raises:
            DataError: Another process has the lock.
        """
        if self._log is not None:
            yield
            return
        with (self.folder / "episodes.jsonl").open("ab+") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"{self.folder}: another process is writing this run; wait until it is "
                raise DataError(message + "finished, or use another folder") from None
            log.seek(0)
            log.truncate(log.read().rfind(b"\n") + 1)
            self._log = log
            try:
                yield
            finally:
                self._log = None

    def append(self, one: EpisodeRecord) -> None:
        """Write one evaluation and flush it to disk.

        Raises:
            DataError: Another process has the lock.
        """
        with self.owned():
            assert self._log is not None  # noqa: S101 (it is owned)
            self._log.write((json.dumps(_line(one)) + "\n").encode())
            self._log.flush()
            os.fsync(self._log.fileno())

    def episodes(self) -> list[dict[str, Any]]:
        """Return the written evaluations; an incomplete last line is skipped.

        Raises:
            DataError: A line before the last is damaged.
        """
        file = self.folder / "episodes.jsonl"
        if not file.exists():
            return []
        content = file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        found = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                message = f"{file}:{number}: {error}; restore the file, or start another run"
                raise DataError(message) from None
        return found

    def batches(self) -> list[Batch]:
        """Return the batches of the evaluations, for replay to the strategy.

        Raises:
            DataError: A line is damaged.
        """
        try:
            return [_batch(one) for one in self.episodes()]
        except (KeyError, TypeError, ValueError) as error:
            message = f"{self.folder / 'episodes.jsonl'}: {error}; start another run"
            raise DataError(message) from None

    @property
    def judged_after(self) -> int | None:
        """Number of evaluations before the verdict; ``None``: no verdict yet.

        Raises:
            DataError: The verdict cannot be read.
        """
        if not (self.folder / "verdict.json").exists():
            return None
        return int(self.verdict()["evaluations"])

    def verdict(self) -> dict[str, Any]:
        """Return the written verdict of the held-out queries.

        Raises:
            DataError: No verdict yet, or it cannot be read.
        """
        file = self.folder / "verdict.json"
        if not file.exists():
            message = (
                f"{self.folder} has no verdict; run `steersman tune run` with the same options "
            )
            raise DataError(message + "to finish it")
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            for name in ("candidate", "baseline"):
                Configuration.of(found[name])
            int(found["evaluations"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{file}: {error!r}; start another run") from None
        else:
            return found

    def finish(self, verdict: Verdict | None, *, reused: str = "") -> None:
        """Write the summary of all evaluations, and the verdict.

        Args:
            verdict: Verdict of the held-out queries; ``None``: not evaluated.
        """
        with (self.folder / "summary.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, _SUMMARY, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(_summaries(self.episodes()))
        if verdict is not None:
            said = {**vars(verdict), "says": str(verdict), "evaluations": len(self.episodes())}
            if reused:
                said["reused"] = reused
            said["candidate"] = verdict.candidate.parts()
            said["baseline"] = verdict.baseline.parts()
            _write_whole(self.folder / "verdict.json", json.dumps(said, indent=2))


def json_value(value: Any) -> Any:
    """Return a value as after a JSON round trip.

    >>> json_value((1, 2))
    [1, 2]
    """
    return json.loads(json.dumps(value))


def _text_of(manifest: Mapping[str, Any]) -> str:
    return json.dumps({"format": _FORMAT, **manifest}, indent=2)


def _line(one: EpisodeRecord) -> dict[str, Any]:
    batch, reward = one.batch, one.reward
    return {
        "number": one.number,
        "configuration": one.configuration.parts(),
        "propensity": _known(one.propensity),
        "reward": _known(reward.value),
        "quality": [_known(value) for value in reward.quality],
        "coverage": list(reward.coverage),
        "latency_p50_ms": float(np.quantile(batch.latency_ms, 0.5)),
        "latency_p95_ms": float(np.quantile(batch.latency_ms, 0.95)),
        "cost": float(batch.cost.mean()),
        "penalty": reward.penalty,
        "breaches": list(reward.breaches),
        "measures": list(batch.measures),
        "queries": batch.queries.tolist(),
        "of_query": {
            "quality": [[_known(value) for value in row] for row in batch.quality.tolist()],
            "latency_ms": batch.latency_ms.tolist(),
            "cost": batch.cost.tolist(),
            "failed": batch.failed.tolist(),
            "violations": batch.violations.tolist(),
            **({"unstable": batch.unstable.tolist()} if batch.unstable.any() else {}),
        },
    }


def _known(value: float) -> float | None:
    """Return None for NaN, which JSON does not have."""
    return None if np.isnan(value) else value


def _batch(line: Mapping[str, Any]) -> Batch:
    told = line["of_query"]
    first, second = line["measures"]
    return Batch(
        configuration=Configuration.of(line["configuration"]),
        queries=np.array(line["queries"], np.intp),
        quality=np.array(told["quality"], float).reshape(-1, 2),
        latency_ms=np.array(told["latency_ms"], float),
        cost=np.array(told["cost"], float),
        failed=np.array(told["failed"], bool),
        violations=np.array(told["violations"], bool),
        unstable=np.array(told.get("unstable", []), bool),
        measures=(first, second),
    )


def _summaries(lines: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for line in lines:
        first, second = line["quality"]
        yield {
            **line,
            "configuration": str(Configuration.of(line["configuration"])),
            "quality_1": first,
            "quality_2": second,
            "breaches": " ".join(line["breaches"]),
        }


def _write_whole(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(file)
