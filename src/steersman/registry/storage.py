"""Registry storage: the interface, and storage in a directory.

Files appear atomically, are flushed before metadata names them, and shared files are replaced only
by compare and swap.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import stat
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import uuid4

from steersman.errors import RegistryError, VerificationError
from steersman.platform.durable_files import flush_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        except RegistryError as error:  # must not hide the result of the check
            _log.warning("the test file %s could not be removed from the registry: %s", path, error)


def _ignored(header: str) -> RegistryError:
    message = (
        f"the bucket ignores {header}: two publishers could overwrite each other; no registry "
        "was created. Use a service with conditional writes, or a directory"
    )
    return RegistryError(message)


MAX_FILE = 272 * 1024 * 1024  # an incompressible state of 256 MiB
_DRAFTS = ".writing"
_LEFT_OVER_S = 3600.0


class StoredFile(NamedTuple):
    """Content of a file and its tag.

    Attributes:
        data: file content.
        tag: tag of this content, passed to `Place.replace`.
    """

    data: bytes
    tag: str


class Place(Protocol):
    """Storage interface of a registry; paths are relative, with ``/``."""

    def read(self, path: str, *, max_bytes: int = MAX_FILE) -> StoredFile | None:
        """Return a file, or None if it does not exist.

        Args:
            max_bytes: maximum size in bytes.

        Raises:
            VerificationError: the file is longer, or the path points outside the storage.
            RegistryError: the storage does not respond.
        """
        ...

    def write_new(self, path: str, data: bytes) -> str | None:
        """Write a new file durably; return its tag.

        Returns:
            The tag; None if the file already exists: then nothing was written.

        Raises:
            RegistryError: it cannot be written, for example because the disk is full.
        """
        ...

    def replace(self, path: str, data: bytes, *, expected_tag: str | None) -> str | None:
        """Replace a file if it is unchanged (compare and swap); return the new tag.

        Args:
            expected_tag: tag of the content to replace; None: replace or create.

        Returns:
            The tag; None if the file changed meanwhile: then nothing was written.

        Raises:
            RegistryError: it cannot be written.
        """
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, sorted.

        Raises:
            RegistryError: the storage does not respond.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file if it exists.

        Raises:
            RegistryError: it cannot be removed.
        """
        ...


class DirectoryPlace:
    """Registry storage in a directory on one file system.

    Writing processes use a lock file in it.

    Args:
        root: directory; it may not exist yet.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = DirectoryPlace(folder)
    ...     tag = place.write_new("metadata/timestamp.json", b"1")
    ...     swapped = place.replace("metadata/timestamp.json", b"2", expected_tag=tag)
    ...     late = place.replace("metadata/timestamp.json", b"3", expected_tag=tag)
    ...     late, place.read("metadata/timestamp.json").data
    (None, b'2')
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().absolute()

    def read(self, path: str, *, max_bytes: int = MAX_FILE) -> StoredFile | None:
        """Return a regular file, or None if it does not exist.

        Args:
            max_bytes: maximum size in bytes.

        Raises:
            VerificationError: too long, not a regular file, or outside the directory.
            RegistryError: it cannot be read.
        """
        target = self._at(path)
        try:
            data = read_file(target, max_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _failed("read", target, error) from error
        return StoredFile(data, _tag(data))

    def write_new(self, path: str, data: bytes) -> str | None:
        """Write a new file, flushed to disk.

        Returns:
            Its tag; None if the file already exists.

        Raises:
            RegistryError: it cannot be written.
        """
        target = self._at(path)
        with self._writing(target, data) as draft, self._locked():
            if target.exists():
                return None
            _move(draft, target)
        return _tag(data)

    def replace(self, path: str, data: bytes, *, expected_tag: str | None) -> str | None:
        """Replace a file if it is unchanged, and flush it to disk.

        Args:
            expected_tag: tag of the content to replace; None: replace any content.

        Returns:
            The new tag; None if the file changed meanwhile.

        Raises:
            RegistryError: it cannot be written.
        """
        target = self._at(path)
        with self._writing(target, data) as draft, self._locked():
            if expected_tag is not None:
                there = self.read(path)
                if there is None or there.tag != expected_tag:
                    return None
            _move(draft, target)
        return _tag(data)

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, sorted.

        Raises:
            RegistryError: it cannot be read.
        """
        start = self._at(prefix) if prefix else self.root
        for found in sorted(_files_below(start)):
            path = found.relative_to(self.root).as_posix()
            if found.is_file() and not path.startswith(f"{_DRAFTS}/"):
                yield path

    def remove(self, path: str) -> None:
        """Remove a file if it exists, and the folders that become empty.

        Raises:
            RegistryError: it cannot be removed.
        """
        target = self._at(path)
        with self._locked():
            try:
                target.unlink(missing_ok=True)
            except OSError as error:
                raise _failed("removed", target, error) from error
            for folder in target.parents:
                if folder == self.root:
                    break
                with suppress(OSError):  # not empty, or already removed
                    folder.rmdir()

    def _at(self, path: str) -> Path:
        parts = path.split("/")
        if not all(parts) or {".", ".."} & set(parts) or "\0" in path or "\\" in path:
            message = f"the path {path!r:.200} points outside the registry; it was not followed"
            raise VerificationError(message)
        return self.root.joinpath(*parts)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            (self.root / _DRAFTS).mkdir(parents=True, exist_ok=True)
            lock = self.root / _DRAFTS / "lock"
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _failed("locked", self.root, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _writing(self, target: Path, data: bytes) -> Iterator[Path]:
        """Write a flushed temporary file; remove it if it was not moved."""
        draft = self.root / _DRAFTS / uuid4().hex
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            self._sweep(draft.parent)
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield draft
        except OSError as error:
            raise _failed("written", target, error) from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def _sweep(self, folder: Path) -> None:
        """Remove temporary files of killed writers."""
        for left in folder.iterdir():
            with suppress(FileNotFoundError):
                if left.name != "lock" and time.time() - left.stat().st_mtime > _LEFT_OVER_S:
                    left.unlink()


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return a regular file, using no more memory than its size.

    Raises:
        VerificationError: too long, or not a regular file.
        OSError: the file is missing or unreadable.
    """
    # Non-blocking: a pipe at this path must not block a reader for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            message = f"{path} is not a regular file; it was not read"
            raise VerificationError(message)
        data = file.read(min(found.st_size, max_bytes) + 1)
    if len(data) > max_bytes:
        raise too_long(path, max_bytes)
    return data


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _files_below(start: Path) -> list[Path]:
    """Return all files below a folder; other processes may remove files meanwhile."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise _failed("listed", start, error) from error

    return [
        Path(folder, name) for folder, _, names in os.walk(start, onerror=failed) for name in names
    ]


def _move(draft: Path, target: Path) -> None:
    """Rename a temporary file to its target, flushed, under the lock."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft.replace(target)
    flush_folder(target.parent)


def _failed(verb: str, target: Path, error: OSError) -> RegistryError:
    message = f"{target} cannot be {verb}: {error.strerror or error}; fix this, then retry"
    return RegistryError(message)


def too_long(path: str | Path, max_bytes: int) -> VerificationError:
    """Return the error for a file that is longer than ``max_bytes``."""
    message = f"{path} is longer than {max_bytes:,} bytes; the rest was not read; publish it again"
    return VerificationError(message)
