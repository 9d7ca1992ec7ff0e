"""Signing of metadata: versions, expiry dates, signatures and roots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, Targets, Timestamp
from tuf.api.serialization.json import JSONSerializer

from steersman.errors import InputError, SigningError
from steersman.registry.keys import ONLINE, load_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securesystemslib.signer import CryptoSigner

    from steersman.registry.keys import Keys, OnlineRole

T = TypeVar("T", Root, Timestamp, Snapshot, Targets)

LIVES = {
    "root": timedelta(days=365),
    "targets": timedelta(days=90),
    "snapshot": timedelta(days=7),
    "timestamp": timedelta(days=1),
}


def at(seconds: float) -> datetime:
    """Return a time in seconds since 1970 as a datetime for metadata."""
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=0)


def sign(signed: T, signers: Sequence[CryptoSigner], now: float) -> bytes:
    """Return signed metadata with a new expiry date, which is set in ``signed``."""
    signed.expires = at(now) + LIVES[signed.type]
    metadata = Metadata(signed)
    for signer in signers:
        metadata.sign(signer, append=True)
    return metadata.to_bytes(JSONSerializer(compact=True))


def meta_file(version: int, data: bytes) -> MetaFile:
    """Return the reference to a metadata file: version, length and hash."""
    return MetaFile.from_data(version, data, ["sha256"])


def signer_of(keys: Keys, root: Root, role: OnlineRole) -> CryptoSigner:
    """Return the signer of a role, with the key that the root names.

    A pending key of an interrupted rotation becomes active.

    Raises:
        SigningError: no key that this root names was found.
    """
    waiting = keys.next_path_of(role)
    if waiting.exists() and load_key(waiting).public_key.keyid in root.roles[role].keyids:
        waiting.replace(keys.path_of(role))
    signer = keys.signer(role)
    if signer.public_key.keyid not in root.roles[role].keyids:
        message = (
            f"the key {keys.path_of(role)} is not the one that root {root.version} names for "
            f"{role}: it was rotated, or belongs to another registry; use the key that root names"
        )
        raise SigningError(message)
    return signer


def first_root(keys: Keys, signers: Sequence[CryptoSigner], tenant: str, threshold: int) -> Root:
    """Return the first root, not signed yet.

    Raises:
        InputError: the threshold is not between 1 and the number of keys.
    """
    there = len({signer.public_key.keyid for signer in signers})
    if not 1 <= threshold <= there:
        message = f"the threshold is {threshold}; allowed: 1 to {there}, the number of root keys"
        raise InputError(message)
    root = Root(consistent_snapshot=True, unrecognized_fields={"tenant": tenant})
    for signer in signers:
        root.add_key(signer.public_key, Root.type)
    root.roles[Root.type].threshold = threshold
    for role in ONLINE:
        root.add_key(keys.signer(role).public_key, role)
    return root


def root_signers(keys: Keys, root: Root, passphrase: str) -> list[CryptoSigner]:
    """Return the signers of a root: the available keys that it names, each once.

    Raises:
        SigningError: not enough keys, or a wrong passphrase.
    """
    role = root.roles[Root.type]
    at_hand = {it.public_key.keyid: it for it in keys.root_signers(passphrase)}
    known = [it for keyid, it in at_hand.items() if keyid in role.keyids]
    if len(known) < role.threshold:
        message = (
            f"{len(known)} distinct keys in {keys.root_folder} belong to root "
            f"{root.version}; {role.threshold} are needed; add the "
            "others"
        )
        raise SigningError(message)
    return known


def replace_key(root: Root, role: OnlineRole, signer: CryptoSigner) -> None:
    """Replace the keys of an online role in a root by a new one."""
    for keyid in list(root.roles[role].keyids):
        root.revoke_key(keyid, role)
    root.add_key(signer.public_key, role)
