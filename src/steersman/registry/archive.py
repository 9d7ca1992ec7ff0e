"""What consumers no longer find: older versions, retracted ones, and metadata that is outlived."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING

from steersman.errors import MissingSnapshotError, VerificationError
from steersman.registry.chain import file_of, releases_of
from steersman.registry.description import Description

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuf.api.metadata import Targets

    from steersman.registry.chain import Release
    from steersman.registry.place import Place

_NUMBERED = re.compile(r"metadata/([0-9]+)\.(targets|snapshot)\.json", re.ASCII)
_RETRACTED = "retracted.json"


class Archive:
    """The part of a place below ``archive/``.

    Args:
        place: the tenant's own part of the registry.
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    def keep(self, release: Release, *, retracted: Mapping[str, str] | None = None) -> None:
        """Copy a version's files into the archive; `tidy` removes the originals.

        Args:
            release: is among the targets still.
            retracted: when and why, if it may never be published again.
        """
        for target in (release.state, release.description):
            path = file_of(target)
            held = self._place.read(path)
            # A lost original leaves nothing to keep, and must not stop what is published now.
            if held is not None:
                self._place.write_new(_archived(path), held.data)
        if retracted is not None:
            folder = _folder(release.skill, release.point, str(release.version))
            note = json.dumps(retracted, sort_keys=True).encode()
            self._place.write_new(f"{folder}/{_RETRACTED}", note)

    def find(self, description: Description, data: bytes) -> Description | None:
        """Return what an archived version was described as; None if it is not in the archive.

        Args:
            description: of the version.
            data: what it should hold.

        Raises:
            MissingSnapshotError: it was retracted.
            VerificationError: it holds something else.
        """
        folder = _folder(description.skill, description.point, description.version)
        paths = list(self._place.list(folder))
        name = f"{description.skill}/{description.point} {description.version}"
        if f"{folder}/{_RETRACTED}" in paths:
            message = f"{name} was retracted and is never published again; take the next version"
            raise MissingSnapshotError(message)
        described = next((path for path in paths if path.endswith(".description.json")), None)
        held = self._place.read(described) if described else None
        if held is None:
            return None
        found = Description.from_json(held.data)
        if found.sha256 != sha256(data).hexdigest():
            message = f"{name} was published with other bytes; versions never change"
            raise VerificationError(f"{message}: take the next one")
        return found

    def tidy(self, skill: str, point: str, targets: Targets) -> None:
        """Remove the originals of what is in the archive and no longer among the targets.

        Files that were never archived are left alone: somebody may be about to publish them.

        Args:
            skill: of the decision point.
            point: its name.
            targets: as they are published now.
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
        """Remove metadata that nobody reads any more; roots are kept for ever.

        Args:
            targets_below: numbers of targets metadata up to here go.
            snapshot_below: likewise of snapshot metadata.
        """
        below = {"targets": targets_below, "snapshot": snapshot_below}
        for path in list(self._place.list("metadata")):
            found = _NUMBERED.fullmatch(path)
            if found is not None and int(found[1]) <= below[found[2]]:
                self._place.remove(path)


def _folder(skill: str, point: str, version: str) -> str:
    return f"archive/{skill}/{point}/{version}"


def _archived(path: str) -> str:
    return f"archive/{path.removeprefix('targets/')}"
