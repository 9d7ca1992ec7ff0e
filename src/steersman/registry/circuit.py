"""A registry that failed several times in a row is not asked for a while.

What lies in a cache then serves at once, where each reader would wait for an answer that does not
come.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tuf.api.exceptions import DownloadError, DownloadHTTPError, DownloadLengthMismatchError

from steersman.registry.fetching import Fetcher

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAILED = 500


class Breaker(Protocol):
    """Counts failures and says whether to ask; `steersman.store.Breaker` is one.

    Several threads may use it at a time.
    """

    def allow(self) -> bool:
        """Return whether the registry may be asked now; who was allowed tells what came of it."""
        ...

    def succeeded(self) -> None:
        """Tell that it answered."""
        ...

    def failed(self) -> None:
        """Tell that it did not."""
        ...


class Circuit(Fetcher):
    """Fetches while a breaker allows it; whatever was answered, also a refusal, is no failure.

    Args:
        fetcher: asks the registry.
        breaker: of the server, share or bucket that the registry is in.
    """

    def __init__(self, fetcher: Fetcher, breaker: Breaker) -> None:
        self._fetcher = fetcher
        self._breaker = breaker

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Give everything that is fetched inside together so much time.

        Args:
            seconds: of real time.
        """
        with self._fetcher.within(seconds):
            yield

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """Return a file.

        Args:
            url: its path below the registry.
            max_length: the longest that is read.

        Raises:
            DownloadError: as the fetcher's, or the registry is not asked now.
        """
        if not self._breaker.allow():
            message = f"{url} was not asked for: the registry has failed and is asked again soon"
            raise DownloadError(message)
        try:
            data = self._fetcher.download_bytes(url, max_length)
        except BaseException as error:
            if _answered(error):
                self._breaker.succeeded()
            else:
                self._breaker.failed()
            raise
        self._breaker.succeeded()
        return data

    def _fetch(self, url: str) -> Iterator[bytes]:
        yield self.download_bytes(url, 1 << 62)


def _answered(error: BaseException) -> bool:
    if isinstance(error, DownloadHTTPError):
        return bool(error.status_code < _FAILED)
    return isinstance(error, DownloadLengthMismatchError)
