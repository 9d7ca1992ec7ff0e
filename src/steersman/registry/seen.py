"""How far a publisher has seen its registry, so that it signs nothing on top of older metadata.

Old metadata is signed as well as new: whoever can write to the place could bring back what was
retracted, and the next publication would make it the newest for everybody. What was seen stays in
the key folder, which they cannot write, and only ever moves up.
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


class Seen(msgspec.Struct, frozen=True):
    """The highest numbers of signed metadata that were seen; 0: none yet.

    Attributes:
        timestamp: of the timestamp.
        snapshot: of the snapshot metadata.
        targets: of the targets metadata.
        targets_sha256: hash of that targets metadata; empty: not known.
    """

    timestamp: int = 0
    snapshot: int = 0
    targets: int = 0
    targets_sha256: str = ""

    @classmethod
    def of(cls, chain: Chain) -> Seen:
        """Return the numbers of metadata that verified.

        Args:
            chain: all of it.
        """
        numbers = chain.timestamp.version, chain.snapshot.version, chain.targets.version
        return cls(*numbers, sha256(chain.texts[2]).hexdigest())

    def with_others(self, other: Seen) -> Seen:
        """Return the higher of both, number by number.

        Args:
            other: seen before, or by another process.
        """
        above = self if self.targets >= other.targets else other
        return Seen(
            max(self.timestamp, other.timestamp),
            max(self.snapshot, other.snapshot),
            above.targets,
            above.targets_sha256,
        )


class Memory:
    """What the publishers of one key folder have seen of their registry.

    Args:
        folder: of the keys; one that an earlier release made holds no memory, and begins one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     memory = Memory(Path(folder))
    ...     memory.note(Seen(7, 5, 4, "ab"))
    ...     memory.note(Seen(6, 5, 4, "ab"))
    ...     memory.read().timestamp
    7
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "seen.json"

    def read(self) -> Seen:
        """Return what was seen. Read it before the place: whoever publishes may go on meanwhile.

        Raises:
            SigningError: the file is damaged, or cannot be read.
        """
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=Seen)
        except FileNotFoundError:
            return Seen()
        except (OSError, msgspec.DecodeError) as error:
            message = (
                f"{self.file}, which records the newest metadata this publisher saw, cannot be "
                f"read: {error}; compare the registry with a backup, then remove the file"
            )
            raise SigningError(message) from error

    def note(self, seen: Seen) -> None:
        """Remember what verified; what is lower than before changes nothing.

        Args:
            seen: the numbers.
        """
        if self._next(seen) is None:
            return
        try:
            with self._alone():
                higher = self._next(seen)
                if higher is not None:
                    write_private(self.file, msgspec.json.encode(higher))
        except (OSError, SigningError) as error:  # a key folder may be mounted for reading alone
            _log.warning("a rollback of the registry cannot be detected here: %s", error)

    def refuse_older(self, known: Seen, found: Seen) -> None:
        """Refuse metadata that is older than what was seen.

        Args:
            known: what `read` returned before the place was read.
            found: what the place has; numbers of 0 were not looked at.

        Raises:
            SigningError: it is older, or another under the same number.
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

    def refuse_empty(self, known: Seen) -> None:
        """Refuse to begin a registry where one was seen.

        Args:
            known: what `read` returned before the place was read.

        Raises:
            SigningError: there was a timestamp before.
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

    def _next(self, seen: Seen) -> Seen | None:
        """Return what is to be remembered then; None if that is known."""
        before = self.read()
        higher = seen.with_others(before)
        return higher if higher != before else None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Take turns with other processes, so that none puts a lower number back."""
        lock = self._folder / "seen.lock"
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
