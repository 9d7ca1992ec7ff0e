"""Passphrase encryption of private keys: PKCS #8 in PEM, with many PBKDF2 rounds.

By default ``cryptography`` uses 2,048 rounds, which allows millions of guesses per second. This
module uses PBKDF2 with HMAC-SHA-256 and 600,000 rounds, then AES-256 in CBC mode (PBES2).

Source: RFC 8018 (PBES2), RFC 5958 (PKCS #8); rounds as recommended by OWASP's Password Storage
Cheat Sheet since 2023.
"""

from __future__ import annotations

import os
import textwrap
from base64 import b64encode
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROUNDS = 600_000
_SALT_BYTES = 16
_KEY_BYTES = 32
_BLOCK_BYTES = 16
_SEQUENCE, _INTEGER, _OCTETS, _NAME, _NULL = 0x30, 0x02, 0x04, 0x06, b"\x05\x00"
_PBES2 = bytes.fromhex("2a864886f70d01050d")
_PBKDF2 = bytes.fromhex("2a864886f70d01050c")
_HMAC_SHA256 = bytes.fromhex("2a864886f70d0209")
_AES_256_CBC = bytes.fromhex("60864801650304012a")


def locked(key: Ed25519PrivateKey, passphrase: str) -> bytes:
    """Return a key as PEM, encrypted with a passphrase.

    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> from cryptography.hazmat.primitives.serialization import load_pem_private_key
    >>> key = Ed25519PrivateKey.generate()
    >>> opened = load_pem_private_key(locked(key, "a long passphrase"), b"a long passphrase")
    >>> opened.public_key() == key.public_key()
    True
    """
    salt, first = os.urandom(_SALT_BYTES), os.urandom(_BLOCK_BYTES)
    derived = PBKDF2HMAC(SHA256(), _KEY_BYTES, salt, ROUNDS).derive(passphrase.encode())
    padder = PKCS7(8 * _BLOCK_BYTES).padder()
    plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    cipher = Cipher(algorithms.AES(derived), modes.CBC(first)).encryptor()
    hidden = cipher.update(padder.update(plain) + padder.finalize()) + cipher.finalize()
    return _pem(_part(_SEQUENCE, _scheme(salt, first), _part(_OCTETS, hidden)))


def _scheme(salt: bytes, first: bytes) -> bytes:
    """Return the algorithm identifier."""
    rounds = _part(_INTEGER, ROUNDS.to_bytes(ROUNDS.bit_length() // 8 + 1, "big"))
    digest = _part(_SEQUENCE, _part(_NAME, _HMAC_SHA256), _NULL)
    derivation = _part(_SEQUENCE, _part(_OCTETS, salt), rounds, digest)
    return _part(
        _SEQUENCE,
        _part(_NAME, _PBES2),
        _part(
            _SEQUENCE,
            _part(_SEQUENCE, _part(_NAME, _PBKDF2), derivation),
            _part(_SEQUENCE, _part(_NAME, _AES_256_CBC), _part(_OCTETS, first)),
        ),
    )


def _part(kind: int, *content: bytes) -> bytes:
    """Return one DER value; all values are shorter than 65,536 bytes."""
    data = b"".join(content)
    if len(data) < 0x80:
        return bytes([kind, len(data)]) + data
    size = len(data).to_bytes((len(data).bit_length() + 7) // 8, "big")
    return bytes([kind, 0x80 | len(size)]) + size + data


def _pem(data: bytes) -> bytes:
    lines = textwrap.wrap(b64encode(data).decode(), 64)
    name = "ENCRYPTED PRIVATE KEY"
    return "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""]).encode()
