"""Publisher of a registry: new versions become visible atomically.

Order of writes: files, then numbered metadata, then the timestamp by compare and swap. A publisher
killed before that has published nothing; publishing again writes the same bytes to the same places.
Of two concurrent publishers, the later one reads again and adds its version.
"""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from tuf.api.metadata import TargetFile

from steersman.errors import InputError, MissingSnapshotError, VerificationError
from steersman.registry.archive import Archive
from steersman.registry.chain import (
    DESCRIPTION,
    STANDINGS,
    STATE,
    file_of,
    put_standing,
    releases,
    releases_of,
    standings_of,
)
from steersman.registry.description import MAX_DESCRIPTION, Description
from steersman.registry.loaded import put_head, signed_head
from steersman.registry.metadata_signer import at, first_root, sign
from steersman.registry.metadata_writer import Writer
from steersman.registry.rotation import Rotation
from steersman.registry.storage import MAX_FILE, DirectoryPlace, check_conditions
from steersman.registry.trusted_metadata import TrustedReader
from steersman.registry.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tuf.api.metadata import Root, Targets

    from steersman.registry.chain import Chain, Release, Standing
    from steersman.registry.keys import Keys, Role
    from steersman.registry.metadata_writer import Freshness
    from steersman.registry.storage import Place


class Uploads:
    """Writer of version files.

    Args:
        place: storage of the tenant's registry.
        archive: archive of the registry.
    """

    def __init__(self, place: Place, archive: Archive) -> None:
        self._place = place
        self._archive = archive

    def published(
        self, targets: Targets, data: bytes, description: Description
    ) -> Description | None:
        """Return the description signed earlier for this version, if complete or archived.

        Raises:
            VerificationError: it was published with other bytes.
            MissingSnapshotError: it was retracted.
        """
        wanted = Version.of(description.version)
        for it in releases_of(targets, description.skill, description.point):
            if it.version == wanted:
                if it.state.hashes["sha256"] != sha256(data).hexdigest():
                    raise other_bytes(description)
                return self._whole(it)
        return self._archive.find(description, data)

    def upload(self, data: bytes, description: Description) -> tuple[Description, list[TargetFile]]:
        """Write both files of a version; return its final description and both targets.

        Raises:
            VerificationError: the description is too long.
            RegistryError: writing failed.
        """
        folder = f"{description.skill}/{description.point}/{description.version}"
        state = TargetFile.from_data(f"{folder}/{STATE}", data, ["sha256"])
        tag = self._put(file_of(state), data)
        described = replace(
            description,
            size=len(data),
            sha256=state.hashes["sha256"],
            url=file_of(state),
            etag=tag,
        )
        text = msgspec.json.encode(described.to_json(), order="sorted")
        if len(text) > MAX_DESCRIPTION:
            message = f"the description has {len(text):,} bytes; the maximum is {MAX_DESCRIPTION:,}"
            raise VerificationError(f"{message}; shorten its evidence")
        target = TargetFile.from_data(f"{folder}/{DESCRIPTION}", text, ["sha256"])
        self._put(file_of(target), text)
        return described, [state, target]

    def _whole(self, release: Release) -> Description | None:
        """Return the description of a version if both files match their signatures."""
        state = self._place.read(file_of(release.state))
        text = self._place.read(file_of(release.description))
        for held, target in ((state, release.state), (text, release.description)):
            if held is None or sha256(held.data).hexdigest() != target.hashes["sha256"]:
                return None
        return Description.from_json(text.data) if text else None

    def _put(self, path: str, data: bytes) -> str:
        """Write a file named by its hash; replace a damaged file."""
        tag = self._place.write_new(path, data)
        if tag is None:
            held = self._place.read(path)
            if held is not None and held.data == data:
                return held.tag
            tag = self._place.replace(path, data, expected_tag=None)
        return str(tag)


def other_bytes(description: Description) -> VerificationError:
    """Return the error for a version that is already published with other bytes."""
    name = f"{description.skill}/{description.point} {description.version}"
    message = f"{name} is already published with other bytes; versions never change: use the next"
    return VerificationError(message)


def mark_as_they_counted(targets: Targets, skill: str, point: str) -> None:
    """Set the release status of versions published without one, by earlier releases.

    Otherwise they would count as candidates once another version has a status.
    """
    ours = releases_of(targets, skill, point)
    if all(it.standing is None for it in ours):
        for it in ours:
            put_standing(it.state, "released")


def too_many(ours: list[Release], *, keep: int, new: str, needed: Collection[str]) -> list[Release]:
    """Return the versions to archive."""
    oldest_first = sorted(ours, key=lambda it: (it.state.path == new, it.number, it.version))
    kept = {*needed, *_loaded_by_default(ours)}
    return [it for it in oldest_first[:-keep] if str(it.version) not in kept]


def _loaded_by_default(ours: list[Release]) -> set[str]:
    marks = standings_of(ours)
    found = sorted(it.version for it in ours if marks[str(it.version)] == "released")
    return {str(version) for version in {it.major: it for it in found}.values()}


class Publisher:
    """Publisher of one tenant's snapshots.

    Args:
        place: storage of the tenant's registry.
        keys: the tenant's keys.
        clock: returns seconds since 1970.
        keep: number of published versions per decision point, >= 1; older ones move to
            ``archive/``.

    Raises:
        InputError: ``keep`` is out of range.

    >>> import tempfile
    >>> from datetime import UTC, datetime
    >>> from steersman.policies import LinUCB
    >>> from steersman.registry.storage import DirectoryPlace
    >>> from steersman.registry.keys import Keys
    >>> from steersman.registry.description import describe
    >>> from steersman.registry.snapshot import pack_snapshot
    >>> state = LinUCB(["a", "b"], dim=2).state()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     publisher = Publisher(DirectoryPlace(f"{folder}/acme"), Keys(f"{folder}/keys"))
    ...     root = publisher.create("acme", "a long passphrase")
    ...     description = describe(
    ...         state,
    ...         tenant="acme",
    ...         skill="assistant",
    ...         point="route",
    ...         version="0.1.0",
    ...         created_at=datetime(2026, 1, 1, tzinfo=UTC),
    ...     )
    ...     publisher.publish(pack_snapshot(state), description).url
    'targets/assistant/route/0.1.0/....state.zst'
    """

    def __init__(
        self,
        place: Place,
        keys: Keys,
        *,
        clock: Callable[[], float] = time.time,
        keep: int = 10,
    ) -> None:
        if keep < 1:
            message = f"keep is {keep}; at least one version must stay"
            raise InputError(message)
        self.place = place
        self.keys = keys
        self._clock = clock
        self._keep = keep
        self._trusting = TrustedReader(place, keys)
        self._archive = Archive(place)
        self._uploads = Uploads(place, self._archive)
        self._writer = Writer(self._trusting, self._archive, clock)

    def create(self, tenant: str, passphrase: str, *, roots: int = 1, threshold: int = 1) -> bytes:
        """Create keys and an empty repository; existing ones are kept.

        Args:
            passphrase: passphrase of the root keys, at least 8 characters.
            roots: number of root keys; default 1.
            threshold: number of root keys that must sign a key rotation; default 1.

        Raises:
            InputError: an argument is out of range.
            SigningError: keys cannot be created or opened, or the repository has other keys, is
                missing, or was rolled back.
            RegistryError: writing failed, or the bucket has no conditional writes.
        """
        if not isinstance(self.place, DirectoryPlace):
            check_conditions(self.place)
        if not self.keys.trusted_root.exists():
            self.keys.create(passphrase, roots=roots)
            signers = self.keys.root_signers(passphrase)
            root = first_root(self.keys, signers, tenant, threshold)
            self._trusting.begin(sign(root, signers, self._clock()))
        roots_there = self._trusting.roots()
        self._same_tenant(self._trusting.root(), tenant)
        self._writer.begin()
        self._writer.read()
        return roots_there[-1]

    def leads_from(self, root: bytes) -> bool:
        """Return whether a root leads to the newest root of this registry.

        Raises:
            SigningError: this registry does not exist yet.
            RegistryError: reading the registry failed.
        """
        return self._trusting.leads_from(root)

    def publish(
        self,
        data: bytes,
        description: Description,
        *,
        needed: Collection[str] = (),
        standing: Standing = "candidate",
    ) -> Description:
        """Publish a version; publishing it again has no effect.

        Args:
            needed: versions that stay published at any age: the live version, and the arms of a
                rollout. The version that consumers load by default stays too.

        Raises:
            InputError: unknown release status.
            VerificationError: the version is published with other bytes, belongs to another
                tenant, or is too long.
            MissingSnapshotError: the version was retracted; use a new version.
            RaceError: other publishers kept committing first; retry.
            SigningError: the root does not name the online keys, or the registry was rolled
                back.
            RegistryError: reading or writing failed; nothing was published.
        """
        _check_standing(standing)
        chain, _ = self._writer.read()
        self._check(chain, data, description)
        there = self._uploads.published(chain.targets, data, description)
        if there is not None:  # a publisher killed after publication did not tidy
            self._archive.tidy(description.skill, description.point, chain.targets)
            return there
        described, targets = self._uploads.upload(data, description)
        path, point = targets[0].path, (description.skill, description.point)

        def add(found: Targets) -> bool:
            if path in found.targets:
                return False
            # Repeated on every try: another process may have published and retracted it meanwhile.
            self._archive.refuse_retracted(description)
            mark_as_they_counted(found, *point)
            targets[0].unrecognized_fields["custom"] = {"number": found.version + 1}
            put_standing(targets[0], standing)
            found.targets.update({target.path: target for target in targets})
            ours = releases_of(found, *point)
            for old in too_many(ours, keep=self._keep, new=path, needed=needed):
                self._archive.keep(old)
                _take_out(found, old)
            return True

        chain = self._writer.change(add)
        for target in targets:
            if chain.targets.targets[target.path].hashes != target.hashes:
                raise other_bytes(description)
        self._archive.tidy(description.skill, description.point, chain.targets)
        return described

    def refresh_timestamp(self) -> Freshness:
        """Sign a new timestamp, and other metadata that expires soon.

        Raises:
            RaceError: other publishers kept committing first; retry.
            SigningError: the root does not name the online keys.
            RegistryError: reading or writing the registry failed.
        """
        return self._writer.refresh()

    def accept_older(self) -> Freshness:
        """Accept a registry restored from a backup, although newer metadata was seen.

        The restored metadata is signed again with versions above all that this publisher has seen,
        so that consumers accept it. Other publishers that have seen more must do the same.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RaceError: other publishers kept committing first; retry.
            RegistryError: reading or writing the registry failed.
        """
        self._writer.accept_older()
        return self._writer.refresh()

    def rotate(self, role: Role, passphrase: str, *, new_passphrase: str | None = None) -> bytes:
        """Rotate the key of a role; this also revokes the old key.

        It can be interrupted at any step: the next rotation or publication completes it.

        Args:
            new_passphrase: passphrase of the new root keys; None: the same.

        Raises:
            InputError: unknown role, or the new passphrase is too short.
            SigningError: not enough root keys, or a wrong passphrase.
            RaceError: another rotation committed first; retry.
            RegistryError: reading or writing the registry failed.
        """
        self._writer.read()
        rotation = Rotation(self._trusting, self._clock)
        if role == "root":
            rotation.of_root(passphrase, new_passphrase or passphrase)
        else:
            rotation.of_online(role, passphrase)
        self._writer.read()
        return self._trusting.roots()[-1]

    def renew_root(self, passphrase: str) -> bytes:
        """Renew the root for a year, with the same keys.

        Raises:
            SigningError: not enough root keys, or a wrong passphrase.
            RaceError: another rotation committed first; retry.
            RegistryError: reading or writing the registry failed.
        """
        Rotation(self._trusting, self._clock).renewal(passphrase)
        return self._trusting.roots()[-1]

    def retract(self, skill: str, point: str, version: str, *, reason: str = "") -> None:
        """Retract a version permanently; its files move to the archive.

        Args:
            reason: stored with the files, at most 1000 characters.

        Raises:
            MissingSnapshotError: the version is not published.
            RaceError: other publishers kept committing first; retry.
            RegistryError: reading or writing the registry failed.
        """
        wanted = Version.of(version)

        def drop(targets: Targets) -> bool:
            found = [it for it in releases_of(targets, skill, point) if it.version == wanted]
            if not found:
                message = f"{skill}/{point} {version} is not published, so it cannot be retracted"
                raise MissingSnapshotError(message)
            note = {"at": at(self._clock()).isoformat(), "reason": reason[:1000]}
            self._archive.keep(found[0], retracted=note)
            _take_out(targets, found[0])
            return True

        chain = self._writer.change(drop)
        self._archive.tidy(skill, point, chain.targets)

    def standings(self, skill: str, point: str) -> dict[str, Standing | None]:
        """Return the release status of the published versions of a decision point.

        Returns:
            The status of each version; None: signed without one.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RegistryError: reading the registry failed.
        """
        chain, _ = self._writer.read()
        return {str(it.version): it.standing for it in releases_of(chain.targets, skill, point)}

    def mark(self, skill: str, point: str, standings: Mapping[str, Standing]) -> bool:
        """Set the release status of versions; their files and hashes stay unchanged.

        Raises:
            InputError: unknown release status.
            MissingSnapshotError: a version is not published; nothing changed.
            RaceError: other publishers kept committing first; retry.
            SigningError: the root does not name the online keys.
            RegistryError: reading or writing the registry failed.
        """
        for standing in standings.values():
            _check_standing(standing)
        changed = False

        def put(targets: Targets) -> bool:
            nonlocal changed
            found = {str(it.version): it for it in releases_of(targets, skill, point)}
            for version in standings:
                if version not in found:
                    message = f"{skill}/{point} {version} is not published, so it cannot be marked"
                    raise MissingSnapshotError(message)
            new = {name: mark for name, mark in standings.items() if found[name].standing != mark}
            for version, mark in new.items():
                put_standing(found[version].state, mark)
            changed = bool(new)
            return changed

        self._writer.change(put)
        return changed

    def listed(self) -> set[tuple[str, str, str]]:
        """Return skill, point and version of all published snapshots.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RegistryError: reading the registry failed.
        """
        chain, _ = self._writer.read()
        return {(it.skill, it.point, str(it.version)) for it in releases(chain.targets)}

    def taken(self, skill: str, point: str) -> set[str]:
        """Return all versions ever published for a decision point, retracted ones included.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RegistryError: reading the registry failed.
        """
        chain, _ = self._writer.read()
        found = {str(it.version) for it in releases_of(chain.targets, skill, point)}
        return found | self._archive.versions(skill, point)

    def anchored(self) -> tuple[int, bytes] | None:
        """Return sequence number and hash of the signed audit head; None if there is none.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RegistryError: reading the registry failed.
        """
        chain, _ = self._writer.read()
        return signed_head(chain.targets)

    def anchor(self, seq: int, digest: bytes, *, restored: bool = False) -> None:
        """Sign the head of the audit log, so that truncation and rewriting can be detected.

        Before, check that the entry returned by `anchored` is still in the log.

        Args:
            seq: sequence number of the newest entry, >= 1.
            digest: its hash, 32 bytes.

        Raises:
            InputError: a number or hash is out of range.
            VerificationError: a later entry, or another hash of this entry, is already signed.
            RaceError: other publishers kept committing first; retry.
            RegistryError: reading or writing the registry failed.
        """
        self._writer.change(lambda targets: put_head(targets, seq, digest, restored=restored))

    def _check(self, chain: Chain, data: bytes, description: Description) -> None:
        self._same_tenant(chain.root, description.tenant)
        if not 0 < len(data) <= MAX_FILE:
            message = f"the snapshot has {len(data):,} bytes; allowed are 1 to {MAX_FILE:,}"
            raise VerificationError(message)
        if description.sha256 not in (None, sha256(data).hexdigest()):
            raise other_bytes(description)

    def _same_tenant(self, root: Root, tenant: str) -> None:
        owner = root.unrecognized_fields.get("tenant")
        if tenant != owner:
            message = f"this registry belongs to tenant {owner!r}, not {tenant!r}; use its own"
            raise VerificationError(message)


def _check_standing(standing: Standing) -> None:
    if standing not in STANDINGS:
        message = f"standing is {standing!r:.80}; allowed: {', '.join(STANDINGS)}"
        raise InputError(message)


def _take_out(targets: Targets, release: Release) -> None:
    del targets.targets[release.state.path], targets.targets[release.description.path]
