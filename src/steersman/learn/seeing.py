"""What a policy sees of a decision, also of one that another declaration made.

A candidate that serves a share of the traffic may have other features than the line that learns,
and a log may be older than the declaration. What was stored fits wherever it was made in the same
way; elsewhere it is made anew from the stored context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman.spec import Sequence

if TYPE_CHECKING:
    from steersman.learn.replica import Replica
    from steersman.spec import DecisionPoint
    from steersman.store import Decided


def sees(spec: DecisionPoint, feature_hash: bytes) -> tuple[Any, ...]:
    """Return what determines what a policy sees of a decision; equal: what was stored fits.

    Args:
        spec: a declaration.
        feature_hash: of the map of its context.
    """
    policy = spec.policy
    if policy.algorithm.startswith("joint_"):
        return "joint", getattr(spec.actions, "features", ())
    if isinstance(spec.actions, Sequence):
        return "sequence", spec.actions.features
    if policy.algorithm == "beta_thompson":
        return "key", policy.key
    if policy.algorithm in {"fixed", "rules"} or getattr(policy, "contextual", None) is False:
        return ("nothing",)
    return "x", feature_hash


def seen(
    replica: Replica, spec: DecisionPoint, decided: Decided
) -> tuple[list[float] | None, str | None]:
    """Return what a policy saw of a decision, or would have seen.

    Args:
        replica: of the line that learns.
        spec: the declaration that the decision was made under.
        decided: the decision.

    Returns:
        ``x`` and ``key``, as they are learned from.

    Raises:
        InputError: a context that the line's declaration does not allow, or features of actions
            that were not asked for when it was made.
    """
    row = replica.row
    joint = row.spec.policy.algorithm.startswith(("joint_", "sequence_"))
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
