"""Signing keys of a tenant: encrypted root keys (kept offline) and online keys.

Ed25519, PKCS #8 in PEM. ``root.pem`` is needed only to create the registry and to rotate keys.
"""

from __future__ import annotations

import os
import textwrap
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Literal
from uuid import uuid4

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from securesystemslib.signer import CryptoSigner

from steersman.errors import InputError, SigningError
from steersman.platform.durable_files import flush_folder

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


Role = Literal["root", "targets", "snapshot", "timestamp"]
OnlineRole = Literal["targets", "snapshot", "timestamp"]
ONLINE: tuple[OnlineRole, ...] = ("targets", "snapshot", "timestamp")
_MOST_ROOTS = 16
_LEAST_PASSPHRASE = 8


class Keys:
    """Key folder of one tenant.

    It contains ``targets.pem``, ``snapshot.pem`` and ``timestamp.pem``, readable only by the owner;
    ``root.pem`` (and ``root-2.pem``, …) until they are moved offline; ``root.json``, the trusted
    root of this publisher; and ``seen.json``, the newest metadata versions it has seen.

    Args:
        folder: key folder; it may not exist yet.
        root_folder: folder of the root keys; None: ``folder``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keys = Keys(Path(folder) / "acme")
    ...     keys.create("a long passphrase")
    ...     sorted(path.name for path in keys.folder.iterdir())
    ['root.pem', 'snapshot.pem', 'targets.pem', 'timestamp.pem']
    """

    def __init__(self, folder: str | Path, *, root_folder: str | Path | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.root_folder = Path(root_folder or folder).expanduser().absolute()

    @property
    def trusted_root(self) -> Path:
        """Path of the root metadata that this publisher trusts."""
        return self.folder / "root.json"

    def create(self, passphrase: str, *, roots: int = 1) -> None:
        """Create missing keys; existing keys are kept.

        Args:
            passphrase: passphrase of the root keys, at least 8 characters.
            roots: number of root keys, 1 to 16; default 1.

        Raises:
            InputError: the passphrase is too short, or `roots` is out of range.
            SigningError: keys cannot be written, or existing keys have another passphrase.
        """
        if not 1 <= roots <= _MOST_ROOTS:
            message = f"{roots} root keys; allowed: 1 to {_MOST_ROOTS}"
            raise InputError(message)
        if self._root_files():
            self.root_signers(passphrase)
        for path in self._root_paths(roots):
            if not path.exists():
                save_key(path, Ed25519PrivateKey.generate(), passphrase)
        for role in ONLINE:
            if not self.path_of(role).exists():
                save_key(self.path_of(role), Ed25519PrivateKey.generate())

    def path_of(self, role: OnlineRole) -> Path:
        """Return the file of an online key."""
        return self.folder / f"{role}.pem"

    def next_path_of(self, role: OnlineRole) -> Path:
        """Return the file of a new key that the root does not name yet."""
        return self.folder / f"{role}.next.pem"

    def signer(self, role: OnlineRole) -> CryptoSigner:
        """Return the signer of an online role.

        Raises:
            SigningError: the key is missing or damaged.
        """
        return load_key(self.path_of(role))

    def root_signers(self, passphrase: str) -> list[CryptoSigner]:
        """Return the signers of the root role.

        Raises:
            SigningError: a key is missing or damaged, or the passphrase is wrong.
        """
        paths = self._root_files()
        if not paths:
            message = (
                f"root key root*.pem not found in {self.root_folder}; bring the folder where "
                "you keep it offline, and pass its path"
            )
            raise SigningError(message)
        return [load_key(path, passphrase) for path in paths]

    def _root_files(self) -> list[Path]:
        found = sorted(self.root_folder.glob("root*.pem"))
        return [path for path in found if not path.name.endswith(".next.pem")]

    def _root_paths(self, roots: int) -> list[Path]:
        names = ["root.pem", *(f"root-{number}.pem" for number in range(2, roots + 1))]
        return [self.root_folder / name for name in names]


def save_key(path: Path, key: Ed25519PrivateKey, passphrase: str | None = None) -> None:
    """Write a key atomically and durably, readable only by the owner.

    Args:
        passphrase: encrypts the key; None: not encrypted.

    Raises:
        InputError: the passphrase is too short.
        SigningError: the key cannot be written.
    """
    if passphrase is not None:
        if len(passphrase) < _LEAST_PASSPHRASE:
            message = f"the passphrase has {len(passphrase)} characters; the minimum is 8"
            raise InputError(message)
        write_private(path, locked(key, passphrase))
        return
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def write_private(path: Path, data: bytes) -> None:
    """Write a file atomically and durably, readable only by the owner.

    Raises:
        SigningError: the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        draft.replace(path)
        flush_folder(path.parent)  # a root must not be durable before the key it names
    except OSError as error:
        message = f"the key {path} cannot be written: {error.strerror}; fix this, then retry"
        raise SigningError(message) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def load_key(path: Path, passphrase: str | None = None) -> CryptoSigner:
    """Return the signer for a PKCS #8 PEM file.

    Raises:
        SigningError: the key is missing, damaged or readable by others, or the passphrase is wrong.
    """
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()
    except OSError as error:
        message = f"the key {path} cannot be read: {error.strerror}; restore it, or rotate the key"
        raise SigningError(message) from error
    if passphrase is None and mode & 0o077:
        message = f"the key {path} is readable by others (mode {mode & 0o777:o}); run chmod 600"
        raise SigningError(message)
    try:
        key = load_pem_private_key(data, passphrase.encode() if passphrase is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        what = "its passphrase is wrong, or it" if passphrase is not None else "it"
        message = f"the key {path} cannot be opened: {what} is damaged; check, or restore it"
        raise SigningError(message) from None
    if not isinstance(key, Ed25519PrivateKey):
        message = f"the key {path} is not an Ed25519 key; restore the original"
        raise SigningError(message)
    return CryptoSigner(key)
