"""Where a registry lies: what it needs of a place for files, and a directory that gives it.

A file appears whole or not at all, is flushed before anything that names it is written, and one
that others write too is replaced only if it still is what was read: compare and swap.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import uuid4

from steersman.errors import RegistryError, VerificationError
from steersman.registry.durable import flush_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILE = 272 * 1024 * 1024  # a state of 256 MiB that compression could not make smaller
_DRAFTS = ".writing"
_LEFT_OVER_S = 3600.0


class Held(NamedTuple):
    """A file as it was read.

    Attributes:
        data: file content.
        tag: of this content; `Place.replace` takes it.
    """

    data: bytes
    tag: str


class Place(Protocol):
    """What a registry needs of a place for files; paths are relative, with ``/``."""

    def read(self, path: str, *, max_bytes: int = MAX_FILE) -> Held | None:
        """Return a file, or None if there is none.

        Args:
            path: file path, relative.
            max_bytes: maximum size in bytes.

        Raises:
            VerificationError: it is longer, or the path leads out of the place.
            RegistryError: the place does not answer.
        """
        ...

    def write_new(self, path: str, data: bytes) -> str | None:
        """Write a file that is not there yet, durably; return its tag.

        Args:
            path: file path, relative.
            data: file content.

        Returns:
            The tag; None if there is a file already: nothing was written then.

        Raises:
            RegistryError: it cannot be written, for instance because the disk is full.
        """
        ...

    def replace(self, path: str, data: bytes, *, expected_tag: str | None) -> str | None:
        """Replace a file, if it still is what was read; return the new tag.

        Args:
            path: file path, relative.
            data: new file content.
            expected_tag: tag of the content to replace; None: replace or create.

        Returns:
            The tag; None if the file was changed meanwhile: nothing was written then.

        Raises:
            RegistryError: it cannot be written.
        """
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, sorted.

        Args:
            prefix: of the folder, without the last ``/``; ``""`` for all.

        Raises:
            RegistryError: the place does not answer.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file if it is there.

        Args:
            path: file path, relative.

        Raises:
            RegistryError: it cannot be removed.
        """
        ...


class DirectoryPlace:
    """A directory on one file system; it need not exist yet.

    Processes that write at the same time take turns by a lock in it.

    Args:
        root: the directory.

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

    def read(self, path: str, *, max_bytes: int = MAX_FILE) -> Held | None:
        """Return a regular file, or None if there is none.

        Args:
            path: file path, relative.
            max_bytes: maximum size in bytes.

        Raises:
            VerificationError: it is longer, no regular file, or out of the place.
            RegistryError: it cannot be read.
        """
        target = self._at(path)
        try:
            data = read_file(target, max_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _failed("read", target, error) from error
        return Held(data, _tag(data))

    def write_new(self, path: str, data: bytes) -> str | None:
        """Write a file that is not there yet, flushed to disk.

        Args:
            path: file path, relative.
            data: file content.

        Returns:
            Its tag; None if there is a file already.

        Raises:
            RegistryError: it cannot be written.
        """
        target = self._at(path)
        with self._writing(target, data) as draft, self._alone():
            if target.exists():
                return None
            _move(draft, target)
        return _tag(data)

    def replace(self, path: str, data: bytes, *, expected_tag: str | None) -> str | None:
        """Replace a file, if it still is what was read, and flush it to disk.

        Args:
            path: file path, relative.
            data: new file content.
            expected_tag: tag of the content to replace; None: replace any content.

        Returns:
            The new tag; None if it was changed meanwhile.

        Raises:
            RegistryError: it cannot be written.
        """
        target = self._at(path)
        with self._writing(target, data) as draft, self._alone():
            if expected_tag is not None:
                there = self.read(path)
                if there is None or there.tag != expected_tag:
                    return None
            _move(draft, target)
        return _tag(data)

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, sorted.

        Args:
            prefix: of the folder; ``""`` for all.

        Raises:
            RegistryError: it cannot be read.
        """
        start = self._at(prefix) if prefix else self.root
        for found in sorted(_files_below(start)):
            path = found.relative_to(self.root).as_posix()
            if found.is_file() and not path.startswith(f"{_DRAFTS}/"):
                yield path

    def remove(self, path: str) -> None:
        """Remove a file if it is there, and the folders that are empty then.

        Args:
            path: file path, relative.

        Raises:
            RegistryError: it cannot be removed.
        """
        target = self._at(path)
        with self._alone():
            try:
                target.unlink(missing_ok=True)
            except OSError as error:
                raise _failed("removed", target, error) from error
            for folder in target.parents:
                if folder == self.root:
                    break
                with suppress(OSError):  # not empty, or gone already
                    folder.rmdir()

    def _at(self, path: str) -> Path:
        parts = path.split("/")
        if not all(parts) or {".", ".."} & set(parts) or "\0" in path or "\\" in path:
            message = f"the path {path!r:.200} points outside the registry; it was not followed"
            raise VerificationError(message)
        return self.root.joinpath(*parts)

    @contextmanager
    def _alone(self) -> Iterator[None]:
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
        """Write a draft, flushed; remove it if it was not moved, and what others left."""
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
        """Remove the drafts of writers that were killed."""
        for left in folder.iterdir():
            with suppress(FileNotFoundError):
                if left.name != "lock" and time.time() - left.stat().st_mtime > _LEFT_OVER_S:
                    left.unlink()


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return a regular file, taking no more memory than it has bytes.

    Args:
        path: file path, relative.
        max_bytes: maximum size in bytes.

    Raises:
        VerificationError: it is longer, or no regular file.
        OSError: it is not there, or cannot be read.
    """
    # Not blocking: whoever put a pipe there must not make a reader wait for ever.
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
    """Return what is no folder; others may remove files and folders meanwhile."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise _failed("listed", start, error) from error

    return [
        Path(folder, name) for folder, _, names in os.walk(start, onerror=failed) for name in names
    ]


def _move(draft: Path, target: Path) -> None:
    """Move a draft to its place, flushed; alone, as others remove the folders that are empty."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft.replace(target)
    flush_folder(target.parent)


def _failed(verb: str, target: Path, error: OSError) -> RegistryError:
    message = f"{target} cannot be {verb}: {error.strerror or error}; fix this, then retry"
    return RegistryError(message)


def too_long(path: str | Path, max_bytes: int) -> VerificationError:
    """Return the error for a file that is longer than allowed.

    Args:
        path: file path, relative.
        max_bytes: maximum size in bytes.
    """
    message = f"{path} is longer than {max_bytes:,} bytes; the rest was not read; publish it again"
    return VerificationError(message)
