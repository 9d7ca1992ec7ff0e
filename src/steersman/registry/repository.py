"""Publishing: signed versions appear for consumers all at once, or not at all.

Files are written first, then metadata under numbers of its own, then the one file that names
them: the timestamp, by compare and swap. Whoever is killed before that has published nothing, and
publishing again writes the same bytes to the same places. Of two who publish at the same time the
later one reads again and adds its own.
"""

from __future__ import annotations

import time
from hashlib import sha256
from typing import TYPE_CHECKING

from steersman.errors import InputError, MissingSnapshotError, VerificationError
from steersman.registry.archive import Archive
from steersman.registry.chain import releases, releases_of
from steersman.registry.heads import put_head, signed_head
from steersman.registry.keeping import mark_as_they_counted, too_many
from steersman.registry.place import MAX_FILE, DirectoryPlace
from steersman.registry.probing import check_conditions
from steersman.registry.reading import Trusting
from steersman.registry.rotation import Rotation
from steersman.registry.signing import at, first_root, sign
from steersman.registry.standings import STANDINGS, put_standing
from steersman.registry.uploading import Uploads, other_bytes
from steersman.registry.versions import Version
from steersman.registry.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tuf.api.metadata import Root, Targets

    from steersman.registry.chain import Chain, Release
    from steersman.registry.description import Description
    from steersman.registry.keys import Keys, Role
    from steersman.registry.place import Place
    from steersman.registry.standings import Standing
    from steersman.registry.writing import Freshness


class Publisher:
    """Publishes one tenant's snapshots.

    Args:
        place: the tenant's own part of the registry.
        keys: the tenant's keys.
        clock: returns seconds since 1970.
        keep: how many versions of a decision point consumers find, >= 1; older ones go to
            ``archive/``.

    Raises:
        InputError: ``keep`` is out of range.

    >>> import tempfile
    >>> from datetime import UTC, datetime
    >>> from steersman.policies import LinUCB
    >>> from steersman.registry import DirectoryPlace, Keys, describe, pack_snapshot
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
        self._trusting = Trusting(place, keys)
        self._archive = Archive(place)
        self._uploads = Uploads(place, self._archive)
        self._writer = Writer(self._trusting, self._archive, clock)

    def create(self, tenant: str, passphrase: str, *, roots: int = 1, threshold: int = 1) -> bytes:
        """Make keys and an empty repository; what is there already is kept.

        Args:
            tenant: name, as descriptions give it.
            passphrase: of the root keys, at least 8 characters.
            roots: how many root keys are made.
            threshold: how many of them must sign a change of keys.

        Returns:
            The root metadata that consumers have to be given, over a way that they trust.

        Raises:
            InputError: an argument is out of range.
            SigningError: keys cannot be made or opened, or the repository has other ones, or is
                gone or older than it was.
            RegistryError: the place cannot be written, or is a bucket without conditional writes.
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
        """Return whether consumers who trust a root come to believe this registry.

        Args:
            root: metadata, as `create` returned it once, of this registry or of another.

        Raises:
            SigningError: this registry was not created yet.
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
        """Publish a version; publishing it again changes nothing.

        Args:
            data: of ``pack_snapshot``.
            description: of its state; what only the place knows is added.
            needed: versions of the point that stay however old they are: what serves, and the
                arms of a rollout. What consumers load without naming a version stays too.
            standing: what it is: consumers load a candidate only where they name it or ask for
                candidates. One that is published already keeps its mark; `mark` changes it.

        Returns:
            The description as it was signed: with size, hash, url and etag. Of a version that is in
            the archive the one given, completed: nothing there is signed any more.

        Raises:
            InputError: no such standing.
            VerificationError: this version was published with other bytes, or is of another
                tenant, or is too long.
            MissingSnapshotError: this version was retracted; publish under a new one.
            RaceError: other publishers kept committing first; retry.
            SigningError: the online keys are not the ones that count, or the registry is older than
                it was.
            RegistryError: reading or writing failed; nothing was published.
        """
        _check_standing(standing)
        chain, _ = self._writer.read()
        self._check(chain, data, description)
        there = self._uploads.published(chain.targets, data, description)
        if there is not None:  # whoever published it may have been killed right after
            self._archive.tidy(description.skill, description.point, chain.targets)
            return there
        described, targets = self._uploads.upload(data, description)
        path, point = targets[0].path, (description.skill, description.point)

        def add(found: Targets) -> bool:
            if path in found.targets:
                return False
            # Again on every try: it may have been retracted since somebody else published it.
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
        """Sign a new timestamp, and what else expires soon; nothing else changes.

        Returns:
            Until when the registry is believed.

        Raises:
            RaceError: other publishers kept committing first; retry.
            SigningError: the root does not name the online keys.
            RegistryError: reading or writing the registry failed.
        """
        return self._writer.refresh()

    def accept_older(self) -> Freshness:
        """Go on with a registry that was restored from a backup, though newer metadata was seen.

        What stands there is signed under numbers above all that this publisher has seen, so
        consumers go on, too. Other publishers that have seen more have to do the same.

        Returns:
            Until when the registry is believed.

        Raises:
            VerificationError: what stands there is not signed by the tenant's keys.
            RaceError: other publishers kept committing first; retry.
            RegistryError: reading or writing the registry failed.
        """
        self._writer.accept_older()
        return self._writer.refresh()

    def rotate(self, role: Role, passphrase: str, *, new_passphrase: str | None = None) -> bytes:
        """Replace a role's key; the old one counts no more. This is also how a key is revoked.

        May be interrupted at any step: the next rotation or publication completes it.

        Args:
            role: root, targets, snapshot or timestamp.
            passphrase: passphrase of the root keys.
            new_passphrase: for the new root keys; None: the same one.

        Returns:
            The new root metadata. Consumers follow by themselves.

        Raises:
            InputError: no such role, or the new passphrase is too short.
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
        """Sign the root anew for a year, with the same keys.

        Args:
            passphrase: passphrase of the root keys.

        Returns:
            The new root metadata. Consumers follow by themselves.

        Raises:
            SigningError: not enough root keys, or a wrong passphrase.
            RaceError: another rotation committed first; retry.
            RegistryError: reading or writing the registry failed.
        """
        Rotation(self._trusting, self._clock).renewal(passphrase)
        return self._trusting.roots()[-1]

    def retract(self, skill: str, point: str, version: str, *, reason: str = "") -> None:
        """Take a version out of what consumers find, for good; its files go to the archive.

        Args:
            skill: skill name.
            point: decision point name.
            version: must be published now.
            reason: kept beside the files, at most 1000 characters.

        Raises:
            MissingSnapshotError: it is not published.
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
        """Return how the versions of a decision point that consumers find are marked.

        Args:
            skill: skill name.
            point: decision point name.

        Returns:
            The mark of each version; None: it was signed without one.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RegistryError: reading the registry failed.
        """
        chain, _ = self._writer.read()
        return {str(it.version): it.standing for it in releases_of(chain.targets, skill, point)}

    def mark(self, skill: str, point: str, standings: Mapping[str, Standing]) -> bool:
        """Sign what versions are from now on; their files and hashes stay as they are.

        Args:
            skill: skill name.
            point: decision point name.
            standings: of each version that is to be marked; others keep what they have.

        Returns:
            Whether anything changed.

        Raises:
            InputError: no such standing.
            MissingSnapshotError: a version is not published; nothing was changed.
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
        """Return skill, point and version of everything that consumers find.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RegistryError: reading the registry failed.
        """
        chain, _ = self._writer.read()
        return {(it.skill, it.point, str(it.version)) for it in releases(chain.targets)}

    def taken(self, skill: str, point: str) -> set[str]:
        """Return the versions of a decision point that were ever published, also retracted ones.

        Args:
            skill: skill name.
            point: decision point name.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RegistryError: reading the registry failed.
        """
        chain, _ = self._writer.read()
        found = {str(it.version) for it in releases_of(chain.targets, skill, point)}
        return found | self._archive.versions(skill, point)

    def anchored(self) -> tuple[int, bytes] | None:
        """Return number and hash of the audit's entry that was signed; None if none was.

        Raises:
            VerificationError: the metadata is not signed by the tenant's keys.
            RegistryError: reading the registry failed.
        """
        chain, _ = self._writer.read()
        return signed_head(chain.targets)

    def anchor(self, seq: int, digest: bytes, *, restored: bool = False) -> None:
        """Sign the head of the audit log, so that nobody can shorten or rewrite it unseen.

        See to it before that what `anchored` returns is among its entries still.

        Args:
            seq: of the newest entry, >= 1.
            digest: its hash, 32 bytes.
            restored: whether a person says that the log was restored from a backup, so that this
                head takes the place of one that it does not follow.

        Raises:
            InputError: a number or hash out of range.
            VerificationError: a later entry was signed before, or another hash of this one.
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
