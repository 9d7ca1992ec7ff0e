"""Metadata written so that consumers see all of a change or nothing: the timestamp comes last."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 -- of a field
from typing import TYPE_CHECKING

from tuf.api.metadata import Snapshot, Targets, Timestamp

from steersman.errors import RaceError
from steersman.registry.chain import Chain
from steersman.registry.seen import Seen
from steersman.registry.signing import LIVES, at, meta_file, sign, signer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.registry.archive import Archive
    from steersman.registry.reading import Trusting

_TIMESTAMP = "metadata/timestamp.json"
_TRIES = 60
_PAUSE_S = 0.01
_KEEP_METADATA = 32


@dataclass(frozen=True)
class Freshness:
    """Until when consumers will believe what is published.

    Attributes:
        version: of the timestamp.
        expires: when it does; refresh it well before.
        root_expires: when the root does; ``renew_root`` needs its passphrase.
    """

    version: int
    expires: datetime
    root_expires: datetime


class Writer:
    """Writes a tenant's metadata.

    Args:
        trusting: reads it.
        archive: is told to prune.
        clock: returns seconds since 1970.
    """

    def __init__(self, trusting: Trusting, archive: Archive, clock: Callable[[], float]) -> None:
        self._trusting = trusting
        self._archive = archive
        self._place = trusting.place
        self._keys = trusting.keys
        self._clock = clock

    def begin(self) -> None:
        """Write the first metadata, which names no snapshots; others may have done it meanwhile.

        Raises:
            SigningError: there was some before, and it is gone.
        """
        known = self._trusting.memory.read()
        if self._place.read(_TIMESTAMP) is None:
            self._trusting.memory.refuse_empty(known)
            self._write(None, Targets(version=1))

    def read(self) -> tuple[Chain, str]:
        """Return what is published, and the tag of its timestamp."""
        return self._trusting.read(self._resign)

    def change(self, edit: Callable[[Targets], bool]) -> Chain:
        """Publish changed targets; return what holds then.

        Args:
            edit: changes the targets it is given and says whether it did; called again with
                others where somebody else published meanwhile.

        Raises:
            RaceError: others published all the time.
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
        """Sign what stands there, though it is older than what was seen, under higher numbers.

        Raises:
            RaceError: others published all the time.
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
        """Sign a new timestamp; snapshot and targets too if half of their time is over."""
        for attempt in range(_TRIES):
            root, stamp, tag = self._trusting.timestamp(self._resign)
            if self._ages(stamp):
                stamp = self.change(lambda _: True).timestamp
                return Freshness(stamp.version, stamp.expires, root.expires)
            stamp.version += 1
            stamp.unrecognized_fields["signed_at"] = at(self._clock()).isoformat()
            text = sign(stamp, [signer_of(self._keys, root, "timestamp")], self._clock())
            if self._place.replace(_TIMESTAMP, text, expected_tag=tag) is not None:
                self._trusting.memory.note(Seen(stamp.version, stamp.snapshot_meta.version))
                return Freshness(stamp.version, stamp.expires, root.expires)
            time.sleep(_PAUSE_S * attempt)
        raise _raced()

    def _resign(self, chain: Chain, tag: str) -> bool:
        """Complete an interrupted rotation: the same targets, signed with the new keys."""
        chain.targets.version += 1
        return self._write((chain, tag), chain.targets) is not None

    def _write(self, before: tuple[Chain, str] | None, targets: Targets) -> Chain | None:
        """Write metadata and swap the timestamp; None if somebody else swapped it before.

        Its numbers are above all that were seen, so that consumers go on where a backup was put
        back.
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
        self._trusting.memory.note(Seen.of(written))
        self._prune(targets, snapshot)
        return written

    def _write_numbered(self, signed: Targets | Snapshot, make: Callable[[], bytes]) -> bytes:
        """Write metadata under the first number that is free: whoever was killed left some."""
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
