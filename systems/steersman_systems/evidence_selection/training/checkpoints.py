"""Training checkpoints: an interrupted run resumes and produces identical bytes."""

from __future__ import annotations

import json
import os
import re
from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

_NAME = re.compile(r"round-(\d{6})\.safetensors")


class Checkpoints:
    """Folder with one file per finished round.

    Each file is written beside its path and then renamed, so a round is saved completely or not at
    all. A run resumes after the last saved round. Each round uses only the seed and its number, so
    the result does not depend on interruptions.

    Args:
        folder: created if missing.
        about: settings of the run; a folder of another run is rejected.
        kept: number of newest files to keep, ≥ 1.

    Raises:
        DataError: the folder belongs to a run with other settings, or is not writable.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], *, kept: int = 3) -> None:
        self.folder, self._kept = folder, max(kept, 1)
        told = json.dumps(about, sort_keys=True, default=str)
        file = folder / "run.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                _write(file, told.encode())
            before = file.read_text(encoding="utf-8")
        except OSError as wrong:
            raise DataError(
                f"cannot write checkpoints to {folder}: {wrong}; choose another folder"
            ) from wrong
        if before != told:
            raise DataError(
                f"{folder} holds checkpoints of a run with other settings: "
                f"{_differences(before, told)}; choose another folder, or delete these"
            )

    def save(self, number: int, arrays: Arrays) -> None:
        """Save a round.

        Args:
            number: round number, from 0.

        Raises:
            DataError: the file cannot be written; earlier rounds stay valid.
        """
        try:
            _write(self.folder / f"round-{number:06}.safetensors", save(dict(arrays)))
        except OSError as wrong:
            way_out = "free space there" if wrong.errno in {ENOSPC, EDQUOT} else "fix that"
            raise DataError(
                f"cannot save round {number} in {self.folder}: {wrong}; {way_out} and run this "
                "again; it resumes after the last saved round"
            ) from wrong
        for old in self.numbers()[: -self._kept]:
            file = self.folder / f"round-{old:06}.safetensors"
            try:
                file.unlink(missing_ok=True)
            except OSError as wrong:
                raise DataError(
                    f"cannot delete {file}: {wrong}; delete it and run this again; round "
                    f"{number} was saved"
                ) from wrong

    def numbers(self) -> list[int]:
        """Return the saved round numbers in rising order."""
        found = (_NAME.fullmatch(file.name) for file in self.folder.iterdir())
        return sorted(int(one[1]) for one in found if one)

    def last(self) -> tuple[int, Arrays] | None:
        """Return the last saved round; None if there is none.

        Raises:
            DataError: its file is damaged.
        """
        numbers = self.numbers()
        if not numbers:
            return None
        file = self.folder / f"round-{numbers[-1]:06}.safetensors"
        try:
            return numbers[-1], load_file(file)
        except (SafetensorError, OSError) as wrong:
            raise DataError(
                f"cannot read {file}: {wrong}; delete it to resume from the round before"
            ) from wrong


def _differences(before: str, told: str) -> str:
    try:
        old = json.loads(before)
    except json.JSONDecodeError:
        old = None
    if not isinstance(old, dict):
        return f"its run.json is {before:.60}, which is not an object"
    new = json.loads(told)
    return ", ".join(
        f"{name} was {json.dumps(old.get(name)):.80} and is {json.dumps(new.get(name)):.80}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def _write(file: Path, content: bytes) -> None:
    beside = file.with_name(file.name + ".new")
    try:
        with beside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)  # a partial file would occupy the needed space
        raise
