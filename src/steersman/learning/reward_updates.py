"""Batch drafts: reward revisions, updates and later work computed from evidence.

The draft applies each update to the replica first, so a rejected update never gets a number.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steersman.db.rewards import CreditedUpdate, RewardRow
from steersman.db.updates import UpdateRow
from steersman.errors import InputError, SteersmanError
from steersman.learning.credit import Credit, changed, credit_of, is_learnable
from steersman.learning.replica import apply_update

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from steersman.db.rewards import RewardDecision
    from steersman.learning.replica import Replica
    from steersman.learning.reward_inputs import Evidence
    from steersman.spec.point import DecisionPoint


def sees(spec: DecisionPoint, feature_hash: bytes) -> tuple[Any, ...]:
    """Return a key of the feature encoding; stored features fit if the keys are equal."""
    reads = spec.policy.reads
    if reads == "action_features":
        return spec.actions.kind, getattr(spec.actions, "features", ())
    if reads == "key":
        return "key", getattr(spec.policy, "key", None)
    return ("x", feature_hash) if reads == "vector" else ("nothing",)


def seen(
    replica: Replica, spec: DecisionPoint, decided: RewardDecision
) -> tuple[list[float] | None, str | None]:
    """Return the features of a decision for a policy.

    Raises:
        InputError: the declaration does not allow the context, or action features are missing.
    """
    row = replica.row
    joint = row.spec.policy.reads == "action_features"
    if decided.p_kind == "exact" or joint:
        same = decided.spec_hash == row.spec_hash and decided.feature_hash == row.feature_hash
        if same or sees(spec, decided.feature_hash) == sees(row.spec, row.feature_hash):
            return decided.x, None if joint else decided.key
    if joint:
        raise InputError(
            f"decision {decided.id} lacks the features that {row.spec.policy.algorithm} "
            "learns from; it is skipped"
        )
    x, key = replica.encode(decided.context)
    return None if x is None else x.tolist(), key


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Draft:
    """Rows that one batch will write.

    Attributes:
        rewards: reward revisions, at most one per decision.
        updates: updates, numbered from the replica's position.
        later: decision, its next due time and its trace context.
        refused: number of rewards that the policy rejected.
        failed: decisions whose reward cannot be computed.
    """

    rewards: list[RewardRow] = field(default_factory=list)
    updates: list[UpdateRow] = field(default_factory=list)
    later: list[tuple[UUID, datetime, str | None]] = field(default_factory=list)
    refused: int = 0
    failed: int = 0


def draft(
    replica: Replica, evidence: Evidence, causes: Mapping[UUID, str | None], *, now: float
) -> Draft:
    """Return the rows to write, and apply the updates to the replica.

    `now`: Unix time in seconds.
    """
    drafted = Draft()
    for decision, cause in causes.items():
        known = evidence.learned.get(decision)
        decided = evidence.decisions.get(decision)
        if decided is not None and evidence.came_back(decided):
            continue
        if decided is not None:
            credit = _credit(evidence, decided, now, drafted)
            revision = _revise(drafted, decided, credit, cause)
            if credit.status != "failed":
                value = credit.value if is_learnable(decided) else None
                step = changed(None if known is None else known.value, value)
                if step is not None and replica.row.spec.learning.mode == "online":
                    source = known if known is not None and known.value is not None else decided
                    _learn(replica, evidence, source, step, (revision, cause), drafted)
        elif known is not None and decision in evidence.erased:
            _take_back(replica, known, cause, drafted)
    return drafted


def failure(decided: RewardDecision) -> RewardRow:
    """Return a reward revision with status failed."""
    return _row(decided, _failed(decided))


def _credit(evidence: Evidence, decided: RewardDecision, now: float, drafted: Draft) -> Credit:
    """Return the reward of a decision; log a failure and do not retry it."""
    try:
        return credit_of(evidence.spec(decided), decided, evidence.about(decided), now=now)
    except SteersmanError as error:
        drafted.failed += 1
        _log.error("cannot compute the reward of decision %s: %s", decided.id, error)
        return _failed(decided)


def _failed(decided: RewardDecision) -> Credit:
    return Credit(None, "failed", {}, final=bool(decided.final))


def _row(decided: RewardDecision, credit: Credit) -> RewardRow:
    return RewardRow(decided.id, decided.revision + 1, decided.spec_hash, *credit)


def _revise(drafted: Draft, decided: RewardDecision, credit: Credit, cause: str | None) -> int:
    """Add a revision if the reward has changed; return the current one."""
    if decided.status is None and not credit.final:
        drafted.later.append((decided.id, decided.window_ends, cause))
    if credit == (decided.value, decided.status, decided.terms, decided.final):
        return decided.revision
    drafted.rewards.append(_row(decided, credit))
    return decided.revision + 1


def _learn(
    replica: Replica,
    evidence: Evidence,
    source: CreditedUpdate | RewardDecision,
    step: tuple[float, float],
    why: tuple[int, str | None],
    drafted: Draft,
) -> None:
    """Add the update from the learned reward to the current reward."""
    try:
        if not isinstance(source, CreditedUpdate):
            source = _first(replica, evidence.spec(source), source)
        _append(replica, source, step, *why, drafted)
    except InputError as error:
        drafted.refused += 1
        _log.warning("%s/%s skips an update: %s", *replica.point[1:], error)


def _take_back(replica: Replica, known: CreditedUpdate, cause: str | None, drafted: Draft) -> None:
    if known.value is None or replica.row.spec.learning.mode == "frozen":
        return
    try:
        _append(replica, known, (-known.value, -1.0), 0, cause, drafted)
    except InputError as error:
        drafted.refused += 1
        _log.warning("%s/%s cannot unlearn a decision: %s", *replica.point[1:], error)


def _append(
    replica: Replica,
    source: CreditedUpdate,
    step: tuple[float, float],
    revision: int,
    cause: str | None,
    drafted: Draft,
) -> None:
    """Apply and add an update; a correction uses the features of the first update."""
    update = UpdateRow(
        *(replica.seq + 1, source.decision, revision, source.x, source.key, source.action),
        *(*step, source.weight, source.bucket, cause),
    )
    apply_update(replica.policy, update)
    replica.seq = update.seq
    drafted.updates.append(update)


def _first(replica: Replica, spec: DecisionPoint, decided: RewardDecision) -> CreditedUpdate:
    """Return the features for a decision that was not learned before."""
    x, key = seen(replica, spec, decided)
    bucket = int(decided.at.timestamp() // replica.row.spec.learning.bucket_s)
    return CreditedUpdate(decided.id, x, key, decided.action, decided.weight, bucket, None)
