"""TUF metadata chain: root, timestamp, snapshot and targets, verified together.

This module does not check expiry: online consumers use ``tuf.ngclient``, offline consumers have
their own rules, and publishers must be able to renew expired metadata.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, get_args

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Snapshot, TargetFile, Targets, Timestamp

from steersman.errors import VerificationError
from steersman.registry.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Fetch = Callable[[str, int], bytes | None]
    from collections.abc import Iterable, Mapping

    from tuf.api.metadata import TargetFile

Standing = Literal["candidate", "released", "rolled_back"]
STANDINGS: tuple[Standing, ...] = get_args(Standing)
_ENTRY = "standing"


def signed_standing(target: TargetFile) -> Standing | None:
    """Return the status of a version; None: signed without one, by an earlier release.

    An unknown status counts as candidate.

    >>> from tuf.api.metadata import TargetFile
    >>> target = TargetFile(1, {"sha256": "0" * 64}, "a/b/0.1.0/state.zst")
    >>> signed_standing(target) is None
    True
    >>> put_standing(target, "released")
    >>> signed_standing(target)
    'released'
    """
    custom = target.custom if isinstance(target.custom, dict) else {}
    if _ENTRY not in custom:
        return None
    return next((one for one in STANDINGS if one == custom[_ENTRY]), "candidate")


def put_standing(target: TargetFile, standing: Standing) -> None:
    """Set the status of a version in targets that will be signed."""
    custom = target.custom if isinstance(target.custom, dict) else {}
    target.unrecognized_fields["custom"] = {**custom, _ENTRY: standing}


def standings_of(found: Iterable[Release]) -> dict[str, Standing]:
    """Return the effective status of each version of one decision point.

    If no version has a status, an earlier release signed them all, and they count as released.
    Otherwise a version without a status is a candidate.
    """
    ours = list(found)
    unmarked: Standing = "candidate" if any(it.standing for it in ours) else "released"
    return {str(it.version): it.standing or unmarked for it in ours}


def offered(marks: Mapping[str, Standing], *, candidates: bool) -> set[str]:
    """Return the versions that a consumer may load without naming one.

    >>> offered({"0.1.0": "released", "0.2.0": "candidate"}, candidates=False)
    {'0.1.0'}
    """
    will_do = {"released", "candidate"} if candidates else {"released"}
    return {version for version, mark in marks.items() if mark in will_do}


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
    """Entry of one version in the signed targets.

    Attributes:
        skill: skill name.
        point: decision point name.
        version: version, ordered.
        state: target of the state file.
        description: target of the description file.
        number: publication number; increases with every publication.
        standing: release status; None: signed without one.
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
        root: newest root.
        timestamp: timestamp signed by the root's keys.
        snapshot: snapshot named by the timestamp.
        targets: targets named by the snapshot.
        texts: raw timestamp, snapshot and targets.
    """

    root: Root
    timestamp: Timestamp
    snapshot: Snapshot
    targets: Targets
    texts: tuple[bytes, bytes, bytes]


def read_root(data: bytes) -> Root:
    """Return a trusted root from its signed metadata.

    Raises:
        VerificationError: the data is not a root, or is not signed by its own keys.
    """
    try:
        found = _parsed(Root, data)
        found.signed.verify_delegate(Root.type, found.signed_bytes, found.signatures)
    except (RepositoryError, ValueError) as error:
        message = f"trusted root refused: {error}; copy it again from its publisher"
        raise VerificationError(message) from error
    return found.signed


def follow_root(trusted: bytes, fetch: Fetch, *, until: int | None = None) -> list[bytes]:
    """Return the chain of roots from a trusted one to the newest.

    Args:
        fetch: returns a metadata file by name and maximum size, or None.
        until: version of the last root to read; None: the newest.

    Raises:
        VerificationError: a root lacks signatures of the previous root's keys or its own.
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
    """Return the metadata named by the timestamp, all signed by a root's keys.

    Raises:
        VerificationError: a file is missing, not signed, or not the one named.
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
    """Return the timestamp, signed by a root's keys, and its raw text.

    Raises:
        VerificationError: it is missing or not signed.
    """
    text = _wanted(fetch, "timestamp.json", MAX_TIMESTAMP)
    try:
        return _signed(root, Timestamp, text), text
    except (RepositoryError, ValueError) as error:
        raise _refused(error) from error


def releases(targets: Targets) -> Iterator[Release]:
    """Yield the versions in verified targets, in no order; skip invalid names such as ``../x``."""
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
    """Return the versions of one decision point, in no order."""
    return [it for it in releases(targets) if (it.skill, it.point) == (skill, point)]


def file_of(target: TargetFile) -> str:
    """Return the path of a target below ``targets/``, with its hash in the name."""
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
        raise _refused(f"expected root version {current.version + 1}, found {found.signed.version}")
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
        message = f"{kind.type} has version {found.signed.version}, expected {version}"
        raise RepositoryError(message)
    return found.signed


def _wanted(fetch: Fetch, name: str, most: int) -> bytes:
    data = fetch(name, most)
    if data is None:
        raise _refused(f"{name} not found")
    return data


def _refused(why: object) -> VerificationError:
    message = f"registry metadata refused: {why}; restore it from a backup"
    return VerificationError(message)
