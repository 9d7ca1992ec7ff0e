"""Service secret: keys the hashes of API keys and signs records."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING

from steersman.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

SECRET_BYTES = 32
_HEX = re.compile(r"[0-9a-fA-F]{64}")


def load_secret(home: Path) -> bytes:
    """Return the service's secret; create it on first use.

    Every process of an installation needs the same secret.

    Args:
        home: directory of the file ``secret`` (mode 0600), used if ``STEERSMAN_SECRET`` is
            unset.

    Returns:
        32 bytes.

    Raises:
        StoreError: ``STEERSMAN_SECRET`` or the file is not 64 hex digits.
    """
    named = os.environ.get("STEERSMAN_SECRET")
    if named:
        return _from_hex(named, "STEERSMAN_SECRET")
    path = home / "secret"
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        own = home / f".secret-{os.getpid()}-{secrets.token_hex(4)}"
        with os.fdopen(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(own, path)  # unlike a rename, it fails where another process was first
        except FileExistsError:
            pass
        finally:
            own.unlink()
    return _from_hex(path.read_text(encoding="ascii", errors="replace").strip(), str(path))


def hash_key(secret: bytes, text: str) -> bytes:
    """Return the stored hash of an API key.

    Returns:
        32 bytes.

    >>> hash_key(b"s" * 32, "sk_x") == hash_key(b"t" * 32, "sk_x")
    False
    """
    return hmac.digest(secret, text.encode(errors="surrogatepass"), sha256)


def _from_hex(text: str, source: str) -> bytes:
    if not _HEX.fullmatch(text):
        message = (
            f"the secret in {source} has {len(text)} characters or is not hexadecimal; expected "
            "64 hex digits, as `openssl rand -hex 32` prints"
        )
        raise StoreError(message)
    return bytes.fromhex(text)
