"""Whether a place keeps the promise that a registry rests on: of two who swap a file, one wins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import uuid4

from steersman.errors import RegistryError

if TYPE_CHECKING:
    from steersman.registry.place import Place

_log = logging.getLogger(__name__)


def check_conditions(place: Place) -> None:
    """Write a small file twice, and refuse a place that lets the second writer win.

    Some services that speak the protocol of S3 ignore ``If-None-Match`` and ``If-Match``: there a
    publication would silently undo another.

    Args:
        place: of a registry; what is written there is removed again.

    Raises:
        RegistryError: it does not keep the promise, or does not answer.

    >>> import tempfile
    >>> from steersman.registry import DirectoryPlace
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
        except RegistryError as error:  # what was found counts more
            _log.warning("%s was written to try the registry, and stays: %s", path, error)


def _ignored(header: str) -> RegistryError:
    message = (
        f"the bucket ignores {header}: two publishers would undo each other's work unseen; nothing "
        "was made. Take a service with conditional writes, or a directory"
    )
    return RegistryError(message)
