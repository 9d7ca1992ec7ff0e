"""Candidates under another declaration: relearn the live log into a separate lineage.

The new lineage is stored, so later corrections apply to it and the candidate can be reproduced. The
live lineage keeps learning meanwhile. Promotion relearns the updates that came later.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from steersman.db.derived_snapshots import add_snapshot, exclude_decisions, lineage
from steersman.db.snapshots import store_spec
from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.learning.relearn import Relearner
from steersman.points.policy_factory import initial_policy
from steersman.points.state_bytes import pack_state
from steersman.spec.actions import Sequence
from steersman.spec.loader import loads

if TYPE_CHECKING:
    from steersman.db.points import PointRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.policies import ChoicePolicy
    from steersman.spec.point import DecisionPoint


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a candidate's lineage.

    Attributes:
        line: snapshot whose lineage was relearned.
        seq: number of its last relearned update.
        kept: number of updates that the candidate learned.
        excluded: updates left out by an exclusion or an erasure.
        lost: updates that the candidate cannot learn.
    """

    line: str
    seq: int
    kept: int = 0
    excluded: int = 0
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for the signed description."""
        return asdict(self)

    @classmethod
    def of(cls, evidence: dict[str, Any] | None) -> Origin | None:
        """Return the origin from a signed description; None if it was not relearned.

        >>> Origin.of({"relearned": {"line": "0.1.0", "seq": 7}})
        Origin(line='0.1.0', seq=7, kept=0, excluded=0, lost=0)
        """
        found = (evidence or {}).get("relearned")
        return None if found is None else cls(**found)


@dataclass(frozen=True, slots=True, eq=False)
class RelearnedLineage:
    """Relearned lineage of a candidate.

    Attributes:
        row: the decision point under the candidate's declaration, with the new snapshot.
        policy: state after the last update.
        seq: number of the last update.
        origin: where the lineage comes from.
    """

    row: PointRow
    policy: ChoicePolicy
    seq: int
    origin: Origin


def holds_line(one: SnapshotRow) -> bool:
    """Return whether a version holds the state of its lineage.

    False for policies trained from the log, such as trees.
    """
    return not ((one.description or {}).get("evidence") or {}).get("trained")


def declared_as(row: PointRow, document: str) -> PointRow:
    """Return a point under a candidate's declaration.

    Raises:
        SpecError: the document is invalid.
        InputError: it declares another point, other actions or another reward. Both arms of a
            rollout need the same actions and reward to be comparable.
    """
    spec = loads(document, source="candidate")
    _check_comparable(row.spec, spec)
    features = FeatureMap(spec.context)
    if features.unfitted:
        message = f"{row.skill}/{row.point}: number fields {', '.join(features.unfitted)} have no "
        raise InputError(message + "statistics; declare their centre and spread")
    return replace(
        row,
        spec=spec,
        spec_hash=bytes.fromhex(spec.spec_hash),
        feature_hash=bytes.fromhex(features.hash),
        pinned_seq=None,
    )


async def relearn(
    connection: Any, row: PointRow, wanted: PointRow, document: str, seq: int
) -> RelearnedLineage:
    """Relearn the live lineage under another declaration as a new lineage.

    Raises:
        InputError: no policy can be built from the declaration.
    """
    point = row.tenant, row.skill, row.point
    policy = initial_policy(wanted.spec)
    await store_spec(connection, point, wanted.spec_hash, document)
    line = await add_snapshot(connection, wanted, pack_state(policy.state()), before=row.spec)
    segments = await lineage(connection, point, row.snapshot, until=seq)
    await exclude_decisions(connection, point, [one.id for one in segments], line, [])
    relearning = Relearner(connection, wanted, line, policy)
    for segment in segments:
        await relearning.follow(segment)
    origin = Origin(row.snapshot, seq, relearning.seq, relearning.excluded, relearning.lost)
    return RelearnedLineage(replace(wanted, snapshot=line), policy, relearning.seq, origin)


def _check_comparable(old: DecisionPoint, new: DecisionPoint) -> None:
    for name, before, after in (
        ("point", (old.skill, old.decision), (new.skill, new.decision)),
        ("actions", _actions(old), _actions(new)),
        ("reward", old.reward, new.reward),
    ):
        if before != after:
            raise InputError(
                f"the candidate changes the {name} of {old.skill}/{old.decision} ({after!s:.80} "
                f"instead of {before!s:.80}), so they cannot be compared; declare the change with "
                "`steersman tenant declare`"
            )


def _actions(spec: DecisionPoint) -> tuple[Any, ...]:
    actions = spec.actions
    if isinstance(actions, Sequence):
        return (actions,)
    return actions.kind, getattr(actions, "open", False), sorted(getattr(actions, "names", ()))
