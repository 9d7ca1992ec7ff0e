"""Consumer cache on disk: verified metadata and states, shared by several processes.

Writers write a temporary file and rename it, so readers need no lock. Writers of the same file
take a lock.
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
from tuf.api.exceptions import DownloadError, LengthOrHashMismatchError

from steersman.errors import MissingSnapshotError, VerificationError
from steersman.registry.chain import file_of
from steersman.registry.description import MAX_DESCRIPTION, Description
from steersman.registry.storage import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tuf.api.metadata import TargetFile

    from steersman.registry.chain import Chain, Release
    from steersman.registry.fetch import Fetcher


class SignedFiles:
    """Reader of files named by verified targets.

    Args:
        fetcher: fetcher of the registry.
        cache: cache of verified files.
        timeout_s: timeout per file, in seconds.
    """

    def __init__(self, fetcher: Fetcher, cache: Cache, timeout_s: float) -> None:
        self._fetcher = fetcher
        self._cache = cache
        self._timeout_s = timeout_s

    def description(self, chain: Chain, release: Release, *, online: bool) -> Description:
        """Return the signed description of a version.

        Raises:
            MissingSnapshotError: the file is not available.
            VerificationError: verification failed, or it describes another version.
        """
        found = Description.from_json(
            self.read(release.description, MAX_DESCRIPTION, online=online)
        )
        tenant = chain.root.unrecognized_fields.get("tenant")
        stated = found.tenant, found.skill, found.point, found.version, found.sha256
        named = release.skill, release.point, str(release.version)
        if stated != (tenant, *named, release.state.hashes["sha256"]):
            raise VerificationError(
                f"the description names {stated}, but it is signed as {named} of {tenant}; "
                "retract it"
            )
        return found

    def read(self, target: TargetFile, most: int, *, online: bool) -> bytes:
        """Return a file that matches its signed hash and length.

        Args:
            most: maximum size in bytes.

        Raises:
            MissingSnapshotError: the file is not available.
            VerificationError: it is too long, or differs from the signed file.
        """
        sha256 = target.hashes["sha256"]
        if not 0 <= target.length <= most:
            message = (
                f"{target.path} has {target.length:,} bytes; the maximum is {most:,}; retract it"
            )
            raise VerificationError(message)
        cached = self._cache.file(sha256, target.length)
        if cached is not None:
            return cached
        if not online:
            message = f"{target.path} is not in the cache, and cannot be fetched offline"
            raise MissingSnapshotError(message)
        data = self._download(target)
        try:
            self._cache.put(sha256, data)
        except OSError as error:  # verified data is valid even if the cache cannot store it
            _log.warning("%s cannot be stored in the cache: %s", target.path, error)
        return data

    def _download(self, target: TargetFile) -> bytes:
        try:
            with self._fetcher.within(self._timeout_s):
                data = self._fetcher.download_bytes(file_of(target), target.length)
            target.verify_length_and_hashes(data)
        except LengthOrHashMismatchError as error:
            message = f"{target.path} differs from the signed file: {error}; publish it again"
            raise VerificationError(message) from error
        except DownloadError as error:
            message = f"{target.path} cannot be fetched: {error}"
            raise MissingSnapshotError(message) from error
        return data


T = TypeVar("T")

_log = logging.getLogger(__name__)
_MAX_STATE = 64 << 20
_LEFT_OVER_S = 86_400.0
_NOTE_S = 1.0
_POLL_S = 0.02


class Memory(msgspec.Struct, frozen=True):
    """State of a consumer that must survive restarts.

    Attributes:
        high: latest time seen by any process, in seconds since 1970.
        healed: number of times ``high`` was lowered because the clock had been ahead.
        seen: highest version of a correctly signed timestamp, expired or not.
        verified_at: time of the last complete verification, in seconds since 1970; 0: never.
        roots: roots from the trusted one to the newest at that time.
        texts: timestamp, snapshot and targets at that time.
    """

    high: float = 0.0
    healed: int = 0
    seen: int = 0
    verified_at: float = 0.0
    roots: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


class LoadedVersion(msgspec.Struct, frozen=True):
    """A version that was loaded successfully.

    Attributes:
        version: snapshot version.
        state: hash of the state file.
        description: hash of the description file.
        chosen: whether it was the newest suitable version, not requested by name.
    """

    version: str
    state: str
    description: str
    chosen: bool


@dataclass(frozen=True)
class Cache:
    """Folder of verified metadata and states; created if missing.

    Args:
        folder: cache folder.
        keep: number of versions kept per decision point, besides the newest chosen one.
    """

    folder: Path
    keep: int

    @property
    def trust(self) -> Path:
        """Folder of ``tuf.ngclient``: it stores the newest root there."""
        return self.folder / "tuf"

    @property
    def _kept(self) -> Path:
        return self.folder / "files"

    def prepare(self) -> None:
        """Create the folders, and remove temporary files of killed processes.

        Raises:
            OSError: the folders cannot be created.
        """
        for folder in (self.trust, self._kept):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in (*self.trust.glob("tmp*"), *self.folder.rglob(".writing-*")):
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _LEFT_OVER_S:
                    left.unlink()

    @contextmanager
    def alone(self, what: str, seconds: float) -> Iterator[bool]:
        """Hold a file lock; yield whether it was acquired in time.

        Args:
            seconds: timeout in seconds of real time.

        Raises:
            OSError: the folders are missing and cannot be created.
        """
        if not (self.trust.is_dir() and self._kept.is_dir()):
            self.prepare()
        handle = os.open(self.folder / f"{what}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _locked(handle, time.monotonic() + seconds)
        finally:
            os.close(handle)

    def memory(self) -> Memory:
        """Return the stored `Memory`; an empty one if the file is missing or damaged."""
        return self._read("memory.json", Memory) or Memory()

    def remember(self, memory: Memory) -> None:
        """Replace the stored `Memory`.

        Raises:
            OSError: the file cannot be written.
        """
        self._write("memory.json", msgspec.json.encode(memory))

    def file(self, sha256: str, length: int) -> bytes | None:
        """Return a cached file if its hash and length match, else None."""
        try:
            data = read_file(self._kept / sha256, length)
        except (OSError, VerificationError):
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None

    def put(self, sha256: str, data: bytes) -> None:
        """Store a verified file under its SHA-256.

        Raises:
            OSError: the file cannot be written.
        """
        self._write(f"files/{sha256}", data)

    def good(self, skill: str, point: str) -> tuple[LoadedVersion, ...]:
        """Return the loaded versions of a decision point, the most recent first."""
        return self._goods().get(f"{skill}/{point}", ())

    def note(self, skill: str, point: str, good: LoadedVersion) -> None:
        """Record a loaded version, and remove the oldest ones beyond ``keep``.

        The newest chosen version stays, so that versions requested by name do not push it out. If
        another process holds the lock for more than a second, the version is not recorded.

        Raises:
            OSError: the record cannot be written.
        """
        if _is_noted(self.good(skill, point), good):
            return
        with self.alone("files", _NOTE_S) as ours:
            if not ours:  # only a record: serving must not wait for a process that hangs
                _log.warning(
                    "%s/%s %s is not recorded in the cache: another process holds the lock %s",
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
        """Remove files that belong to no recorded version.

        Files of versions that were only inspected, or that no policy could read, stay for a day.
        """
        for path in self._kept.iterdir():
            with suppress(FileNotFoundError):
                old = time.time() - path.stat().st_mtime > _LEFT_OVER_S
                if path.name not in used and (old or path.name in gone):
                    path.unlink()

    def _goods(self) -> dict[str, tuple[LoadedVersion, ...]]:
        return self._read("good.json", dict[str, tuple[LoadedVersion, ...]]) or {}

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(read_file(self.folder / name, _MAX_STATE), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, VerificationError, msgspec.DecodeError) as error:
            _log.warning("%s is damaged; creating it again: %s", self.folder / name, error)
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


def _is_noted(before: tuple[LoadedVersion, ...], good: LoadedVersion) -> bool:
    chosen = msgspec.structs.replace(good, chosen=True)
    return before[:1] == (good,) or (not good.chosen and chosen in before)


def _most_recent(
    before: tuple[LoadedVersion, ...], good: LoadedVersion, keep: int
) -> tuple[LoadedVersion, ...]:
    """Return the versions to keep: the most recent ones and the newest chosen one."""
    now = (good, *(it for it in before if it.version != good.version))
    served = [it for it in now if it.chosen][:1]
    return (*now[:keep], *(it for it in served if it not in now[:keep]))


def _files(good: LoadedVersion) -> tuple[str, str]:
    return good.state, good.description
