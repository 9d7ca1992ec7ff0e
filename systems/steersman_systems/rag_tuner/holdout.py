"""One-time holdout set; a second use fails and names the run that used it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from steersman.errors import DataError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Use:
    """Record of the use of a holdout.

    Args:
        data: Identifier of the data set, such as `Manifest.sha256`.
        split: Name of the held-out split.
        by: Evaluated configuration or run.
        at: Time, as ISO 8601.
    """

    data: str
    split: str
    by: str
    at: str


class Holdout:
    """Record of the use of one-time holdout sets.

    The record is a file, so it survives a killed process: call `use` before the questions are
    asked. Deleting the file disables the check.

    Args:
        folder: Folder of the records, one per data set and split; created on first use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def use(self, data: str, split: str, by: str, *, at: datetime) -> Use:
        """Record the use of a holdout; an interrupted user may use it again.

        Raises:
            DataError: Another run used it before, or the record is damaged.
        """
        file = self._file(data, split)
        wanted = Use(data, split, by, at.isoformat(timespec="seconds"))
        self._folder.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.{os.getpid()}")
        part.write_text(json.dumps(asdict(wanted)) + "\n", encoding="utf-8")
        try:
            os.link(part, file)  # unlike a rename, fails if the file exists
        except FileExistsError:
            pass
        finally:
            part.unlink()
        self.check(data, split, by)
        first = self.used(data, split)
        if first is None:
            raise DataError(f"{file}: the record was removed during this run; restore it")
        return first

    def check(self, data: str, split: str, by: str) -> None:
        """Refuse a holdout that another run used; write nothing.

        Raises:
            DataError: Another run used it before, or the record is damaged.
        """
        first = self.used(data, split)
        if first is not None and first.by != by:
            raise DataError(
                f"{self._file(data, split)}: the split {split!r} judged {first.by} on {first.at}, "
                "and a holdout can be used once; collect new questions, or use another split"
            )

    def used(self, data: str, split: str) -> Use | None:
        """Return the use of a holdout, if there was one.

        Raises:
            DataError: The record is damaged.
        """
        file = self._file(data, split)
        if not file.exists():
            return None
        try:
            return Use(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            message = f"{file}: {error}; it records the use of the holdout; restore it"
            raise DataError(message) from None

    def _file(self, data: str, split: str) -> Path:
        named = "".join(one if one.isalnum() or one in "-_" else "_" for one in f"{data}-{split}")
        plain = self._folder / f"{named[:150]}.json"
        if (named == f"{data}-{split}" and len(named) <= 150) or _tells(plain, data, split):
            return plain
        # Replaced or cut names may collide.
        told = sha256(f"{data}\0{split}".encode()).hexdigest()[:16]
        return self._folder / f"{named[:130]}-{told}.json"


def _tells(file: Path, data: str, split: str) -> bool:
    """Return whether an old record is of this holdout; old names could collide."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        return bool((said["data"], said["split"]) == (data, split))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, TypeError, KeyError):
        return True  # damaged; the reader reports it
