"""Common base of both clients: settings, outbox and core."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

from steersman_client import outbox
from steersman_client.core import Core
from steersman_client.errors import InputError
from steersman_client.settings import Settings, checked_timeout_s
from steersman_client.sync_http import SyncTransport

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from steersman_client.items import Drop


class Options(TypedDict, total=False):
    """Keyword options of both clients; see `Client`."""

    timeout_ms: float
    retries: int
    queue_dir: str | os.PathLike[str] | None
    queue_bytes: int
    drop: Drop


class Base:
    """Common base of the sync and async client.

    Args:
        base_url: URL of the service.
        api_key: API key; sent to the service only, never shown.
        options: see `Client`.
    """

    def __init__(
        self, base_url: str | None, api_key: str | None, **options: Unpack[Options]
    ) -> None:
        self._settings = Settings.of(base_url, api_key, **options)
        self._core = Core(outbox.borrow(self._settings, self._connect), self._settings.retries)
        self._closed = False
        self._to_close = [self._settings]

    def __repr__(self) -> str:
        queue = str(self._settings.queue_path)
        return f"{type(self).__name__}({self._settings.base_url!r}, queue={queue!r})"

    @property
    def answered_locally(self) -> int:
        """Number of decisions answered with their default."""
        return self._core.answered_locally

    @property
    def queue_path(self) -> Path:
        """Path of the queue on disk."""
        return self._settings.queue_path

    def _timeout_s(self, timeout_ms: float | None) -> float:
        return self._settings.timeout_s if timeout_ms is None else checked_timeout_s(timeout_ms)

    def _check_open(self) -> None:
        if self._closed:
            raise InputError("this client is closed; create a new one")

    def _begins_to_close(self) -> bool:
        """Return True once, so that parallel calls do not release the queue twice."""
        try:
            self._to_close.pop()
        except IndexError:
            return False
        return True

    def _connect(self) -> SyncTransport:
        return SyncTransport(self._settings.base_url, self._settings.api_key)
