"""Checks of cold files before their rows are dropped from PostgreSQL."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from steersman.db.archive.parquet_files import digest_of
from steersman.errors import DataError

if TYPE_CHECKING:
    from steersman.db.archive.destination import Destination
    from steersman.db.archive.ledger import Export


class Looked:
    """Cold files that were checked, each once.

    Reading a file takes long, so it must not happen while a table is locked. A question about an
    unchecked file is noted; the caller runs `look` and asks again.

    Args:
        destination: file storage; None: trust the ledger.
    """

    def __init__(self, destination: Destination | None) -> None:
        self._destination = destination
        self._found: dict[str, str] = {}
        self._wanted: dict[str, Export] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether an unchecked file was asked for."""
        return bool(self._wanted)

    def problem(self, export: Export) -> str:
        """Return what is wrong with a file; empty if it is intact or if `is_wanted` is set now."""
        if self._destination is None:
            return ""
        if export.path not in self._found:
            self._wanted[export.path] = export
        return self._found.get(export.path, "")

    async def look(self) -> None:
        """Check all files that were asked for."""
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
