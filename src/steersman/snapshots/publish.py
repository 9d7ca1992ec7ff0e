"""Publishing: a state gets a version, passes the guard and is signed.

The order makes an interrupted publisher resumable. The guard checks the state; one transaction
assigns the version and stores the packed state and the description; the registry gets these very
bytes, signed; the row is marked as published. The next call finds an unpublished version and signs
its bytes first.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from steersman.db.audit import record
from steersman.db.derived_snapshots import hold_point, hold_snapshots, hold_view, last_update
from steersman.db.erasure import count_erased
from steersman.db.points import tell_services
from steersman.db.rollouts import active_rollouts
from steersman.db.snapshots import (
    FrozenState,
    describe_reserved,
    find_snapshot,
    mark_published,
    reserve_snapshot,
    snapshots_of,
)
from steersman.db.tenants import tenant_name
from steersman.db.updates import base_state
from steersman.errors import InputError, VerificationError
from steersman.learning.candidates import Origin, declared_as, holds_line, relearn
from steersman.learning.replica import load
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import initial_policy
from steersman.points.state_bytes import compress_state, is_compressed, pack_state
from steersman.registry.description import Description, describe
from steersman.registry.snapshot import check_state, unpack_snapshot
from steersman.registry.versions import Ingredients, next_version
from steersman.snapshots.publish_guard import NewSnapshot, available, judge
from steersman.snapshots.release_marks import alone, read_known

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database
    from steersman.policies import ChoicePolicy
    from steersman.registry.chain import Standing
    from steersman.registry.snapshot import State
    from steersman.snapshots.publish_guard import Reason


class Signer(Protocol):
    """Writer of snapshots into the registry: `steersman.registry.repository.Publisher`."""

    def publish(
        self,
        data: bytes,
        description: Description,
        *,
        needed: Collection[str] = (),
        standing: Standing = "candidate",
    ) -> Description:
        """Sign a snapshot; a repeated call changes nothing.

        Args:
            data: packed and compressed state.
        """


@runtime_checkable
class VersionHistory(Protocol):
    """Signer that lists every signed version, even after a database restore."""

    def taken(self, skill: str, point: str) -> Collection[str]:
        """Return all versions ever published for a decision point."""


async def publish(
    database: Database,
    row: PointRow,
    signer: Signer,
    reason: Reason,
    *,
    spec: str | None = None,
    trained: ChoicePolicy | None = None,
    grown_from: Collection[UUID] = (),
) -> Description:
    """Publish the learned state of a decision point.

    Alternatives: a candidate relearned under another declaration (`spec`), or a policy trained from
    the log (`trained`) as a candidate under the current declaration.

    If nothing is new since the last version, that version is returned. A version left unpublished
    by an interrupted call is published first; it is returned if it is the requested state.

    Args:
        spec: YAML of the candidate's declaration; None for the live declaration.
        trained: a policy that matches the declaration; None for the learned state. Train it without
            the units selected by `steersman.db.held_out.is_held_out`, which judge it.

    Raises:
        GuardError: the guard rejected the state; no version was assigned.
        InputError: the candidate is not comparable with the live version, the trained policy does
            not match the declaration, or one of its decisions was erased meanwhile.
        SpecError: the candidate's declaration is invalid.
        RaceError: another process has been publishing this point for over a minute.
        VerificationError: the stored state of a waiting version is damaged; retract that version.
        RegistryError: signing failed; the version waits for the next call.
        StoreError: the database is unreachable.
    """
    point = row.tenant, row.skill, row.point
    wanted = row if spec is None else declared_as(row, spec)
    if trained is not None:
        _check_declared(row, trained)
    connection = await database.connect("worker")
    try:
        async with alone(connection, point):
            found = await _waiting(connection, row, wanted)
            while found is not None and (trained is not None or not holds_line(found)):
                await _sign(connection, point, found, signer, reason)
                found = await _waiting(connection, row, wanted)
            if found is None and trained is None:
                found = await _latest(connection, row, wanted)
            if found is None:
                taken = await _taken(signer, row)
                found = await _reserve(
                    connection, row, wanted, spec, reason, trained, grown_from, taken
                )  # fmt: skip
            if found.published_at is not None:
                return Description.from_json(found.description or {})
            return await _sign(connection, point, found, signer, reason)
    finally:
        await connection.close()


async def _waiting(connection: Any, row: PointRow, wanted: PointRow) -> SnapshotRow | None:
    point = row.tenant, row.skill, row.point
    async with as_tenant(connection, row.tenant):
        known = {one.version: one for one in await snapshots_of(connection, point)}
    for one in known.values():
        given_out = one.reason == "published" and one.description is not None and one.is_stored
        if not given_out or one.published_at is not None or one.retracted_at is not None:
            continue
        line = known.get(one.line or "")
        own = one.line == row.snapshot
        relearned = line is not None and line.parent == row.snapshot and not own
        if (own and wanted is row) or (relearned and one.spec_hash == wanted.spec_hash):
            return one
    return None


async def _latest(connection: Any, row: PointRow, wanted: PointRow) -> SnapshotRow | None:
    """Return the version of the current live state, if any."""
    point = row.tenant, row.skill, row.point
    async with as_tenant(connection, row.tenant):
        held = await hold_snapshots(connection, point)
        seq = await last_update(connection, point)
        known = available(await snapshots_of(connection, point))
    for one in reversed(known):
        if wanted is not row:
            origin = Origin.of((one.description or {}).get("evidence"))
            same = origin is not None and (origin.line, origin.seq) == (held.snapshot, seq)
            if same and one.spec_hash == wanted.spec_hash:
                return one
        elif not holds_line(one):
            continue
        elif (one.line, one.line_seq) == (held.snapshot, seq) or (
            seq == 0 and one.version == held.snapshot
        ):
            return one
    return None


async def _taken(signer: Signer, row: PointRow) -> Collection[str]:
    """Return the versions in the registry; a restored database may lack some."""
    if not isinstance(signer, VersionHistory):
        return ()
    return await asyncio.to_thread(signer.taken, row.skill, row.point)


async def _reserve(
    connection: Any,
    row: PointRow,
    wanted: PointRow,
    spec: str | None,
    reason: Reason,
    trained: ChoicePolicy | None,
    grown_from: Collection[UUID],
    taken: Collection[str],
) -> SnapshotRow:
    """Create the state, run the guard and assign a version, all or nothing."""
    point = row.tenant, row.skill, row.point
    async with as_tenant(connection, row.tenant):
        row = await hold_snapshots(connection, point)
        if trained is not None:
            made = NewSnapshot(row, trained, await last_update(connection, point))
            reason = replace(reason, evidence={**(reason.evidence or {}), "trained": True})
        elif spec is None:
            replica = await load(connection, row)
            made = NewSnapshot(row, replica.policy, replica.seq)
        else:
            seq = await last_update(connection, point)
            new = await relearn(connection, row, wanted, spec, seq)
            made = NewSnapshot(new.row, new.policy, new.seq, new.origin)
        evidence = await judge(connection, made, reason)
        await hold_point(connection, point)  # blocks erasures until they can find the version
        if gone := await count_erased(connection, grown_from):
            raise InputError(
                f"{gone} of its {len(grown_from):,} training selections were erased "
                "after they were read; nothing was published; train again"
            )
        return await _frozen(connection, made, evidence, reason, taken)


def _check_declared(row: PointRow, trained: ChoicePolicy) -> None:
    """Raise an error if the trained policy does not match the declaration."""
    declared, given = (
        json.loads(policy.state()["meta"].tobytes())
        for policy in (initial_policy(row.spec), trained)
    )
    same = all(declared[name] == given[name] for name in ("algorithm", "version", "config"))
    if not same or row.spec.learning.mode != "frozen":
        raise InputError(
            f"the trained policy does not match {row.skill}/{row.point} ({given['algorithm']}, "
            f"{given['config']!r:.200}), or the point learns online; declare it as frozen"
        )


async def _frozen(
    connection: Any,
    made: NewSnapshot,
    evidence: dict[str, Any],
    reason: Reason,
    signed: Collection[str],
) -> SnapshotRow:
    row, state = made.row, made.policy.state()
    point = row.tenant, row.skill, row.point
    data, digest = await asyncio.to_thread(_packed, state)
    described = describe(
        state,
        tenant=await tenant_name(connection, row.tenant),
        skill=row.skill,
        point=row.point,
        version=row.snapshot,
        created_at=(await find_snapshot(connection, point, row.snapshot)).created_at,
        feature_hash=row.feature_hash.hex(),
        spec_hash=row.spec_hash.hex(),
        parents=(row.snapshot,),
        line=row.snapshot,
        line_seq=made.seq,
        git_commit=reason.git_commit,
        evidence=evidence,
        state_sha256=digest,
    )
    frozen = FrozenState(
        line=row.snapshot,
        line_seq=made.seq,
        spec_hash=row.spec_hash,
        feature_hash=row.feature_hash,
        state=data,
        algorithm=described.algorithm,
        samples=described.samples,
    )
    own = Ingredients.of(row.spec, row.snapshot)
    reserved = await reserve_snapshot(
        connection, point, frozen, lambda taken: next_version(own, own, {*taken, *signed})
    )
    if reserved.description is not None:
        return reserved
    described = replace(described, version=reserved.version, created_at=reserved.created_at)
    return await describe_reserved(connection, point, reserved.version, described.to_json())


def _packed(state: State) -> tuple[bytes, str]:
    """Return the bytes to store and sign, and the hash of the state before compression."""
    check_state(state)
    plain = pack_state(state)
    return compress_state(plain), sha256(plain).hexdigest()


async def _sign(
    connection: Any, point: Point, found: SnapshotRow, signer: Signer, reason: Reason
) -> Description:
    async with as_tenant(connection, point[0]):
        data = await base_state(connection, point, found.version)
        needed = await _needed(connection, point)
        standing = (await read_known(connection, point)).standing(found.version)
    described = Description.from_json(found.description or {})
    data = await asyncio.to_thread(_checked, data, described)
    signed = await asyncio.to_thread(
        signer.publish, data, described, needed=needed, standing=standing
    )
    async with as_tenant(connection, point[0]):
        await mark_published(connection, point, found.version, signed.to_json())
        detail = {
            "version": found.version,
            "line": found.line,
            "line_seq": found.line_seq,
            "sha256": signed.sha256,
            "standing": standing,
            "overruled": signed.evidence.get("overruled"),
            "force": signed.evidence.get("force"),
        }
        name = f"{point[1]}/{point[2]}"
        await record(connection, point[0], reason.actor, "snapshot.publish", name, detail)
        await tell_services(connection, point)
    return signed


def _checked(data: bytes, described: Description) -> bytes:
    """Return the stored bytes as they are signed, after the checks that consumers repeat."""
    if not is_compressed(data):  # reserved by a release that stored uncompressed states
        data = compress_state(data)
    try:
        check_state(unpack_snapshot(data, state_sha256=described.state_sha256))
    except VerificationError as error:
        which = f"{described.skill} {described.point} {described.version}"
        message = (
            f"{which} was not signed, because its stored state is invalid ({error}); run "
            f"`steersman snapshot retract {which} --tenant {described.tenant} --reason damaged`, "
            "then publish again"
        )
        raise VerificationError(message) from None
    return data


async def _needed(connection: Any, point: Point) -> set[str]:
    """Return the versions that services load: live version and rollout arms."""
    row = await hold_view(connection, point)
    arms = [
        (one.candidate, one.control)
        for one in await active_rollouts(connection, point[0])
        if (one.skill, one.point) == point[1:]
    ]
    return {row.snapshot}.union(*arms)
