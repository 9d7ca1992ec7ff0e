"""Names that outlast a power cut."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk: a file's own flush does not.

    Args:
        folder: which files were made in, renamed or removed.

    Raises:
        OSError: it is not there, is no folder, or its disk fails.

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
