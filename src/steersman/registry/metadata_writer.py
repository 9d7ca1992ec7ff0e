"""Atomic writing of metadata: the timestamp is written last."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 -- type of a field
from typing import TYPE_CHECKING

from tuf.api.metadata import Snapshot, Targets, Timestamp

from steersman.errors import RaceError
from steersman.registry.chain import Chain
from steersman.registry.metadata_signer import LIVES, at, meta_file, sign, signer_of
from steersman.registry.rollback_guard import SeenVersions

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.registry.archive import Archive
    from steersman.registry.trusted_metadata import TrustedReader

_TIMESTAMP = "metadata/timestamp.json"
_TRIES = 60
_PAUSE_S = 0.01
_KEEP_METADATA = 32


@dataclass(frozen=True)
class Freshness:
    """Expiry times of published metadata.

    Attributes:
        version: version of the timestamp.
        expires: expiry of the timestamp; refresh it well before.
        root_expires: expiry of the root; ``renew_root`` needs its passphrase.
    """

    version: int
    expires: datetime
    root_expires: datetime


class Writer:
    """Writer of a tenant's metadata.

    Args:
        trusting: reader of the registry.
        archive: archive, pruned after writing.
        clock: returns seconds since 1970.
    """

    def __init__(
        self, trusting: TrustedReader, archive: Archive, clock: Callable[[], float]
    ) -> None:
        self._trusting = trusting
        self._archive = archive
        self._place = trusting.place
        self._keys = trusting.keys
        self._clock = clock

    def begin(self) -> None:
        """Write the first metadata, without snapshots, unless another process did.

        Raises:
            SigningError: earlier metadata is missing.
        """
        known = self._trusting.memory.read()
        if self._place.read(_TIMESTAMP) is None:
            self._trusting.memory.refuse_empty(known)
            self._write(None, Targets(version=1))

    def read(self) -> tuple[Chain, str]:
        """Return the published metadata, and the tag of its timestamp."""
        return self._trusting.read(self._resign)

    def change(self, edit: Callable[[Targets], bool]) -> Chain:
        """Publish changed targets; return the resulting metadata.

        Raises:
            RaceError: other publishers kept committing first.
        """
        for attempt in range(_TRIES):
            chain, tag = self.read()
            if not edit(chain.targets):
                return chain
            chain.targets.version += 1
            written = self._write((chain, tag), chain.targets)
            if written is not None:
                return written
            time.sleep(_PAUSE_S * attempt)
        raise _raced()

    def accept_older(self) -> Chain:
        """Sign older metadata again, under versions above all that were seen.

        Raises:
            RaceError: other publishers kept committing first.
        """
        for attempt in range(_TRIES):
            if self._place.read(_TIMESTAMP) is None:
                written = self._write(None, Targets(version=1))
            else:
                chain, tag = self._trusting.read(self._resign, older=True)
                chain.targets.version += 1
                written = self._write((chain, tag), chain.targets)
            if written is not None:
                return written
            time.sleep(_PAUSE_S * attempt)
        raise _raced()

    def refresh(self) -> Freshness:
        """Sign a new timestamp; also snapshot and targets in the second half of their lifetime."""
        for attempt in range(_TRIES):
            root, stamp, tag = self._trusting.timestamp(self._resign)
            if self._ages(stamp):
                stamp = self.change(lambda _: True).timestamp
                return Freshness(stamp.version, stamp.expires, root.expires)
            stamp.version += 1
            stamp.unrecognized_fields["signed_at"] = at(self._clock()).isoformat()
            text = sign(stamp, [signer_of(self._keys, root, "timestamp")], self._clock())
            if self._place.replace(_TIMESTAMP, text, expected_tag=tag) is not None:
                self._trusting.memory.note(SeenVersions(stamp.version, stamp.snapshot_meta.version))
                return Freshness(stamp.version, stamp.expires, root.expires)
            time.sleep(_PAUSE_S * attempt)
        raise _raced()

    def _resign(self, chain: Chain, tag: str) -> bool:
        """Complete an interrupted rotation: sign the same targets with the new keys."""
        chain.targets.version += 1
        return self._write((chain, tag), chain.targets) is not None

    def _write(self, before: tuple[Chain, str] | None, targets: Targets) -> Chain | None:
        """Write metadata and swap the timestamp; None if another process swapped it first.

        Versions are above all that were seen, so that consumers accept a restored backup.
        """
        root, now = self._trusting.root(), self._clock()
        known = self._trusting.memory.read()
        old, tag = before or (None, None)
        targets.version = max(targets.version, known.targets + 1)
        signer = signer_of(self._keys, root, "targets")
        targets_text = self._write_numbered(targets, lambda: sign(targets, [signer], now))
        snapshot = old.snapshot if old else Snapshot(version=1)
        snapshot.meta = {"targets.json": meta_file(targets.version, targets_text)}
        snapshot.version = max(snapshot.version + bool(old), known.snapshot + 1)
        signer_s = signer_of(self._keys, root, "snapshot")
        snapshot_text = self._write_numbered(snapshot, lambda: sign(snapshot, [signer_s], now))
        stamp = old.timestamp if old else Timestamp(version=1)
        stamp.snapshot_meta = meta_file(snapshot.version, snapshot_text)
        stamp.version = max(stamp.version + bool(old), known.timestamp + 1)
        stamp.unrecognized_fields = {
            "resign_after": (at(now) + LIVES["snapshot"] / 2).isoformat(),
            "signed_at": at(now).isoformat(),
        }
        text = sign(stamp, [signer_of(self._keys, root, "timestamp")], now)
        if not self._swap(text, tag):
            return None
        written = Chain(root, stamp, snapshot, targets, (text, snapshot_text, targets_text))
        self._trusting.memory.note(SeenVersions.of(written))
        self._prune(targets, snapshot)
        return written

    def _write_numbered(self, signed: Targets | Snapshot, make: Callable[[], bytes]) -> bytes:
        """Write metadata under the first free number; killed publishers may have used some."""
        while True:
            text = make()
            path = f"metadata/{signed.version}.{signed.type}.json"
            if self._place.write_new(path, text) is not None:
                return text
            signed.version += 1

    def _swap(self, text: bytes, tag: str | None) -> bool:
        if tag is None:
            return self._place.write_new(_TIMESTAMP, text) is not None
        return self._place.replace(_TIMESTAMP, text, expected_tag=tag) is not None

    def _prune(self, targets: Targets, snapshot: Snapshot) -> None:
        if targets.version % _KEEP_METADATA == 0:
            self._archive.prune(targets.version - _KEEP_METADATA, snapshot.version - _KEEP_METADATA)

    def _ages(self, stamp: Timestamp) -> bool:
        due = stamp.unrecognized_fields.get("resign_after")
        return not isinstance(due, str) or at(self._clock()).isoformat() >= due


def _raced() -> RaceError:
    message = (
        f"other publishers committed first {_TRIES} times in a row; nothing was published; retry"
    )
    return RaceError(message)
