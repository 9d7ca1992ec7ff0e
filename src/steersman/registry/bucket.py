"""A registry in a prefix of a bucket, in any S3 that knows conditional writes."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from steersman.errors import DataError, InputError, RegistryError, VerificationError
from steersman.errors.installing import how_to_install
from steersman.registry.place import MAX_FILE, DirectoryPlace, Held, too_long

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class BucketPlace:
    """A prefix of an S3 bucket that supports conditional writes.

    Args:
        url: ``s3://bucket/prefix``.
        **options: for ``obstore.store.S3Store``; what is absent is taken from the environment
            (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and the like).

    Raises:
        DataError: obstore is not installed.
        InputError: the URL names no bucket, or holds credentials.
    """

    def __init__(self, url: str, **options: Any) -> None:
        parts = urlsplit(url)
        if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
            message = (
                f"{without_secrets(url)} names no bucket; allowed is s3://bucket/prefix, with "
                "credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            )
            raise InputError(message)
        try:
            self._obstore: Any = import_module("obstore")
            store = import_module("obstore.store")
        except ImportError as error:
            message = "a registry in a bucket needs obstore; install it with: "
            raise DataError(message + how_to_install("s3")) from error
        self._errors = self._obstore.exceptions
        try:
            self._store = store.S3Store.from_url(url, **options)
        except self._errors.BaseError as error:
            message = f"the bucket {without_secrets(url)} cannot be opened: {error!s:.300}"
            raise InputError(f"{message}; check its name and the AWS_ variables") from error

    def read(self, path: str, *, max_bytes: int = MAX_FILE) -> Held | None:
        """Return an object, or None if there is none.

        Args:
            path: of the object.
            max_bytes: the longest that is read.

        Raises:
            VerificationError: it is longer.
            RegistryError: the bucket refuses, or does not answer.
        """
        try:
            with self._told(path):
                found = self._obstore.get(self._store, path)
                data = bytearray()
                for piece in found.stream(min_chunk_size=1 << 20):
                    data += piece
                    if len(data) > max_bytes:
                        raise too_long(path, max_bytes)
        except FileNotFoundError:
            return None
        return Held(bytes(data), str(found.meta["e_tag"]))

    def write_new(self, path: str, data: bytes) -> str | None:
        """Put an object that is not there yet.

        Args:
            path: of the object.
            data: its content.

        Returns:
            Its tag; None if there is an object already.

        Raises:
            RegistryError: the bucket refuses, or does not answer.
        """
        return self._put(path, data, "create")

    def replace(self, path: str, data: bytes, *, expected_tag: str | None) -> str | None:
        """Put an object, if it still is what was read.

        Args:
            path: of the object.
            data: its new content.
            expected_tag: of the content that is replaced; None: whatever is there.

        Returns:
            The new tag; None if it was changed meanwhile.

        Raises:
            RegistryError: the bucket refuses, or does not answer.
        """
        return self._put(
            path, data, "overwrite" if expected_tag is None else {"e_tag": expected_tag}
        )

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all objects below a prefix, sorted.

        Args:
            prefix: without the last ``/``; ``""`` for all.

        Raises:
            RegistryError: the bucket refuses, or does not answer.
        """
        with self._told(prefix):
            pages = self._obstore.list(self._store, prefix or None)
            found = [str(entry["path"]) for page in pages for entry in page]
        yield from sorted(found)

    def remove(self, path: str) -> None:
        """Remove an object if it is there.

        Args:
            path: of the object.

        Raises:
            RegistryError: the bucket refuses, or does not answer.
        """
        with suppress(FileNotFoundError), self._told(path):
            self._obstore.delete(self._store, path)

    def _put(self, path: str, data: bytes, mode: str | dict[str, str]) -> str | None:
        try:
            with self._told(path):
                # In one part: an upload in several parts knows no conditions.
                done = self._obstore.put(self._store, path, data, mode=mode, use_multipart=False)
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
            return self._ours(path, data)
        except FileNotFoundError as error:
            if isinstance(mode, dict):  # an object that was removed is not what was read
                return None
            message = f"there is no bucket for {path}: {error!s:.300}; check its name, endpoint"
            raise RegistryError(message) from error
        return str(done["e_tag"])

    def _ours(self, path: str, data: bytes) -> str | None:
        """Return the tag of what was put although its answer was lost: tried again, it is refused.

        Whoever put the same bytes did the same.
        """
        with suppress(VerificationError):  # longer: another's
            held = self.read(path, max_bytes=len(data))
            if held is not None and held.data == data:
                return held.tag
        return None

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Turn what the library raises into an error that says what to check."""
        expected = (self._errors.AlreadyExistsError, self._errors.PreconditionError)
        try:
            yield
        except (FileNotFoundError, *expected):
            raise
        except self._errors.BaseError as error:
            message = (
                f"the bucket of the registry failed at {path}: {error!s:.300}; "
                "check its name, endpoint and credentials, then repeat"
            )
            raise RegistryError(message) from error


def without_secrets(url: str) -> str:
    """Return a URL as errors and logs may show it: without user information and query.

    Args:
        url: of any kind.

    >>> without_secrets("https://ann:secret@example.org/acme?token=secret")
    "'https://example.org/acme'"
    """
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return repr(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}")[:200]


def open_place(where: str | Path, **options: Any) -> DirectoryPlace | BucketPlace:
    """Return the place that a path or URL names.

    Args:
        where: a directory, ``file:///…``, or ``s3://bucket/prefix``; with the tenant's name as
            its last part.
        **options: for `BucketPlace`.

    Returns:
        The place; nothing is written yet.

    Raises:
        InputError: another kind of URL, one that holds credentials, or a file on another host.
        DataError: a bucket, and obstore is not installed.

    >>> open_place("/srv/registry/acme").root
    PosixPath('/srv/registry/acme')
    """
    text = str(where)
    if text.startswith("s3://"):
        return BucketPlace(text, **options)
    if text.startswith("file://"):
        parts = urlsplit(text)
        if parts.netloc not in {"", "localhost"}:
            message = (
                f"{without_secrets(text)} is on another host; mount it, and name the directory"
            )
            raise InputError(message)
        return DirectoryPlace(unquote(parts.path))
    if "://" in text:
        message = (
            f"a registry cannot be written to {without_secrets(text)}; allowed are a directory and "
            "s3://bucket/prefix; consumers may read it over http"
        )
        raise InputError(message)
    return DirectoryPlace(text)
