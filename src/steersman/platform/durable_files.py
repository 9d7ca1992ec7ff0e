"""Durable file names: flush of directory entries to disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk; flushing a file does not flush its name.

    Raises:
        OSError: the folder is missing or not a folder, or the disk fails.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     flush_folder(Path(folder))
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
