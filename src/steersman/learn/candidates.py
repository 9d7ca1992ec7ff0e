"""Candidates under another declaration: the same log, learned as if it had been in force all along.

The log of the serving line is relearned into a line of its own, which is kept: so corrections that
come later find what the candidate holds of a decision, and the candidate can be made again. The
serving line and its learner go on meanwhile; what they learn after the last update that was read
is relearned when the candidate is promoted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.learn.relearning import Relearning
from steersman.registry import pack_state
from steersman.spec import Sequence, loads
from steersman.store import (
    add_snapshot,
    exclude_decisions,
    initial_policy,
    lineage,
    store_spec,
)

if TYPE_CHECKING:
    from steersman.policies import ChoicePolicy
    from steersman.spec import DecisionPoint
    from steersman.store import PointRow, SnapshotRow


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a candidate's line comes from.

    Attributes:
        line: the snapshot whose line was relearned,
        seq: and the last of its updates that was.
        kept: updates that the candidate learned.
        excluded: updates left out, because of an exclusion or an erasure.
        lost: updates that it cannot learn.
    """

    line: str
    seq: int
    kept: int = 0
    excluded: int = 0
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values, to be signed with the candidate."""
        return asdict(self)

    @classmethod
    def of(cls, evidence: dict[str, Any] | None) -> Origin | None:
        """Return the origin that a snapshot was signed with; None if it was not relearned.

        Args:
            evidence: of its description.

        >>> Origin.of({"relearned": {"line": "0.1.0", "seq": 7}})
        Origin(line='0.1.0', seq=7, kept=0, excluded=0, lost=0)
        """
        found = (evidence or {}).get("relearned")
        return None if found is None else cls(**found)


@dataclass(frozen=True, slots=True, eq=False)
class Relearned:
    """A candidate's line.

    Attributes:
        row: the point, under the candidate's declaration, with the new line as its snapshot.
        policy: after the last of its updates.
        seq: the number of that one.
        origin: where it comes from.
    """

    row: PointRow
    policy: ChoicePolicy
    seq: int
    origin: Origin


def holds_line(one: SnapshotRow) -> bool:
    """Return whether a version holds what its line had learned: not what was trained elsewhere.

    Trees that were grown from the log are signed with the line that served then, and are not its
    state.

    Args:
        one: a snapshot.
    """
    return not ((one.description or {}).get("evidence") or {}).get("trained")


def declared_as(row: PointRow, document: str) -> PointRow:
    """Return a point as a candidate declares it.

    Args:
        row: the point in force.
        document: the candidate's declaration, in YAML.

    Returns:
        The point under that declaration.

    Raises:
        SpecError: the document is wrong.
        InputError: it is of another point, has other actions or another reward: what the arms of
            a rollout do and earn must be the same, or they could not be compared.
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
) -> Relearned:
    """Relearn the serving line under another declaration, into a line of its own.

    Args:
        connection: of role worker, within a transaction that holds the snapshots of the point.
        row: the point in force.
        wanted: as `declared_as` returned it.
        document: the candidate's declaration.
        seq: the last update of the serving line that counts.

    Returns:
        The new line; nothing serves it.

    Raises:
        InputError: a declaration that no policy can be made of.
    """
    point = row.tenant, row.skill, row.point
    policy = initial_policy(wanted.spec)
    await store_spec(connection, point, wanted.spec_hash, document)
    line = await add_snapshot(connection, wanted, pack_state(policy.state()), before=row.spec)
    segments = await lineage(connection, point, row.snapshot, until=seq)
    await exclude_decisions(connection, point, [one.id for one in segments], line, [])
    relearning = Relearning(connection, wanted, line, policy)
    for segment in segments:
        await relearning.follow(segment)
    origin = Origin(row.snapshot, seq, relearning.seq, relearning.excluded, relearning.lost)
    return Relearned(replace(wanted, snapshot=line), policy, relearning.seq, origin)


def _check_comparable(old: DecisionPoint, new: DecisionPoint) -> None:
    for name, before, after in (
        ("point", (old.skill, old.decision), (new.skill, new.decision)),
        ("actions", _actions(old), _actions(new)),
        ("reward", old.reward, new.reward),
    ):
        if before != after:
            raise InputError(
                f"the candidate's {name} differs from {old.skill}/{old.decision} ({after!s:.80} "
                f"instead of {before!s:.80}), so they cannot be compared; declare the change with "
                "`steersman tenant declare`"
            )


def _actions(spec: DecisionPoint) -> tuple[Any, ...]:
    actions = spec.actions
    if isinstance(actions, Sequence):
        return (actions,)
    return actions.kind, getattr(actions, "open", False), sorted(getattr(actions, "names", ()))
