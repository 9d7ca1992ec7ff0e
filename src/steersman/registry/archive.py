"""Archive of a registry: old versions, retracted versions and outdated metadata."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from steersman.errors import InputError, MissingSnapshotError, VerificationError
from steersman.registry.chain import DESCRIPTION, STATE, file_of, releases_of
from steersman.registry.description import MAX_DESCRIPTION, Description
from steersman.registry.versions import Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tuf.api.metadata import Targets

    from steersman.registry.chain import Release
    from steersman.registry.storage import Place

_NUMBERED = re.compile(r"metadata/([0-9]+)\.(targets|snapshot)\.json", re.ASCII)
_RETRACTED = "retracted.json"


class Archive:
    """The ``archive/`` folder of a tenant's registry. Nothing in it is signed."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def keep(self, release: Release, *, retracted: Mapping[str, str] | None = None) -> None:
        """Copy a version's files into the archive; `tidy` removes the originals."""
        for target in (release.state, release.description):
            path = file_of(target)
            held = self._place.read(path)
            # A missing original cannot be archived, and must not stop the current publication.
            if held is not None:
                self._place.write_new(_archived(path), held.data)
        if retracted is not None:
            folder = _folder(release.skill, release.point, str(release.version))
            note = json.dumps(retracted, sort_keys=True).encode()
            self._place.write_new(f"{folder}/{_RETRACTED}", note)

    def refuse_retracted(self, description: Description) -> None:
        """Raise if a version was retracted: it can never be published again.

        Raises:
            MissingSnapshotError: it was retracted.
        """
        folder = _folder(description.skill, description.point, description.version)
        if self._place.read(f"{folder}/{_RETRACTED}") is not None:
            name = f"{description.skill}/{description.point} {description.version}"
            message = f"{name} was retracted and cannot be published again; use the next version"
            raise MissingSnapshotError(message)

    def find(self, description: Description, data: bytes) -> Description | None:
        """Return the completed description of an archived version; None if not in the archive.

        The archive is not signed, so only data that matches the given description is accepted.

        Raises:
            MissingSnapshotError: the version was retracted.
            VerificationError: the archive holds other bytes for this version.
        """
        self.refuse_retracted(description)
        folder = _folder(description.skill, description.point, description.version)
        digest = sha256(data).hexdigest()
        found = [it.sha256 for it in self._described(folder) if _same_name(it, description)]
        if not found:
            return None
        if digest not in found:
            name = f"{description.skill}/{description.point} {description.version}"
            message = f"{name} is already published with other bytes; versions never change"
            raise VerificationError(f"{message}: use the next version")
        held = self._place.read(f"{folder}/{digest}.{STATE}")
        path = f"targets/{folder.removeprefix('archive/')}/{digest}.{STATE}"
        tag = held.tag if held is not None and held.data == data else None
        return replace(description, size=len(data), sha256=digest, url=path, etag=tag)

    def versions(self, skill: str, point: str) -> set[str]:
        """Return the versions of a decision point in the names of archived files."""
        parts = [path.split("/") for path in self._place.list(f"archive/{skill}/{point}")]
        return {it[3] for it in parts if len(it) == 5 and _is_version(it[3])}

    def tidy(self, skill: str, point: str, targets: Targets) -> None:
        """Remove the originals of archived files that have left the targets.

        Files that were never archived stay: another publisher may be about to publish them.
        """
        listed = {str(it.version) for it in releases_of(targets, skill, point)}
        originals = list(self._place.list(f"targets/{skill}/{point}"))
        gone = [path for path in originals if path.split("/")[3] not in listed]
        if gone:
            archived = set(self._place.list(f"archive/{skill}/{point}"))
            for path in gone:
                if _archived(path) in archived:
                    self._place.remove(path)

    def prune(self, targets_below: int, snapshot_below: int) -> None:
        """Remove outdated targets and snapshot metadata up to these versions; keep all roots."""
        below = {"targets": targets_below, "snapshot": snapshot_below}
        for path in list(self._place.list("metadata")):
            found = _NUMBERED.fullmatch(path)
            if found is not None and int(found[1]) <= below[found[2]]:
                self._place.remove(path)

    def _described(self, folder: str) -> Iterator[Description]:
        for path in list(self._place.list(folder)):
            digest, _, kind = path.rpartition("/")[2].partition(".")
            if kind != DESCRIPTION:
                continue
            with suppress(VerificationError):  # a foreign file without a valid description
                held = self._place.read(path, max_bytes=MAX_DESCRIPTION)
                if held is not None and sha256(held.data).hexdigest() == digest:
                    yield Description.from_json(held.data)


def _same_name(found: Description, wanted: Description) -> bool:
    ours = wanted.tenant, wanted.skill, wanted.point, wanted.version
    return (found.tenant, found.skill, found.point, found.version) == ours


def _is_version(text: str) -> bool:
    try:
        Version.of(text)
    except InputError:
        return False
    return True


def _folder(skill: str, point: str, version: str) -> str:
    return f"archive/{skill}/{point}/{version}"


def _archived(path: str) -> str:
    return f"archive/{path.removeprefix('targets/')}"
