"""Verified reading for publishers: checks signatures, and refuses a rollback.

Others may be able to write to the storage, so a publisher verifies everything before it signs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from steersman.errors import RaceError, SigningError, VerificationError
from steersman.registry.chain import follow_root, read_chain, read_root, read_timestamp
from steersman.registry.keys import write_private
from steersman.registry.rollback_guard import Memory, SeenVersions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuf.api.metadata import Root, Timestamp

    from steersman.registry.chain import Chain
    from steersman.registry.keys import Keys
    from steersman.registry.storage import Place, StoredFile

    Resign = Callable[[Chain, str], bool]

_TRIES = 10


class TrustedReader:
    """Reader of a repository for its publisher, starting at the root in the key folder.

    Args:
        place: storage of the tenant's registry.
        keys: the tenant's keys.
    """

    def __init__(self, place: Place, keys: Keys) -> None:
        self.place = place
        self.keys = keys
        self.memory = Memory(keys.folder)
        self._roots: list[bytes] = []

    @property
    def intent(self) -> dict[str, str] | None:
        """Intent of a rotation in progress or interrupted."""
        path = self.keys.folder / "rotation.json"
        return json.loads(path.read_bytes()) if path.exists() else None

    def intend(self, before: bytes, key: str) -> None:
        """Record the trusted root and the new key id before a rotation, so it can be completed."""
        note = json.dumps({"before": before.decode(), "key": key}).encode()
        write_private(self.keys.folder / "rotation.json", note)

    def settle(self) -> None:
        """Delete the record of a completed rotation."""
        (self.keys.folder / "rotation.json").unlink(missing_ok=True)

    def begin(self, root: bytes) -> None:
        """Trust a first root, and write it to the storage.

        Raises:
            SigningError: the storage already has a root with other keys.
        """
        if self.place.write_new("metadata/1.root.json", root) is None:
            held = self.place.read("metadata/1.root.json")
            there = read_root(held.data if held else b"")
            # An earlier, killed run wrote a root with our keys; only its dates differ.
            if there.roles != read_root(root).roles:
                message = (
                    f"a registry with other keys already exists, and {self.keys.folder} has no "
                    "root.json for it; use its keys, or choose another place"
                )
                raise SigningError(message)
            root = held.data if held else root
        write_private(self.keys.trusted_root, root)

    def roots(self) -> list[bytes]:
        """Return the roots from the trusted one to the newest, and trust the newest.

        Raises:
            SigningError: the folder holds no trusted root.
            VerificationError: a root is not signed by the one before.
        """
        if not self.keys.trusted_root.exists():
            message = f"{self.keys.trusted_root} not found; create the registry first"
            raise SigningError(message)
        trusted = self.keys.trusted_root.read_bytes()
        found = follow_root(trusted, self._fetch)
        if len(found) > 1:
            write_private(self.keys.trusted_root, found[-1])
        self._roots = found
        return found

    def leads_from(self, root: bytes) -> bool:
        """Return whether the roots in the storage lead from another root to the newest."""
        newest = self.roots()[-1]
        try:
            return follow_root(root, self._fetch)[-1] == newest
        except VerificationError:
            return False

    def root(self) -> Root:
        """Return the newest root that was read."""
        return read_root((self._roots or self.roots())[-1])

    def read(self, resign: Resign, *, older: bool = False) -> tuple[Chain, str]:
        """Return the published metadata, and the tag of its timestamp.

        Raises:
            VerificationError: it is not signed by the current keys.
            SigningError: it is older than what was seen before.
            RegistryError: reading the registry failed.
        """
        for _ in range(_TRIES):
            known = SeenVersions() if older else self.memory.read()
            root = read_root(self.roots()[-1])
            held = self.place.read("metadata/timestamp.json")
            tag = held.tag if held else ""
            try:
                chain = read_chain(root, self._beside(held))
            except VerificationError:
                if self._changed(tag):
                    continue
                if not self._completes(root):
                    raise
                self._complete(resign, held, known)
                continue
            self.memory.refuse_older(known, SeenVersions.of(chain))
            self.memory.note(SeenVersions.of(chain))
            if self._completes(root):
                self.settle()
            return chain, tag
        message = "other publishers kept writing while the registry was read; retry"
        raise RaceError(message)

    def timestamp(self, resign: Resign) -> tuple[Root, Timestamp, str]:
        """Return root, timestamp and the timestamp's tag: all that a refresh needs.

        Raises:
            VerificationError: it is not signed by the current key.
            SigningError: it is older than what was seen before.
            RegistryError: reading the registry failed.
        """
        known = self.memory.read()
        root = read_root(self.roots()[-1])
        if self._completes(root):
            self.read(resign)
        held = self.place.read("metadata/timestamp.json")
        stamp, _ = read_timestamp(root, self._beside(held))
        self.memory.refuse_older(known, SeenVersions(stamp.version, stamp.snapshot_meta.version))
        return root, stamp, held.tag if held else ""

    def _complete(self, resign: Resign, held: StoredFile | None, known: SeenVersions) -> None:
        """Sign again metadata signed by the keys before the rotation."""
        intent = self.intent
        before = read_root(intent["before"].encode()) if intent else self.root()
        chain = read_chain(before, self._beside(held))
        self.memory.refuse_older(known, SeenVersions.of(chain))
        if resign(chain, held.tag if held else ""):
            self.settle()

    def _completes(self, root: Root) -> bool:
        intent = self.intent
        return intent is not None and any(intent["key"] in it.keyids for it in root.roles.values())

    def _changed(self, tag: str) -> bool:
        held = self.place.read("metadata/timestamp.json")
        return (held.tag if held else "") != tag

    def _beside(self, stamp: StoredFile | None) -> Callable[[str, int], bytes | None]:
        """Return a fetch function for metadata that belongs to a given timestamp."""

        def fetch(name: str, most: int) -> bytes | None:
            if name == "timestamp.json":
                return stamp.data if stamp is not None and len(stamp.data) <= most else None
            return self._fetch(name, most)

        return fetch

    def _fetch(self, name: str, most: int) -> bytes | None:
        held = self.place.read(f"metadata/{name}", max_bytes=most)
        return held.data if held else None
