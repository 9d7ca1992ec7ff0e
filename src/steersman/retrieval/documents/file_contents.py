"""The bytes of a file, unpacked if gzip packed it, never more of them than allowed."""

from __future__ import annotations

import gzip
import io
import stat
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GZIP = b"\x1f\x8b"


@contextmanager
def opened(source: Path | bytes, name: str, most: int) -> Iterator[IO[bytes]]:
    """Open a file or some bytes for reading what is in them.

    Args:
        source: the file or its bytes, packed by gzip or not.
        most: the most bytes that it may have as it is.

    Returns:
        A context that gives a stream of the unpacked bytes.

    Raises:
        DataError: there is no such file, it is no regular one, or too large; or, while it is read,
            what is packed is damaged or the disk fails.
    """
    try:
        with _raw(source, name, most) as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as stream:
                    yield cast("IO[bytes]", stream)
            else:
                yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name} is damaged: {error}; compress it again") from error
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror or error}") from error


def read_capped(stream: IO[bytes], name: str, most: int) -> bytes:
    """Return all that a stream gives.

    Args:
        stream: of unpacked bytes.
        most: the most bytes that are read.

    Raises:
        DataError: there are more.
    """
    data = stream.read(most + 1)
    if len(data) > most:
        raise DataError(f"{name} has more than {most:,} bytes uncompressed, the maximum; split it")
    return data


def _raw(source: Path | bytes, name: str, most: int) -> IO[bytes]:
    if isinstance(source, bytes):
        _check_size(len(source), name, most)
        return io.BytesIO(source)
    found = source.stat()
    # A pipe or a device may never end.
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{name} is not a regular file; copy its content into a regular file")
    _check_size(found.st_size, name, most)
    return source.open("rb")


def _check_size(size: int, name: str, most: int) -> None:
    if size > most:
        raise DataError(f"{name} has {size:,} bytes; the maximum is {most:,}: split it")
