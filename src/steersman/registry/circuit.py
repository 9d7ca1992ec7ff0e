"""Circuit breaker for registry requests.

While it is open, the consumer serves from its cache at once and does not wait for a timeout.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuf.api.exceptions import DownloadError, DownloadHTTPError, DownloadLengthMismatchError

from steersman.registry.fetch import Fetcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.platform.breaker import Breaker

_FAILED = 500


class Circuit(Fetcher):
    """Fetcher behind a circuit breaker; any response, also a refusal, counts as success.

    Args:
        fetcher: fetcher of the registry.
        breaker: breaker of the server, file share or bucket that holds the registry.
    """

    def __init__(self, fetcher: Fetcher, breaker: Breaker) -> None:
        self._fetcher = fetcher
        self._breaker = breaker

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set a total timeout in seconds for all fetches inside the block."""
        with self._fetcher.within(seconds):
            yield

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """Return a file.

        Raises:
            DownloadError: the fetch failed, or the breaker is open.
        """
        turn = self._breaker.turn()
        if turn.wait_s:
            message = (
                f"{url} was not requested: the registry failed recently; it will be retried soon"
            )
            raise DownloadError(message)
        try:
            data = self._fetcher.download_bytes(url, max_length)
        except BaseException as error:
            if _answered(error):
                self._breaker.succeeded(turn)
            else:
                self._breaker.failed(turn)
            raise
        self._breaker.succeeded(turn)
        return data

    def _fetch(self, url: str) -> Iterator[bytes]:
        yield self.download_bytes(url, 1 << 62)


def _answered(error: BaseException) -> bool:
    if isinstance(error, DownloadHTTPError):
        return bool(error.status_code < _FAILED)
    return isinstance(error, DownloadLengthMismatchError)
