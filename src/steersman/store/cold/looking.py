"""Looking at files before rows are dropped that only they would have: are they there, and whole?"""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from steersman.errors import DataError
from steersman.store.cold.files import digest_of

if TYPE_CHECKING:
    from steersman.store.cold.destination import Destination
    from steersman.store.cold.ledger import Export


class Looked:
    """Files of the cold store that were looked at, each once.

    To read a file takes as long as it is large, so it is not done while a table is locked: what
    is asked about and was not looked at is noted, and whoever asked asks again after `look`.

    Args:
        destination: where they lie; None: what the ledger says is believed.
    """

    def __init__(self, destination: Destination | None) -> None:
        self._destination = destination
        self._found: dict[str, str] = {}
        self._wanted: dict[str, Export] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether somebody asked about a file that was not looked at."""
        return bool(self._wanted)

    def problem(self, export: Export) -> str:
        """Return why a file is not to be relied on; nothing: it is, or `is_wanted` now.

        Args:
            export: the file that counts.
        """
        if self._destination is None:
            return ""
        if export.path not in self._found:
            self._wanted[export.path] = export
        return self._found.get(export.path, "")

    async def look(self) -> None:
        """Look at all files that were asked about."""
        for path, export in self._wanted.items():
            self._found[path] = await asyncio.to_thread(self._look, export)
        self._wanted = {}

    def _look(self, export: Export) -> str:
        assert self._destination is not None  # noqa: S101 (asked about only then)
        scratch = self._destination.scratch() / "looked-at"
        scratch.mkdir(mode=0o700, exist_ok=True)
        try:
            digest = digest_of(self._destination.fetch(export.path, scratch))
        except FileNotFoundError:
            return f"{export.path} is missing from the cold store; compact again, or restore it"
        except (DataError, OSError) as error:
            return f"cannot read {export.path}: {error}"
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if digest != export.sha256:
            return f"{export.path} is damaged; remove it and compact again, or restore it"
        return ""
