"""Promotion: a published snapshot begins to serve and to learn, with all that was learned since.

Where it was frozen from the serving line itself, the updates after it are copied as they are, so
its state after k of them is the state of the line after s + k, to the bit. A candidate under
another declaration relearns them: encoded anew where it sees otherwise, corrections applied to what
it holds itself. Everything happens in the caller's transaction, which holds the point: learning
waits, deciding goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from steersman.errors import StateError
from steersman.features import FeatureMap
from steersman.learn.candidates import Origin
from steersman.learn.relearning import Relearning
from steersman.policies import load_policy
from steersman.registry import Ingredients, pack_state, unpack_state
from steersman.store import (
    Segment,
    Stretch,
    allow_long,
    base_state,
    decisions_learned,
    find_snapshot,
    hold_point,
    last_number,
    learned_of,
    line_of,
    newest_checkpoint,
    promote_snapshot,
    record,
    same_update,
    spec_of,
    write_checkpoint,
)

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.store import Learned, Point, PointRow, SnapshotRow

_AT_ONCE = 2000  # decisions


@dataclass(frozen=True, slots=True)
class Promoted:
    """What a promotion did.

    Attributes:
        before: the snapshot that served.
        snapshot: the one that serves now.
        seq: its updates: what was learned since it was frozen.
        excluded: updates left out, because of an exclusion or an erasure.
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
) -> Promoted:
    """Let a published snapshot serve and learn; all in the caller's transaction, or nothing.

    Args:
        connection: of role worker, within a transaction.
        point: tenant, skill and decision point; held from here on.
        version: of the snapshot.
        actor: who does it, for the audit.
        reason: why.
        rollout: that shows that it may.

    Returns:
        What serves now.

    Raises:
        StateError: there is no such version, it may not serve or serves already, it comes from a
            line that does not serve any more (publish anew), or it has served before.
    """
    row = await hold_point(connection, point)
    target = await find_snapshot(connection, point, version)
    if version == row.snapshot:
        raise StateError(f"{point[1]}/{point[2]} {version} is already live; publish a new version")
    await _check_new(connection, row, target)
    if await _continues(connection, row, target):
        seq = await promote_snapshot(connection, point, version)
        await _carry_checkpoint(connection, point, target)
        done = Promoted(row.snapshot, version, seq)
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
    """Refuse a version that could never be promoted from what serves now.

    Args:
        connection: of role worker, within a transaction of the tenant.
        row: the decision point.
        version: of the snapshot; what serves already passes, and is not started or promoted.

    Raises:
        StateError: there is no such version, it has served before, or it comes from a line that
            does not serve any more.
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
    """Return whether the updates of the serving line fit the snapshot as they are."""
    if target.line != row.snapshot:
        return False
    spec = await spec_of(connection, target.spec_hash)
    same = Ingredients.of(spec).parameters == Ingredients.of(row.spec).parameters
    return same and target.feature_hash == row.feature_hash


async def _carry_checkpoint(connection: Any, point: Point, target: SnapshotRow) -> None:
    """Give the new line the newest stored state of the old one, under its own number."""
    line, start = target.line or "", target.line_seq or 0
    found = await newest_checkpoint(connection, point, line)
    if found is not None and found[0] > start:
        await write_checkpoint(connection, point, target.version, found[0] - start, found[1])


async def _relearn(connection: Any, row: PointRow, target: SnapshotRow) -> Promoted:
    point = row.tenant, row.skill, row.point
    spec = await spec_of(connection, target.spec_hash)
    features = FeatureMap(spec.context)
    if bytes.fromhex(features.hash) != target.feature_hash:
        raise StateError(
            f"{row.skill}/{row.point} {target.version} uses another context encoding than "
            "this version of Steersman; publish it again"
        )
    tail = await _tail(connection, point, row.snapshot, target)
    held: dict[UUID, Learned] = {}
    for stretch, after in tail:
        ids = await decisions_learned(connection, point, stretch, after=after)
        for begin in range(0, len(ids), _AT_ONCE):  # a service decides in between
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
    relearning = Relearning(connection, as_target, target.version, policy, held=held)
    for stretch, after in tail:
        await relearning.follow(await _segment(connection, point, stretch), after=after)
    await promote_snapshot(connection, point, target.version, rows=())
    if relearning.seq:
        state = pack_state(policy.state())
        await write_checkpoint(connection, point, target.version, relearning.seq, state)
    return Promoted(
        row.snapshot, target.version, relearning.seq, relearning.excluded, relearning.lost
    )


async def _tail(
    connection: Any, point: Point, serving: str, target: SnapshotRow
) -> list[tuple[Stretch, int]]:
    """Return what the serving line has learned that the snapshot was not made from.

    A line that was promoted after the snapshot was frozen begins with copies of what the line
    before learned in between; the snapshot holds these already.
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
