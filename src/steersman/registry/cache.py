"""What a consumer keeps on disk, shared by all processes that name the same folder.

Every file is written whole beside its place and moved there, so readers need no lock; those who
change the same file take turns.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import msgspec

from steersman.errors import VerificationError
from steersman.registry.place import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")

_log = logging.getLogger(__name__)
_MAX_STATE = 64 << 20
_LEFT_OVER_S = 86_400.0
_NOTE_S = 1.0
_POLL_S = 0.02


class Memory(msgspec.Struct, frozen=True):
    """What must not be forgotten between processes.

    Attributes:
        high: the latest time that any process saw, in seconds since 1970.
        healed: how often ``high`` was lowered, since the clock had been ahead.
        seen: the highest number of a timestamp whose signature was good, expired or not.
        verified_at: when everything verified last; 0: never.
        roots: the roots from the trusted one to the newest then.
        texts: timestamp, snapshot and targets of then.
    """

    high: float = 0.0
    healed: int = 0
    seen: int = 0
    verified_at: float = 0.0
    roots: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


class Good(msgspec.Struct, frozen=True):
    """A version that was loaded once.

    Attributes:
        version: of the snapshot.
        state: hash of its state's file.
        description: hash of its description's file.
        chosen: whether it was the newest that could be had, rather than asked for by name.
    """

    version: str
    state: str
    description: str
    chosen: bool


@dataclass(frozen=True)
class Cache:
    """A folder for verified metadata and states.

    Args:
        folder: made if it is not there.
        keep: how many versions of each decision point stay, beside the newest that was chosen.
    """

    folder: Path
    keep: int

    @property
    def trust(self) -> Path:
        """Where ``tuf.ngclient`` keeps what it must remember, such as the newest root."""
        return self.folder / "tuf"

    @property
    def _kept(self) -> Path:
        return self.folder / "files"

    def prepare(self) -> None:
        """Make the folders, and remove what killed processes left in them.

        Raises:
            OSError: they cannot be made.
        """
        for folder in (self.trust, self._kept):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in (*self.trust.glob("tmp*"), *self.folder.rglob(".writing-*")):
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _LEFT_OVER_S:
                    left.unlink()

    @contextmanager
    def alone(self, what: str, seconds: float) -> Iterator[bool]:
        """Keep others out while something is changed; what was tidied away is made again.

        Args:
            what: names the lock.
            seconds: the longest wait, of real time.

        Yields:
            Whether it was our turn in time.

        Raises:
            OSError: the folders are gone, and cannot be made.
        """
        if not (self.trust.is_dir() and self._kept.is_dir()):
            self.prepare()
        handle = os.open(self.folder / f"{what}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _locked(handle, time.monotonic() + seconds)
        finally:
            os.close(handle)

    def memory(self) -> Memory:
        """Return what is remembered; nothing where it is damaged: then only newer counts."""
        return self._read("memory.json", Memory) or Memory()

    def remember(self, memory: Memory) -> None:
        """Replace what is remembered.

        Args:
            memory: all of it.

        Raises:
            OSError: it cannot be written.
        """
        self._write("memory.json", msgspec.json.encode(memory))

    def file(self, sha256: str, length: int) -> bytes | None:
        """Return a file that is as it was when it verified.

        Args:
            sha256: its hash, 64 hexadecimal digits.
            length: its length.
        """
        try:
            data = read_file(self._kept / sha256, length)
        except (OSError, VerificationError):
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None

    def put(self, sha256: str, data: bytes) -> None:
        """Keep a file that verified.

        Args:
            sha256: its hash, 64 hexadecimal digits.
            data: its content.

        Raises:
            OSError: it cannot be written.
        """
        self._write(f"files/{sha256}", data)

    def good(self, skill: str, point: str) -> tuple[Good, ...]:
        """Return the versions of a decision point that were loaded, the last one first.

        Args:
            skill: of the decision point.
            point: its name.
        """
        return self._goods().get(f"{skill}/{point}", ())

    def note(self, skill: str, point: str, good: Good) -> None:
        """Note a version that was loaded, and let go of those that are too many.

        The newest that was chosen stays: others that were asked for by name must not push out what
        serves. Where another process is at it for longer than a second, nothing is noted.

        Args:
            skill: of the decision point.
            point: its name.
            good: the version.

        Raises:
            OSError: it cannot be written.
        """
        if _is_noted(self.good(skill, point), good):
            return
        with self.alone("files", _NOTE_S) as ours:
            if not ours:  # it is only noted: what is served must not wait for who hangs
                _log.warning(
                    "%s/%s %s is not noted in the cache: another process holds %s",
                    skill,
                    point,
                    good.version,
                    self.folder / "files.lock",
                )
                return
            goods = self._goods()
            before = goods.get(f"{skill}/{point}", ())
            goods[f"{skill}/{point}"] = _most_recent(before, good, self.keep)
            self._write("good.json", msgspec.json.encode(goods))
            used = {name for them in goods.values() for it in them for name in _files(it)}
            self._sweep(used, {name for it in before for name in _files(it)})

    def _sweep(self, used: set[str], gone: set[str]) -> None:
        """Remove files that no noted version has: those let go now, and others that lay for a day.

        The latter are of versions that were only looked at, or that no policy could read.
        """
        for path in self._kept.iterdir():
            with suppress(FileNotFoundError):
                old = time.time() - path.stat().st_mtime > _LEFT_OVER_S
                if path.name not in used and (old or path.name in gone):
                    path.unlink()

    def _goods(self) -> dict[str, tuple[Good, ...]]:
        return self._read("good.json", dict[str, tuple[Good, ...]]) or {}

    def _read(self, name: str, kind: type[T]) -> T | None:
        """Return what a file of the cache says; None if it is not there, or damaged."""
        try:
            return msgspec.json.decode(read_file(self.folder / name, _MAX_STATE), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, VerificationError, msgspec.DecodeError) as error:
            _log.warning("%s is damaged, and made anew: %s", self.folder / name, error)
            return None

    def _write(self, name: str, data: bytes) -> None:
        target = self.folder / name
        draft = target.with_name(f".writing-{uuid4().hex}")
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


def _locked(handle: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _is_noted(before: tuple[Good, ...], good: Good) -> bool:
    """Return whether a version is the last one, or asked for by name after it was chosen."""
    chosen = msgspec.structs.replace(good, chosen=True)
    return before[:1] == (good,) or (not good.chosen and chosen in before)


def _most_recent(before: tuple[Good, ...], good: Good, keep: int) -> tuple[Good, ...]:
    """Return the versions that stay: the last ones, and the newest that was chosen."""
    now = (good, *(it for it in before if it.version != good.version))
    served = [it for it in now if it.chosen][:1]
    return (*now[:keep], *(it for it in served if it not in now[:keep]))


def _files(good: Good) -> tuple[str, str]:
    return good.state, good.description
