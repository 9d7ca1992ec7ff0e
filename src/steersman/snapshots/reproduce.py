"""Reproduction of a published snapshot from the log alone.

It reads no checkpoint and no stored state. The policy starts from its declaration and applies every
update of the snapshot in order.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from steersman.db.rewards import spec_of
from steersman.db.snapshots import find_snapshot, line_of
from steersman.db.updates import updates_after
from steersman.errors import StateError, SteersmanError
from steersman.learning.replica import apply_update
from steersman.platform.postgres.database import set_tenant
from steersman.points.policy_factory import initial_policy
from steersman.registry.snapshot import pack_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from steersman.db.snapshots import Stretch
    from steersman.db.updates import UpdateRow
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database
    from steersman.policies import ChoicePolicy


async def reproduce(
    database: Database, tenant: UUID, skill: str, point: str, version: str
) -> bytes:
    """Return a snapshot rebuilt from the log, in its published form.

    Returns:
        Bytes from `pack_snapshot`. On the same machine they equal the signed bytes; elsewhere last
        digits of sums or the zstd compression can differ.

    Raises:
        StateError: the snapshot does not exist, was trained from the log, or lacks updates. Updates
            of erased decisions are deleted once another snapshot is live.
        StoreError: the database is unreachable.
    """
    connection = await database.connect("worker")
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await set_tenant(connection, tenant)
            policy = await replayed(connection, (tenant, skill, point), version, 0)
    finally:
        await connection.close()
    return await asyncio.to_thread(pack_snapshot, policy.state())


async def replayed(connection: Any, point: Point, snapshot: str, seq: int) -> ChoicePolicy:
    """Return the policy after an update, replayed from the start of its lineage.

    Raises:
        StateError: the snapshot does not exist or an update is missing.
    """
    line = await line_of(connection, point, snapshot, until=seq)
    first = await find_snapshot(connection, point, line[0].snapshot)
    policy = initial_policy(await spec_of(connection, first.spec_hash))
    for stretch in line:
        await _check_summed(connection, point, stretch.snapshot)
        await _apply(connection, point, policy, stretch)
    return policy


async def _check_summed(connection: Any, point: Point, snapshot: str) -> None:
    found = await find_snapshot(connection, point, snapshot)
    if ((found.description or {}).get("evidence") or {}).get("trained"):
        raise StateError(
            f"{point[1]}/{point[2]} {snapshot} was trained in one batch from the log, "
            "so updates cannot reproduce it; its bytes are in the registry"
        )


async def _apply(connection: Any, point: Point, policy: ChoicePolicy, stretch: Stretch) -> None:
    last, seq = stretch.last or 0, 0
    while seq < last:
        rows = await updates_after(connection, point, stretch.snapshot, seq, until=last)
        numbers = range(seq + 1, seq + 1 + len(rows))
        if not rows or [row.seq for row in rows] != list(numbers):
            raise StateError(
                f"{point[1]}/{point[2]} {stretch.snapshot} lacks some of its updates {seq + 1} to "
                f"{last}, so later states cannot be reproduced; updates of erased "
                "decisions are deleted permanently"
            )
        seq = rows[-1].seq
        await asyncio.to_thread(_learn, policy, rows, point)


def _learn(policy: ChoicePolicy, rows: Sequence[UpdateRow], point: Point) -> None:
    for row in rows:
        try:
            apply_update(policy, row)
        except SteersmanError as error:
            raise StateError(
                f"update {row.seq} of {point[1]}/{point[2]} does not fit its policy: {error}; run "
                "`steersman learn verify`"
            ) from error
