"""Upload of version files: written before metadata names them, never changed later.

File names contain their hash, so a publisher that was killed writes the same bytes to the same
places when it publishes again.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from tuf.api.metadata import TargetFile

from steersman.errors import VerificationError
from steersman.registry.chain import DESCRIPTION, STATE, file_of, releases_of
from steersman.registry.description import MAX_DESCRIPTION, Description
from steersman.registry.versions import Version

if TYPE_CHECKING:
    from tuf.api.metadata import Targets

    from steersman.registry.archive import Archive
    from steersman.registry.chain import Release
    from steersman.registry.storage import Place


class Uploads:
    """Writer of version files.

    Args:
        place: storage of the tenant's registry.
        archive: archive of the registry.
    """

    def __init__(self, place: Place, archive: Archive) -> None:
        self._place = place
        self._archive = archive

    def published(
        self, targets: Targets, data: bytes, description: Description
    ) -> Description | None:
        """Return the description signed earlier for this version, if complete or archived.

        Raises:
            VerificationError: it was published with other bytes.
            MissingSnapshotError: it was retracted.
        """
        wanted = Version.of(description.version)
        for it in releases_of(targets, description.skill, description.point):
            if it.version == wanted:
                if it.state.hashes["sha256"] != sha256(data).hexdigest():
                    raise other_bytes(description)
                return self._whole(it)
        return self._archive.find(description, data)

    def upload(self, data: bytes, description: Description) -> tuple[Description, list[TargetFile]]:
        """Write both files of a version; return its final description and both targets.

        Raises:
            VerificationError: the description is too long.
            RegistryError: writing failed.
        """
        folder = f"{description.skill}/{description.point}/{description.version}"
        state = TargetFile.from_data(f"{folder}/{STATE}", data, ["sha256"])
        tag = self._put(file_of(state), data)
        described = replace(
            description,
            size=len(data),
            sha256=state.hashes["sha256"],
            url=file_of(state),
            etag=tag,
        )
        text = msgspec.json.encode(described.to_json(), order="sorted")
        if len(text) > MAX_DESCRIPTION:
            message = f"the description has {len(text):,} bytes; the maximum is {MAX_DESCRIPTION:,}"
            raise VerificationError(f"{message}; shorten its evidence")
        target = TargetFile.from_data(f"{folder}/{DESCRIPTION}", text, ["sha256"])
        self._put(file_of(target), text)
        return described, [state, target]

    def _whole(self, release: Release) -> Description | None:
        """Return the description of a version if both files match their signatures."""
        state = self._place.read(file_of(release.state))
        text = self._place.read(file_of(release.description))
        for held, target in ((state, release.state), (text, release.description)):
            if held is None or sha256(held.data).hexdigest() != target.hashes["sha256"]:
                return None
        return Description.from_json(text.data) if text else None

    def _put(self, path: str, data: bytes) -> str:
        """Write a file named by its hash; replace a damaged file."""
        tag = self._place.write_new(path, data)
        if tag is None:
            held = self._place.read(path)
            if held is not None and held.data == data:
                return held.tag
            tag = self._place.replace(path, data, expected_tag=None)
        return str(tag)


def other_bytes(description: Description) -> VerificationError:
    """Return the error for a version that is already published with other bytes."""
    name = f"{description.skill}/{description.point} {description.version}"
    message = f"{name} is already published with other bytes; versions never change: use the next"
    return VerificationError(message)
