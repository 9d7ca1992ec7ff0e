"""Promotion: a published snapshot goes live, with all updates learned since.

If the snapshot was frozen from the live lineage, the later updates are copied unchanged; the new
state then equals the old one bit by bit. A candidate under another declaration relearns the updates
with its own encoding. Promotion runs in the caller's transaction, which locks the point. Learning
waits meanwhile; decisions continue.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from steersman.db.audit import record
from steersman.db.derived_snapshots import Segment, hold_point
from steersman.db.promotion import last_number, promote_snapshot
from steersman.db.rewards import learned_of, spec_of
from steersman.db.snapshots import Stretch, decisions_learned, find_snapshot, line_of, same_update
from steersman.db.updates import base_state, newest_checkpoint, write_checkpoint
from steersman.errors import StateError
from steersman.features import FeatureMap
from steersman.learning.candidates import Origin
from steersman.learning.relearn import Relearner
from steersman.platform.postgres.database import allow_long
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import pack_state, unpack_state
from steersman.registry.versions import Ingredients

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.rewards import CreditedUpdate
    from steersman.db.snapshots import SnapshotRow
    from steersman.db.work_queue import Point

_AT_ONCE = 2000  # decisions per batch


@dataclass(frozen=True, slots=True)
class PromotionResult:
    """Result of a promotion.

    Attributes:
        before: previous live snapshot.
        snapshot: new live snapshot.
        seq: number of its updates, learned since it was frozen.
        excluded: updates left out by an exclusion or an erasure.
        lost: updates that it cannot learn.
    """

    before: str
    snapshot: str
    seq: int
    excluded: int = 0
    lost: int = 0


async def promote(
    connection: Any,
    point: Point,
    version: str,
    *,
    actor: str,
    reason: str,
    rollout: UUID | None = None,
) -> PromotionResult:
    """Make a published snapshot live, in the caller's transaction.

    Args:
        rollout: the rollout that justifies it; None for a manual promotion.

    Raises:
        StateError: the version does not exist, may not go live, is already live, comes from a
            superseded lineage (publish it again), or was live before.
    """
    row = await hold_point(connection, point)
    target = await find_snapshot(connection, point, version)
    if version == row.snapshot:
        raise StateError(f"{point[1]}/{point[2]} {version} is already live; publish a new version")
    await _check_new(connection, row, target)
    if await _continues(connection, row, target):
        seq = await promote_snapshot(connection, point, version)
        await _carry_checkpoint(connection, point, target)
        done = PromotionResult(row.snapshot, version, seq)
    else:
        done = await _relearn(connection, row, target)
    detail = {
        **asdict(done),
        "reason": reason,
        "rollout": None if rollout is None else str(rollout),
    }
    name = f"{row.skill}/{row.point}"
    await record(connection, row.tenant, actor, "snapshot.promote", name, detail)
    return done


async def check_promotable(connection: Any, row: PointRow, version: str) -> None:
    """Raise an error if a version can never be promoted from the live version.

    Raises:
        StateError: the version does not exist, was live before, or comes from a superseded
            lineage.
    """
    point = row.tenant, row.skill, row.point
    target = await find_snapshot(connection, point, version)
    if version != row.snapshot:
        await _check_new(connection, row, target)
    await _tail(connection, point, row.snapshot, target)


async def _check_new(connection: Any, row: PointRow, target: SnapshotRow) -> None:
    point = row.tenant, row.skill, row.point
    if await last_number(connection, point, target.version):
        raise StateError(
            f"{row.skill}/{row.point} {target.version} was live before and has learned since; "
            "publish the state you want under a new version"
        )


async def _continues(connection: Any, row: PointRow, target: SnapshotRow) -> bool:
    """Return whether the snapshot can use the live updates unchanged."""
    if target.line != row.snapshot:
        return False
    spec = await spec_of(connection, target.spec_hash)
    same = Ingredients.of(spec).parameters == Ingredients.of(row.spec).parameters
    return same and target.feature_hash == row.feature_hash


async def _carry_checkpoint(connection: Any, point: Point, target: SnapshotRow) -> None:
    """Copy the newest checkpoint of the old lineage under its new number."""
    line, start = target.line or "", target.line_seq or 0
    found = await newest_checkpoint(connection, point, line)
    if found is not None and found[0] > start:
        await write_checkpoint(connection, point, target.version, found[0] - start, found[1])


async def _relearn(connection: Any, row: PointRow, target: SnapshotRow) -> PromotionResult:
    point = row.tenant, row.skill, row.point
    spec = await spec_of(connection, target.spec_hash)
    features = FeatureMap(spec.context)
    if bytes.fromhex(features.hash) != target.feature_hash:
        raise StateError(
            f"{row.skill}/{row.point} {target.version} uses another context encoding than "
            "this version of Steersman; publish it again"
        )
    tail = await _tail(connection, point, row.snapshot, target)
    held: dict[UUID, CreditedUpdate] = {}
    for stretch, after in tail:
        ids = await decisions_learned(connection, point, stretch, after=after)
        for begin in range(0, len(ids), _AT_ONCE):  # other tasks run between two batches
            some = ids[begin : begin + _AT_ONCE]
            held |= await learned_of(connection, point, target.version, some)
    policy = load_policy(unpack_state(await base_state(connection, point, target.version)))
    as_target = replace(
        row,
        spec=spec,
        spec_hash=target.spec_hash,
        feature_hash=target.feature_hash,
        snapshot=target.version,
    )
    await allow_long(connection)
    relearning = Relearner(connection, as_target, target.version, policy, held=held)
    for stretch, after in tail:
        await relearning.follow(await _segment(connection, point, stretch), after=after)
    await promote_snapshot(connection, point, target.version, rows=())
    if relearning.seq:
        state = pack_state(policy.state())
        await write_checkpoint(connection, point, target.version, relearning.seq, state)
    return PromotionResult(
        row.snapshot, target.version, relearning.seq, relearning.excluded, relearning.lost
    )


async def _tail(
    connection: Any, point: Point, serving: str, target: SnapshotRow
) -> list[tuple[Stretch, int]]:
    """Return the live updates that the snapshot does not contain.

    A lineage that was promoted after the freeze begins with copies of updates that the snapshot
    already contains.
    """
    origin = Origin.of((target.description or {}).get("evidence"))
    line, seq = (target.line, target.line_seq) if origin is None else (origin.line, origin.seq)
    stretches = await line_of(connection, point, serving)
    names = [one.snapshot for one in stretches]
    if line not in names:
        raise StateError(
            f"{point[1]}/{point[2]} {target.version} comes from lineage {line}, but the live "
            f"snapshot {serving} does not, so later updates cannot be replayed; publish again"
        )
    tail: list[tuple[Stretch, int]] = []
    after = seq or 0
    for stretch in stretches[names.index(line) :]:
        if (
            tail
            and after
            and not await same_update(
                connection, point, (line, seq or 0), (stretch.snapshot, after)
            )
        ):
            raise StateError(
                f"{point[1]}/{point[2]} {target.version} branched from {line} at update {seq}, "
                f"and {stretch.snapshot} dropped some of those updates when promoted, so "
                "later updates cannot be identified; publish again"
            )
        tail.append((stretch, after))
        after = max(0, after - (stretch.last or 0))
    return tail


async def _segment(connection: Any, point: Point, stretch: Stretch) -> Segment:
    row = await find_snapshot(connection, point, stretch.snapshot)
    return Segment(
        row.version, row.parent, row.spec_hash, row.feature_hash, row.reason, stretch.last
    )
