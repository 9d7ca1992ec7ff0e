"""Verification: recompute rewards from events and states from logs, and compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from steersman.db.derived_snapshots import hold_view, last_update
from steersman.db.rewards import decisions_of
from steersman.db.work_queue import unfinished
from steersman.errors import StateError, SteersmanError
from steersman.learning.credit import credit_of, is_learnable
from steersman.learning.replica import load, replay
from steersman.learning.reward_inputs import read_evidence
from steersman.points.state_bytes import state_sha256

if TYPE_CHECKING:
    from steersman.db.points import PointRow
    from steersman.db.rewards import RewardDecision
    from steersman.learning.replica import Replica
    from steersman.learning.reward_inputs import Evidence
    from steersman.platform.postgres.database import Database


@dataclass(slots=True)
class VerifyResult:
    """Result of a verification.

    Attributes:
        decisions: number of checked decisions.
        updates: number of updates of the live snapshot.
        pending: decisions with due work; they are not checked.
        wrong_rewards: decisions whose stored reward differs from their events.
        not_learned: decisions whose reward differs from the learned one. Causes are a rebuild
            `until` a time, or a policy that rejected the reward.
        state: error in the state or its log; empty: none.
        sha256: hash of the state; replicas report the same (``GET /rl-status?states=true``).
    """

    decisions: int = 0
    updates: int = 0
    pending: int = 0
    wrong_rewards: list[UUID] = field(default_factory=list)
    not_learned: list[UUID] = field(default_factory=list)
    state: str = ""
    sha256: str = ""

    @property
    def holds(self) -> bool:
        """Whether all stored rewards and the state follow from the log."""
        return not (self.wrong_rewards or self.state)


async def verify(database: Database, row: PointRow) -> VerifyResult:
    """Recompute all rewards and the state, and compare them with the stored ones.

    Reads one consistent snapshot of the database while learning continues. Reads hot tables only;
    for days in the cold store it checks the updates only.

    Raises:
        StoreError: the database is unreachable.
    """
    connection = await database.connect("worker")
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            row = await hold_view(connection, (row.tenant, row.skill, row.point))
            found = VerifyResult()
            await _check_state(connection, row, found)
            await _check_rewards(connection, row, found)
            return found
    finally:
        await connection.close()


async def _check_state(connection: Any, row: PointRow, found: VerifyResult) -> None:
    try:
        stored, replayed = await load(connection, row), await replay(connection, row)
    except StateError as error:
        found.state = str(error)
        return
    last = await last_update(connection, (row.tenant, row.skill, row.point))
    found.updates = replayed.seq
    found.sha256 = state_sha256(replayed.policy.state())
    if not stored.seq == replayed.seq == last:
        found.state = (
            f"the log ends at update {replayed.seq}, but the learner assigned up to {last}"
        )
    elif _bits(stored) != _bits(replayed):
        found.state = (
            f"the stored state after {stored.stored} updates differs from the replayed log"
        )


def _bits(replica: Replica) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in replica.policy.state().items()}


async def _check_rewards(connection: Any, row: PointRow, found: VerifyResult) -> None:
    point = row.tenant, row.skill, row.point
    after = UUID(int=0)
    while ids := await decisions_of(connection, point, after):
        after = ids[-1]
        waiting = await unfinished(connection, point, ids)
        found.decisions += len(ids)
        found.pending += len(waiting)
        evidence = await read_evidence(connection, row, row.snapshot, ids)
        for identifier in ids:
            if identifier not in waiting:
                _check(row, evidence, evidence.decisions[identifier], found)


def _check(row: PointRow, evidence: Evidence, decided: RewardDecision, found: VerifyResult) -> None:
    events = evidence.about(decided)
    stored = decided.value, decided.status, decided.terms, decided.final
    if decided.status is None:
        if any(event.outcomes or event.action_taken for event in events):
            found.wrong_rewards.append(decided.id)
        return
    try:
        credit = credit_of(evidence.spec(decided), decided, events, now=decided.at.timestamp())
    except SteersmanError:
        if decided.status != "failed":
            found.wrong_rewards.append(decided.id)
        return
    if credit != stored:
        found.wrong_rewards.append(decided.id)
    known = evidence.learned.get(decided.id)
    wanted = credit.value if is_learnable(decided) else None
    if row.spec.learning.mode == "online" and wanted != (None if known is None else known.value):
        found.not_learned.append(decided.id)
