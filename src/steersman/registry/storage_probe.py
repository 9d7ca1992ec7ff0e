"""Check of conditional writes: when two writers replace a file, only one may succeed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import uuid4

from steersman.errors import RegistryError

if TYPE_CHECKING:
    from steersman.registry.storage import Place

_log = logging.getLogger(__name__)


def check_conditions(place: Place) -> None:
    """Write a test file twice, and refuse storage that lets the second writer win.

    Some S3-compatible services ignore ``If-None-Match`` and ``If-Match``. There, one publication
    could silently overwrite another. The test file is removed again.

    Raises:
        RegistryError: conditional writes do not work, or the storage does not respond.

    >>> import tempfile
    >>> from steersman.registry.storage import DirectoryPlace
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_conditions(DirectoryPlace(folder))
    """
    path = f"probe/{uuid4().hex}"
    try:
        first = place.write_new(path, b"first")
        if place.write_new(path, b"second") is not None:
            raise _ignored("If-None-Match")
        place.replace(path, b"third", expected_tag=first)
        if place.replace(path, b"fourth", expected_tag=first) is not None:
            raise _ignored("If-Match")
    finally:
        try:
            place.remove(path)
        except RegistryError as error:  # the result of the check matters more than this error
            _log.warning("the test file %s could not be removed from the registry: %s", path, error)


def _ignored(header: str) -> RegistryError:
    message = (
        f"the bucket ignores {header}: two publishers could overwrite each other; no registry "
        "was created. Use a service with conditional writes, or a directory"
    )
    return RegistryError(message)
