"""Key rotation: a new root, signed by enough keys of the previous one.

Every step can be resumed: the new key is on disk before a root names it, and a record of the
previous root stays until all metadata is signed again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tuf.api.metadata import Metadata, Root

from steersman.errors import InputError, RaceError, SigningError
from steersman.registry.chain import read_root
from steersman.registry.keys import OnlineRole, load_key, save_key
from steersman.registry.metadata_signer import replace_key, root_signers, sign

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner

    from steersman.registry.trusted_metadata import TrustedReader


class Rotation:
    """Key rotation for a tenant's registry.

    Args:
        trusting: reader of the registry.
        clock: returns seconds since 1970.
    """

    def __init__(self, trusting: TrustedReader, clock: Callable[[], float]) -> None:
        self._trusting = trusting
        self._keys = trusting.keys
        self._clock = clock

    def of_online(self, role: OnlineRole, passphrase: str) -> None:
        """Create a root with a new key for an online role; the next publisher signs with it."""
        if role not in get_args(OnlineRole):
            message = f"unknown role {role!r:.80}; allowed: root, targets, snapshot, timestamp"
            raise InputError(message)
        before, signers = self._begin(passphrase)
        root = read_root(before)
        waiting = self._keys.next_path_of(role)
        save_key(waiting, Ed25519PrivateKey.generate())
        signer = load_key(waiting)
        replace_key(root, role, signer)
        self._trusting.intend(before, signer.public_key.keyid)
        self._publish(root, signers)

    def of_root(self, passphrase: str, new_passphrase: str) -> None:
        """Replace all root keys by the same number of new ones."""
        before, signers = self._begin(passphrase, new_passphrase)
        root = read_root(before)
        role = root.roles[Root.type]
        paths = self._next_paths(len(role.keyids))
        for keyid in list(role.keyids):
            root.revoke_key(keyid, Root.type)
        for path in paths:
            save_key(path, Ed25519PrivateKey.generate(), new_passphrase)
            root.add_key(load_key(path, new_passphrase).public_key, Root.type)
        new = [load_key(path, new_passphrase) for path in paths]
        self._publish(root, [*signers, *new])
        self._promote(root, new_passphrase)

    def renewal(self, passphrase: str) -> None:
        """Sign the same root for another year."""
        before, signers = self._begin(passphrase)
        self._publish(read_root(before), signers)

    def _begin(self, *passphrases: str) -> tuple[bytes, list[CryptoSigner]]:
        """Return the newest root and its signers, after completing an interrupted rotation."""
        before = self._trusting.roots()[-1]
        root = read_root(before)
        if any(self._waiting()):
            return before, self._settle(root, passphrases)
        return before, root_signers(self._keys, root, passphrases[0])

    def _settle(self, root: Root, passphrases: Sequence[str]) -> list[CryptoSigner]:
        """Activate or delete pending root keys; return the signers.

        All root keys are replaced at once. If the passphrases open enough current keys, no root
        names the pending keys, and their passphrase may differ.
        """
        self._promote(root, *passphrases)
        try:
            signers = self._signers(root, passphrases)
        except SigningError as error:
            message = (
                f"{error}. A root key rotation was interrupted: use the passphrase "
                "from before it or, if that is refused, the new one"
            )
            raise SigningError(message) from error
        for path in self._waiting():
            path.unlink()
        return signers

    def _signers(self, root: Root, passphrases: Sequence[str]) -> list[CryptoSigner]:
        *others, last = passphrases
        for passphrase in others:
            with suppress(SigningError):  # the next passphrase may open them
                return root_signers(self._keys, root, passphrase)
        return root_signers(self._keys, root, last)

    def _publish(self, root: Root, signers: Sequence[CryptoSigner]) -> None:
        root.version += 1
        data = sign(root, signers, self._clock())
        self._check(data)
        path = f"metadata/{root.version}.root.json"
        if self._trusting.place.write_new(path, data) is None:
            message = (
                f"root version {root.version} already exists: another rotation was faster; retry"
            )
            raise RaceError(message)
        self._trusting.roots()

    def _check(self, data: bytes) -> None:
        """Check that consumers of the previous root will accept this one."""
        found: Metadata[Root] = Metadata.from_bytes(data)
        before = self._trusting.root()
        before.verify_delegate(Root.type, found.signed_bytes, found.signatures)
        read_root(data)

    def _promote(self, root: Root, *passphrases: str) -> None:
        """Activate the pending root keys that this root names and a passphrase opens."""
        for path in self._waiting():
            if self._opened(path, passphrases) & set(root.roles[Root.type].keyids):
                path.replace(path.with_name(path.name.replace(".next.pem", ".pem")))

    def _opened(self, path: Path, passphrases: Sequence[str]) -> set[str]:
        """Return the id of a key, if one of the passphrases opens it."""
        for passphrase in passphrases:
            with suppress(SigningError):  # the next passphrase may open it
                return {load_key(path, passphrase).public_key.keyid}
        return set()

    def _waiting(self) -> list[Path]:
        return sorted(self._keys.root_folder.glob("root*.next.pem"))

    def _next_paths(self, count: int) -> list[Path]:
        names = ["root.next.pem", *(f"root-{number}.next.pem" for number in range(2, count + 1))]
        return [self._keys.root_folder / name for name in names]
