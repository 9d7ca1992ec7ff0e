"""TUF metadata read and verified as one: root, timestamp, snapshot, targets.

The rules of expiry are not here: a consumer that goes online leaves them to ``tuf.ngclient``, one
that is offline has rules of its own, and a publisher must be able to renew what has expired.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Snapshot, TargetFile, Targets, Timestamp

from steersman.errors import VerificationError
from steersman.registry.standings import signed_standing
from steersman.registry.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from steersman.registry.standings import Standing

    Fetch = Callable[[str, int], bytes | None]

T = TypeVar("T", Root, Timestamp, Snapshot, Targets)

MAX_ROOT = 512_000
MAX_TIMESTAMP = 16_384
MAX_SNAPSHOT = 2_000_000
MAX_TARGETS = 16_000_000
MAX_ROTATIONS = 256
STATE = "state.zst"
DESCRIPTION = "description.json"
_NAME = r"[A-Za-z][A-Za-z0-9_]{0,63}"
_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_PATH = re.compile(
    rf"({_NAME})/({_NAME})/({_NUMBER}\.{_NUMBER}\.{_NUMBER})/(state\.zst|description\.json)",
    re.ASCII,
)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Release(NamedTuple):
    """What the signed targets say of one version.

    Attributes:
        skill: of the decision point.
        point: its name.
        version: in its order.
        state: the target that holds the state.
        description: the target that describes it.
        number: grows with every publication.
        standing: its mark; None: it was signed without one.
    """

    skill: str
    point: str
    version: Version
    state: TargetFile
    description: TargetFile
    number: int
    standing: Standing | None


@dataclass(frozen=True)
class Chain:
    """Metadata that verified together.

    Args:
        root: the newest.
        timestamp: signed by the root's keys.
        snapshot: the one the timestamp names.
        targets: the one the snapshot names.
        texts: timestamp, snapshot and targets as they were read.
    """

    root: Root
    timestamp: Timestamp
    snapshot: Snapshot
    targets: Targets
    texts: tuple[bytes, bytes, bytes]


def read_root(data: bytes) -> Root:
    """Return a root that is trusted, as whoever gave it says.

    Args:
        data: the metadata, signed by its own keys.

    Raises:
        VerificationError: it is no root, or its own keys did not sign it.
    """
    try:
        found = _parsed(Root, data)
        found.signed.verify_delegate(Root.type, found.signed_bytes, found.signatures)
    except (RepositoryError, ValueError) as error:
        message = f"the trusted root is refused: {error}; copy it again from who made it"
        raise VerificationError(message) from error
    return found.signed


def follow_root(trusted: bytes, fetch: Fetch, *, until: int | None = None) -> list[bytes]:
    """Return the chain of roots from a trusted one to the newest, each signed by the one before.

    Args:
        trusted: the metadata that is trusted to begin with.
        fetch: returns a metadata file by name, at most so many bytes, or None.
        until: version of the last one that is wanted; None: the newest.

    Raises:
        VerificationError: a root is not signed by enough keys of the one before and its own.
    """
    roots = [trusted]
    current = read_root(trusted)
    for number in range(current.version + 1, current.version + 1 + MAX_ROTATIONS):
        data = fetch(f"{number}.root.json", MAX_ROOT) if number <= (until or number) else None
        if data is None:
            break
        current = _next_root(current, data)
        roots.append(data)
    return roots


def read_chain(root: Root, fetch: Fetch) -> Chain:
    """Return the metadata that a timestamp names, all signed by a root's keys.

    Args:
        root: whose keys must have signed.
        fetch: returns a metadata file by name, at most so many bytes, or None.

    Raises:
        VerificationError: something is missing, not signed, or not what was named.
    """
    stamp, stamp_text = read_timestamp(root, fetch)
    meta = stamp.snapshot_meta
    snapshot_text = _wanted(fetch, f"{meta.version}.snapshot.json", MAX_SNAPSHOT)
    try:
        meta.verify_length_and_hashes(snapshot_text)
        snapshot = _signed(root, Snapshot, snapshot_text, meta.version)
        meta = snapshot.meta["targets.json"]
        targets_text = _wanted(fetch, f"{meta.version}.targets.json", MAX_TARGETS)
        meta.verify_length_and_hashes(targets_text)
        targets = _signed(root, Targets, targets_text, meta.version)
    except (RepositoryError, ValueError, KeyError) as error:
        raise _refused(error) from error
    return Chain(root, stamp, snapshot, targets, (stamp_text, snapshot_text, targets_text))


def read_timestamp(root: Root, fetch: Fetch) -> tuple[Timestamp, bytes]:
    """Return the timestamp, signed by a root's keys, and its text.

    Args:
        root: whose key must have signed.
        fetch: returns a metadata file by name, at most so many bytes, or None.

    Raises:
        VerificationError: it is missing or not signed.
    """
    text = _wanted(fetch, "timestamp.json", MAX_TIMESTAMP)
    try:
        return _signed(root, Timestamp, text), text
    except (RepositoryError, ValueError) as error:
        raise _refused(error) from error


def releases(targets: Targets) -> Iterator[Release]:
    """Yield the versions that signed targets name, in no order.

    Names that no snapshot has, such as ones that lead out of a folder, are not among them.

    Args:
        targets: verified.
    """
    for path, target in targets.targets.items():
        found = _PATH.fullmatch(path)
        if found is None or found[4] != STATE or not _well_hashed(target):
            continue
        skill, point, version = found.group(1, 2, 3)
        described = targets.targets.get(f"{skill}/{point}/{version}/{DESCRIPTION}")
        if described is not None and _well_hashed(described):
            number, standing = _number(target), signed_standing(target)
            yield Release(skill, point, Version.of(version), target, described, number, standing)


def releases_of(targets: Targets, skill: str, point: str) -> list[Release]:
    """Return the versions of one decision point, in no order.

    Args:
        targets: verified.
        skill: of the decision point.
        point: its name.
    """
    return [it for it in releases(targets) if (it.skill, it.point) == (skill, point)]


def file_of(target: TargetFile) -> str:
    """Return where a target lies: below ``targets/``, with its hash in its name.

    Args:
        target: of `releases`, so its names and hash are plain.
    """
    folder, _, name = target.path.rpartition("/")
    return f"targets/{folder}/{target.hashes['sha256']}.{name}"


def _number(target: TargetFile) -> int:
    number = target.custom.get("number") if isinstance(target.custom, dict) else None
    return number if isinstance(number, int) else 0


def _well_hashed(target: TargetFile) -> bool:
    return list(target.hashes) == ["sha256"] and bool(_HASH.fullmatch(target.hashes["sha256"]))


def _next_root(current: Root, data: bytes) -> Root:
    try:
        found = _parsed(Root, data)
        current.verify_delegate(Root.type, found.signed_bytes, found.signatures)
        found.signed.verify_delegate(Root.type, found.signed_bytes, found.signatures)
    except (RepositoryError, ValueError) as error:
        raise _refused(error) from error
    if found.signed.version != current.version + 1:
        raise _refused(f"root {found.signed.version} stands where {current.version + 1} belongs")
    return found.signed


def _parsed(kind: type[T], data: bytes) -> Metadata[T]:
    found: Metadata[T] = Metadata.from_bytes(data)
    if found.signed.type != kind.type:
        message = f"expected {kind.type}, found {found.signed.type}"
        raise RepositoryError(message)
    return found


def _signed(root: Root, kind: type[T], data: bytes, version: int | None = None) -> T:
    found = _parsed(kind, data)
    root.verify_delegate(kind.type, found.signed_bytes, found.signatures)
    if version is not None and found.signed.version != version:
        message = f"{kind.type} has version {found.signed.version}, named was {version}"
        raise RepositoryError(message)
    return found.signed


def _wanted(fetch: Fetch, name: str, most: int) -> bytes:
    data = fetch(name, most)
    if data is None:
        raise _refused(f"there is no {name}")
    return data


def _refused(why: object) -> VerificationError:
    message = f"the registry's metadata is refused: {why}; restore it from a copy"
    return VerificationError(message)
