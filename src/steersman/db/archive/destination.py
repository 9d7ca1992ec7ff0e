"""Storage of cold files: a directory or an S3 bucket.

A file appears completely or not at all. Table ``cold_export`` says whether it is valid.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import extra
from steersman.platform.durable_files import flush_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRATCH = ".writing"


class Destination(Protocol):
    """File storage interface; paths are relative with ``/``."""

    def scratch(self) -> Path:
        """Return a local folder for temporary files, which are never valid."""
        ...

    def publish(self, file: Path, path: str) -> None:
        """Move a finished temporary file to ``path``, durably and atomically.

        Raises:
            FileExistsError: the path exists; it is not replaced.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        ...

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a folder."""
        ...

    def fetch(self, path: str, folder: Path) -> Path:
        """Return a local file with the content of ``path``.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        ...


class Directory:
    """Directory on a local file system; created if missing.

    Args:
        root: path on one file system.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Directory(folder)
    ...     draft = place.scratch() / "draft"
    ...     _ = draft.write_bytes(b"rows")
    ...     place.publish(draft, "decision/part-1.parquet")
    ...     list(place.paths("decision"))
    ['decision/part-1.parquet']
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().absolute()

    def scratch(self) -> Path:
        """Return a folder below the root; created if missing."""
        folder = self.root / _SCRATCH
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def publish(self, file: Path, path: str) -> None:
        """Link a finished file to its path and flush both to disk.

        Raises:
            FileExistsError: the path exists: another process writes here.
        """
        target = self._at(path)
        with file.open("rb") as content:
            os.fsync(content.fileno())
        _make_folders(target.parent, self.root)
        try:
            # Unlike a rename, a link never replaces a file of another process.
            os.link(file, target)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            file.rename(target)
        flush_folder(target.parent)
        file.unlink(missing_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        target = self._at(path)
        target.unlink(missing_ok=True)
        if target.parent.exists():
            flush_folder(target.parent)

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, sorted."""
        for found in sorted(self._at(prefix).rglob("*")):
            if found.is_file():
                yield found.relative_to(self.root).as_posix()

    def fetch(self, path: str, folder: Path) -> Path:
        """Return the file itself.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        target = self._at(path)
        if not target.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target))
        return target

    def _at(self, path: str) -> Path:
        if path.startswith("/") or ".." in path.split("/"):
            message = f"the path {path!r} is outside the cold store; table cold_export is damaged"
            raise DataError(message)
        return self.root / path


class Bucket:
    """Prefix of an S3 bucket.

    Args:
        url: ``s3://bucket/prefix``.
        **options: options of ``obstore.store.S3Store``; defaults come from the environment
            (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and others).

    Raises:
        InputError: the URL has no bucket.
        DataError: obstore is not installed.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._obstore = extra("obstore", "s3")
        try:
            self._store = extra("obstore.store", "s3").S3Store.from_url(url, **options)
        except (self._obstore.exceptions.BaseError, ValueError) as error:
            why = str(error).partition("\n")[0]
            message = f"invalid bucket {url!r}: {why}; expected s3://bucket/prefix"
            raise InputError(message) from error
        self._scratch: Path | None = None

    def scratch(self) -> Path:
        """Return a temporary folder of this process."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="steersman-cold-"))
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        return self._scratch

    def publish(self, file: Path, path: str) -> None:
        """Upload a finished file; an interrupted upload leaves nothing visible.

        Raises:
            FileExistsError: the object exists: another process writes here.
            DataError: the bucket rejects the request or is unreachable.
        """
        if self._is_there(path):  # not every S3 supports conditional puts
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with self._told(path):
            self._obstore.put(self._store, path, file)
        file.unlink()

    def remove(self, path: str) -> None:
        """Remove an object if it exists.

        Raises:
            DataError: the bucket rejects the request or is unreachable.
        """
        with self._told(path):
            self._obstore.delete(self._store, path)

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all objects below a prefix.

        Raises:
            DataError: the bucket rejects the request or is unreachable.
        """
        with self._told(prefix):
            found = [
                meta["path"] for part in self._obstore.list(self._store, prefix) for meta in part
            ]
        yield from sorted(found)

    def fetch(self, path: str, folder: Path) -> Path:
        """Download an object.

        Raises:
            FileNotFoundError: the object does not exist.
            DataError: the bucket rejects the request or is unreachable.
        """
        target = folder / path.replace("/", "~")
        with self._told(path), target.open("wb") as file:
            for piece in self._obstore.get(self._store, path).stream(min_chunk_size=1 << 20):
                file.write(piece)
        return target

    def _is_there(self, path: str) -> bool:
        try:
            with self._told(path):
                self._obstore.head(self._store, path)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Convert library errors into an error that says what to check."""
        try:
            yield
        except FileNotFoundError:
            raise
        except self._obstore.exceptions.BaseError as error:
            message = f"the bucket of the cold store failed at {path}: {error!s:.300}; "
            message += "check its name, endpoint and credentials"
            raise DataError(message) from error


def open_destination(where: str | Path, **options: Any) -> Directory | Bucket:
    """Return the storage of a path or URL.

    Args:
        where: a directory, or ``s3://bucket/prefix``.

    Raises:
        InputError: the URL has another scheme.
        DataError: the URL is a bucket and obstore is not installed.

    >>> open_destination("/srv/cold").root
    PosixPath('/srv/cold')
    """
    text = str(where)
    if text.startswith("s3://"):
        return Bucket(text, **options)
    if "://" in text:
        message = f"invalid cold store {text!r}; allowed are a directory and s3://bucket/prefix"
        raise InputError(message)
    return Directory(text)


def _make_folders(folder: Path, root: Path) -> None:
    """Create a folder and flush all new directory entries."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for part in missing:
        if root in (part, *part.parents):
            flush_folder(part.parent)
