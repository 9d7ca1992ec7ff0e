"""Signed files: read from the cache, or fetched from a verified registry."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tuf.api.exceptions import DownloadError, LengthOrHashMismatchError

from steersman.errors import MissingSnapshotError, VerificationError
from steersman.registry.chain import file_of
from steersman.registry.description import MAX_DESCRIPTION, Description

if TYPE_CHECKING:
    from tuf.api.metadata import TargetFile

    from steersman.registry.cache import Cache
    from steersman.registry.chain import Chain, Release
    from steersman.registry.fetch import Fetcher

_log = logging.getLogger(__name__)


class SignedFiles:
    """Reader of files named by verified targets.

    Args:
        fetcher: fetcher of the registry.
        cache: cache of verified files.
        timeout_s: timeout per file, in seconds.
    """

    def __init__(self, fetcher: Fetcher, cache: Cache, timeout_s: float) -> None:
        self._fetcher = fetcher
        self._cache = cache
        self._timeout_s = timeout_s

    def description(self, chain: Chain, release: Release, *, online: bool) -> Description:
        """Return the signed description of a version.

        Raises:
            MissingSnapshotError: the file is not available.
            VerificationError: verification failed, or it describes another version.
        """
        found = Description.from_json(
            self.read(release.description, MAX_DESCRIPTION, online=online)
        )
        tenant = chain.root.unrecognized_fields.get("tenant")
        said = found.tenant, found.skill, found.point, found.version, found.sha256
        named = release.skill, release.point, str(release.version)
        if said != (tenant, *named, release.state.hashes["sha256"]):
            message = (
                f"the description names {said}, but it is signed as {named} of {tenant}; retract it"
            )
            raise VerificationError(message)
        return found

    def read(self, target: TargetFile, most: int, *, online: bool) -> bytes:
        """Return a file that matches its signed hash and length.

        Args:
            most: maximum size in bytes.

        Raises:
            MissingSnapshotError: the file is not available.
            VerificationError: it is too long, or differs from the signed file.
        """
        sha256 = target.hashes["sha256"]
        if not 0 <= target.length <= most:
            message = (
                f"{target.path} has {target.length:,} bytes; the maximum is {most:,}; retract it"
            )
            raise VerificationError(message)
        cached = self._cache.file(sha256, target.length)
        if cached is not None:
            return cached
        if not online:
            message = f"{target.path} is not in the cache, and cannot be fetched offline"
            raise MissingSnapshotError(message)
        data = self._download(target)
        try:
            self._cache.put(sha256, data)
        except OSError as error:  # it verified: serve it, although the cache cannot store it
            _log.warning("%s cannot be stored in the cache: %s", target.path, error)
        return data

    def _download(self, target: TargetFile) -> bytes:
        try:
            with self._fetcher.within(self._timeout_s):
                data = self._fetcher.download_bytes(file_of(target), target.length)
            target.verify_length_and_hashes(data)
        except LengthOrHashMismatchError as error:
            message = f"{target.path} differs from the signed file: {error}; publish it again"
            raise VerificationError(message) from error
        except DownloadError as error:
            message = f"{target.path} cannot be fetched: {error}"
            raise MissingSnapshotError(message) from error
        return data
