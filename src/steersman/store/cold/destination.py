"""Where cold files lie: a directory, or a bucket of any S3.

A file appears whole or not at all. Whether it counts is said in table ``cold_export``, not here.
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
from steersman.registry.durable import flush_folder
from steersman.store.extras import extra

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRATCH = ".writing"


class Destination(Protocol):
    """What compaction and queries need of a place for files; paths are relative, with ``/``."""

    def scratch(self) -> Path:
        """Return a local folder for files under way; what is in it never counts."""
        ...

    def publish(self, file: Path, path: str) -> None:
        """Put a finished file from the scratch folder at ``path``, durably, whole or not at all.

        Args:
            file: from the scratch folder; it is gone afterwards.
            path: where to.

        Raises:
            FileExistsError: something is there; it is not replaced.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file if it is there.

        Args:
            path: of the file.
        """
        ...

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a folder.

        Args:
            prefix: of the folder, without the last ``/``.
        """
        ...

    def fetch(self, path: str, folder: Path) -> Path:
        """Return a local file with the content of ``path``.

        Args:
            path: of the file.
            folder: where to put it if it is not local.

        Raises:
            FileNotFoundError: there is no such file.
        """
        ...


class Directory:
    """A directory; it need not exist yet.

    Args:
        root: must be on one file system.

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
        """Return a folder below the root; made if it is not there."""
        folder = self.root / _SCRATCH
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def publish(self, file: Path, path: str) -> None:
        """Link a finished file to its place and flush both to disk.

        Args:
            file: on the same file system.
            path: where nothing is yet.

        Raises:
            FileExistsError: something is there: whoever else writes here goes first.
        """
        target = self._at(path)
        with file.open("rb") as content:
            os.fsync(content.fileno())
        _make_folders(target.parent, self.root)
        try:
            # Unlike a rename, a link never replaces what somebody else has put there meanwhile.
            os.link(file, target)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            file.rename(target)
        flush_folder(target.parent)
        file.unlink(missing_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file if it is there.

        Args:
            path: of the file.
        """
        target = self._at(path)
        target.unlink(missing_ok=True)
        if target.parent.exists():
            flush_folder(target.parent)

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, sorted.

        Args:
            prefix: of the folder.
        """
        for found in sorted(self._at(prefix).rglob("*")):
            if found.is_file():
                yield found.relative_to(self.root).as_posix()

    def fetch(self, path: str, folder: Path) -> Path:
        """Return the file itself.

        Args:
            path: of the file.
            folder: not used.

        Raises:
            FileNotFoundError: there is no such file.
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
    """A prefix of an S3 bucket.

    Args:
        url: ``s3://bucket/prefix``.
        **options: for ``obstore.store.S3Store``; what is absent is taken from the environment
            (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and the like).

    Raises:
        InputError: the URL names no bucket.
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
        """Upload a finished file; an upload that breaks off leaves nothing to be seen.

        Args:
            file: local.
            path: where no object is yet.

        Raises:
            FileExistsError: an object is there: whoever else writes here goes first.
            DataError: the bucket refuses, or does not answer.
        """
        if self._is_there(path):  # not every S3 knows puts on this condition
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with self._told(path):
            self._obstore.put(self._store, path, file)
        file.unlink()

    def remove(self, path: str) -> None:
        """Remove an object if it is there.

        Args:
            path: of the object.

        Raises:
            DataError: the bucket refuses, or does not answer.
        """
        with self._told(path):
            self._obstore.delete(self._store, path)

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all objects below a prefix.

        Args:
            prefix: without the last ``/``.

        Raises:
            DataError: the bucket refuses, or does not answer.
        """
        with self._told(prefix):
            found = [
                meta["path"] for part in self._obstore.list(self._store, prefix) for meta in part
            ]
        yield from sorted(found)

    def fetch(self, path: str, folder: Path) -> Path:
        """Download an object.

        Args:
            path: of the object.
            folder: where to put it.

        Returns:
            The file it is in.

        Raises:
            FileNotFoundError: there is no such object.
            DataError: the bucket refuses, or does not answer.
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
        """Turn what the library raises into an error that says what to check."""
        try:
            yield
        except FileNotFoundError:
            raise
        except self._obstore.exceptions.BaseError as error:
            message = f"the bucket of the cold store failed at {path}: {error!s:.300}; "
            message += "check its name, endpoint and credentials"
            raise DataError(message) from error


def open_destination(where: str | Path, **options: Any) -> Directory | Bucket:
    """Return the place that a path or URL names.

    Args:
        where: a directory, or ``s3://bucket/prefix``.
        **options: for `Bucket`.

    Returns:
        A destination; nothing is written yet.

    Raises:
        InputError: another kind of URL.
        DataError: a bucket, and obstore is not installed.

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
    """Make a folder and flush the names of all that were new."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for part in missing:
        if root in (part, *part.parents):
            flush_folder(part.parent)
