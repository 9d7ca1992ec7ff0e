"""Rollback guard of a publisher: the newest metadata versions it has seen.

Old metadata is validly signed too. A writer of the storage could restore a retracted version, and
the next publication would make it current. So the newest versions are recorded in the key folder,
which such a writer cannot change, and they only increase.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from steersman.errors import SigningError
from steersman.registry.keys import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from steersman.registry.chain import Chain

_log = logging.getLogger(__name__)


class SeenVersions(msgspec.Struct, frozen=True):
    """Highest versions of signed metadata seen; 0: none yet.

    Attributes:
        timestamp: version of the timestamp.
        snapshot: version of the snapshot metadata.
        targets: version of the targets metadata.
        targets_sha256: hash of that targets metadata; empty: unknown.
    """

    timestamp: int = 0
    snapshot: int = 0
    targets: int = 0
    targets_sha256: str = ""

    @classmethod
    def of(cls, chain: Chain) -> SeenVersions:
        """Return the versions of verified metadata."""
        numbers = chain.timestamp.version, chain.snapshot.version, chain.targets.version
        return cls(*numbers, sha256(chain.texts[2]).hexdigest())

    def with_others(self, other: SeenVersions) -> SeenVersions:
        """Return the maximum of both, field by field."""
        above = self if self.targets >= other.targets else other
        return SeenVersions(
            max(self.timestamp, other.timestamp),
            max(self.snapshot, other.snapshot),
            above.targets,
            above.targets_sha256,
        )


class Memory:
    """Record of the newest metadata seen by the publishers of one key folder.

    Args:
        folder: key folder; without a record, as from earlier releases, it starts a new one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     memory = Memory(Path(folder))
    ...     memory.note(SeenVersions(7, 5, 4, "ab"))
    ...     memory.note(SeenVersions(6, 5, 4, "ab"))
    ...     memory.read().timestamp
    7
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "seen.json"

    def read(self) -> SeenVersions:
        """Return the record; read it before the storage, which may change meanwhile.

        Raises:
            SigningError: the file is damaged, or cannot be read.
        """
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=SeenVersions)
        except FileNotFoundError:
            return SeenVersions()
        except (OSError, msgspec.DecodeError) as error:
            message = (
                f"{self.file}, which records the newest metadata this publisher saw, cannot be "
                f"read: {error}; compare the registry with a backup, then remove the file"
            )
            raise SigningError(message) from error

    def note(self, seen: SeenVersions) -> None:
        """Record verified metadata; lower versions change nothing."""
        if self._next(seen) is None:
            return
        try:
            with self._locked():
                higher = self._next(seen)
                if higher is not None:
                    write_private(self.file, msgspec.json.encode(higher))
        except (OSError, SigningError) as error:  # a key folder may be mounted read-only
            _log.warning("a rollback of the registry cannot be detected here: %s", error)

    def refuse_older(self, known: SeenVersions, found: SeenVersions) -> None:
        """Refuse metadata older than what was seen.

        Args:
            found: versions in the storage; 0: not checked.

        Raises:
            SigningError: it is older, or differs under the same version.
        """
        for name in ("timestamp", "snapshot", "targets"):
            number, before = getattr(found, name), getattr(known, name)
            if 0 < number < before:
                raise self._refused(
                    f"{name} has version {number}, but version {before} was seen before"
                )
        same = found.targets == known.targets and found.targets_sha256 and known.targets_sha256
        if same and found.targets_sha256 != known.targets_sha256:
            raise self._refused(f"targets version {found.targets} differs from the one seen before")

    def refuse_empty(self, known: SeenVersions) -> None:
        """Refuse to create a registry if one was seen before.

        Raises:
            SigningError: a timestamp was seen before.
        """
        if known.timestamp:
            raise self._refused(
                f"timestamp not found, but version {known.timestamp} was seen before"
            )

    def _refused(self, why: str) -> SigningError:
        message = (
            f"registry rollback detected: {why} ({self.file}). Its files are older; nothing "
            "was signed. If you restored a backup, run `steersman snapshot refresh "
            "--accept-older REASON`. Otherwise restore the newest files and check write access"
        )
        return SigningError(message)

    def _next(self, seen: SeenVersions) -> SeenVersions | None:
        """Return the new record; None if nothing changes."""
        before = self.read()
        higher = seen.with_others(before)
        return higher if higher != before else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file lock, so that no process writes a lower version."""
        lock = self._folder / "seen.lock"
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
