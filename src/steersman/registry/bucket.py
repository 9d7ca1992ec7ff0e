"""Registry storage in an S3 bucket that supports conditional writes."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from steersman.errors import DataError, InputError, RegistryError, VerificationError
from steersman.errors.install_hint import how_to_install
from steersman.registry.storage import MAX_FILE, DirectoryPlace, StoredFile, too_long

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class BucketPlace:
    """Registry storage below a prefix of an S3 bucket with conditional writes.

    Args:
        url: ``s3://bucket/prefix``.
        **options: options of ``obstore.store.S3Store``; default: from the environment
            (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and similar variables).

    Raises:
        DataError: obstore is not installed.
        InputError: the URL has no bucket name, or contains credentials.
    """

    def __init__(self, url: str, **options: Any) -> None:
        parts = urlsplit(url)
        if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
            message = (
                f"{without_secrets(url)} does not name a bucket; expected s3://bucket/prefix, with "
                "credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            )
            raise InputError(message)
        try:
            self._obstore: Any = import_module("obstore")
            store = import_module("obstore.store")
        except ImportError as error:
            message = "a registry in a bucket needs the package obstore; install it with: "
            raise DataError(message + how_to_install("s3")) from error
        self._errors = self._obstore.exceptions
        try:
            self._store = store.S3Store.from_url(url, **options)
        except self._errors.BaseError as error:
            message = f"the bucket {without_secrets(url)} cannot be opened: {error!s:.300}"
            raise InputError(f"{message}; check its name and the AWS_ variables") from error

    def read(self, path: str, *, max_bytes: int = MAX_FILE) -> StoredFile | None:
        """Return an object, or None if it does not exist.

        Args:
            max_bytes: maximum size in bytes.

        Raises:
            VerificationError: the object is longer.
            RegistryError: the bucket refuses the request or does not respond.
        """
        try:
            with self._registry_errors(path):
                found = self._obstore.get(self._store, path)
                data = bytearray()
                for piece in found.stream(min_chunk_size=1 << 20):
                    data += piece
                    if len(data) > max_bytes:
                        raise too_long(path, max_bytes)
        except FileNotFoundError:
            return None
        return StoredFile(bytes(data), str(found.meta["e_tag"]))

    def write_new(self, path: str, data: bytes) -> str | None:
        """Put a new object.

        Returns:
            Its ETag; None if the object already exists.

        Raises:
            RegistryError: the bucket refuses the request or does not respond.
        """
        return self._put(path, data, "create")

    def replace(self, path: str, data: bytes, *, expected_tag: str | None) -> str | None:
        """Replace an object if its ETag is unchanged (compare and swap).

        Args:
            expected_tag: ETag of the content to replace; None: replace any content.

        Returns:
            The new ETag; None if the object changed meanwhile.

        Raises:
            RegistryError: the bucket refuses the request or does not respond.
        """
        return self._put(
            path, data, "overwrite" if expected_tag is None else {"e_tag": expected_tag}
        )

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all objects below a prefix, sorted.

        Raises:
            RegistryError: the bucket refuses the request or does not respond.
        """
        with self._registry_errors(prefix):
            pages = self._obstore.list(self._store, prefix or None)
            found = [str(entry["path"]) for page in pages for entry in page]
        yield from sorted(found)

    def remove(self, path: str) -> None:
        """Remove an object if it exists.

        Raises:
            RegistryError: the bucket refuses the request or does not respond.
        """
        with suppress(FileNotFoundError), self._registry_errors(path):
            self._obstore.delete(self._store, path)

    def _put(self, path: str, data: bytes, mode: str | dict[str, str]) -> str | None:
        try:
            with self._registry_errors(path):
                # In one part: multipart uploads do not support conditions.
                done = self._obstore.put(self._store, path, data, mode=mode, use_multipart=False)
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
            return self._tag_if_ours(path, data)
        except FileNotFoundError as error:
            if isinstance(mode, dict):  # the object was removed meanwhile
                return None
            message = f"bucket not found for {path}: {error!s:.300}; check its name, endpoint"
            raise RegistryError(message) from error
        return str(done["e_tag"])

    def _tag_if_ours(self, path: str, data: bytes) -> str | None:
        """Return the ETag if our own write succeeded but its response was lost."""
        with suppress(VerificationError):  # longer, so another writer wrote it
            held = self.read(path, max_bytes=len(data))
            if held is not None and held.data == data:
                return held.tag
        return None

    @contextmanager
    def _registry_errors(self, path: str) -> Iterator[None]:
        """Convert library errors into a `RegistryError` that says what to check."""
        expected = (self._errors.AlreadyExistsError, self._errors.PreconditionError)
        try:
            yield
        except (FileNotFoundError, *expected):
            raise
        except self._errors.BaseError as error:
            message = (
                f"bucket request failed for {path}: {error!s:.300}; "
                "check its name, endpoint and credentials, then retry"
            )
            raise RegistryError(message) from error


def without_secrets(url: str) -> str:
    """Return a URL for errors and logs, without user information and query.

    >>> without_secrets("https://ann:secret@example.org/acme?token=secret")
    "'https://example.org/acme'"
    """
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return repr(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}")[:200]


def open_place(where: str | Path, **options: Any) -> DirectoryPlace | BucketPlace:
    """Return the registry storage for a path or URL.

    Args:
        where: directory, ``file:///…`` or ``s3://bucket/prefix``; its last part is the tenant name.

    Raises:
        InputError: unsupported URL, URL with credentials, or a file on another host.
        DataError: the URL is a bucket, and obstore is not installed.

    >>> open_place("/srv/registry/acme").root
    PosixPath('/srv/registry/acme')
    """
    text = str(where)
    if text.startswith("s3://"):
        return BucketPlace(text, **options)
    if text.startswith("file://"):
        parts = urlsplit(text)
        if parts.netloc not in {"", "localhost"}:
            message = f"{without_secrets(text)} is on another host; mount it and pass the directory"
            raise InputError(message)
        return DirectoryPlace(unquote(parts.path))
    if "://" in text:
        message = (
            f"cannot write a registry to {without_secrets(text)}; allowed: a directory or "
            "s3://bucket/prefix; only consumers can read over http"
        )
        raise InputError(message)
    return DirectoryPlace(text)
