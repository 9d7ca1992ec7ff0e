"""Settings of a client: URL, API key and queue, from arguments or the environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from steersman_client.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman_client.items import Drop

LEAST_QUEUE_BYTES = 256 << 10
_KEY = re.compile(r"[\x21-\x7e]{1,512}")
_ODD = re.compile(r"[\x00-\x20\x7f?#\\]")


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked settings of a client.

    Attributes:
        base_url: http or https URL without a trailing slash.
        api_key: API key; never shown.
        timeout_s: timeout of a call with all its tries, in seconds.
        retries: number of tries after the first.
        queue_path: path of the queue file.
        queue_bytes: maximum size of the queue in bytes.
        drop: behaviour when the queue is full.
    """

    base_url: str
    api_key: str = field(repr=False)
    timeout_s: float
    retries: int
    queue_path: Path
    queue_bytes: int
    drop: Drop

    @classmethod
    def of(
        cls,
        base_url: str | None,
        api_key: str | None,
        *,
        timeout_ms: float = 2000,
        retries: int = 3,
        queue_dir: str | os.PathLike[str] | None = None,
        queue_bytes: int = 64 << 20,
        drop: Drop = "never",
        environment: Mapping[str, str] = os.environ,
    ) -> Settings:
        """Return the settings; missing values come from the environment.

        Raises:
            InputError: a value is missing or out of range; no message contains the key.
        """
        if not 0 <= retries <= 100:
            raise InputError(f"retries must be from 0 to 100, got {retries}")
        if queue_bytes < LEAST_QUEUE_BYTES:
            raise InputError(f"queue_bytes must be {LEAST_QUEUE_BYTES} or more, got {queue_bytes}")
        if drop not in {"never", "oldest"}:
            raise InputError(f"drop must be 'never' or 'oldest', got {drop!r}")
        url = _checked_url(base_url or environment.get("STEERSMAN_URL", ""))
        key = _checked_key(api_key or environment.get("STEERSMAN_API_KEY", ""))
        folder = Path(queue_dir) if queue_dir is not None else _queue_dir(environment)
        path = folder / f"{_fingerprint(url, key)}.queue"
        return cls(url, key, checked_timeout_s(timeout_ms), retries, path, queue_bytes, drop)


def checked_timeout_s(timeout_ms: float) -> float:
    """Return a timeout of 1 to 600,000 ms in seconds."""
    if not 1 <= timeout_ms <= 600_000:
        raise InputError(f"timeout_ms must be from 1 to 600000, got {timeout_ms}")
    return timeout_ms / 1000


def _checked_url(text: str) -> str:
    if not text:
        raise InputError(
            "no URL of the service: give base_url, or set STEERSMAN_URL (for example "
            "http://127.0.0.1:8080)"
        )
    try:
        parts = urlsplit(text)
        has_secret = "@" in parts.netloc
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")  # a label that is empty, or over 63 characters
    except ValueError:
        raise InputError("base_url is not a URL; give one such as https://host:8443") from None
    if has_secret:
        raise InputError("base_url must not contain a user or password; give the key as api_key")
    # Checked here, since each transport would report it differently, or with each request.
    if not sound or _ODD.search(text):
        raise InputError(
            "base_url must be http(s)://host[:port][/prefix] without query, fragment or spaces, "
            f"got {text!r}"
        )
    return text.rstrip("/")


def _checked_key(text: str) -> str:
    if not text:
        raise InputError(
            "no API key: give api_key (--api-key), or set STEERSMAN_API_KEY; `steersman key "
            "create NAME --tenant TENANT` creates one"
        )
    if not _KEY.fullmatch(text):
        raise InputError(
            "api_key must be 1 to 512 printable ASCII characters without spaces; the given one "
            f"has {len(text)} characters, some of them not allowed (check for a line break at its "
            "end)"
        )
    return text


def _queue_dir(environment: Mapping[str, str]) -> Path:
    if home := environment.get("STEERSMAN_HOME"):
        try:
            return Path(home).expanduser() / "client"
        except RuntimeError as error:  # unknown user, or one without a home
            raise InputError(
                f"invalid STEERSMAN_HOME {home!r:.200}: {error}; set it to a folder"
            ) from None
    try:
        state = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:  # as in a container, for a user without an entry
        raise InputError(
            "this user has no home directory for the queue: give queue_dir, or set STEERSMAN_HOME"
        ) from None
    return Path(state) / "steersman" / "client"


def _fingerprint(url: str, key: str) -> str:
    """Return a file name part that distinguishes servers and keys without disclosing them."""
    digest = blake2b(f"{url}\n{key}".encode(), digest_size=12, person=b"steersman-queue")
    return digest.hexdigest()
