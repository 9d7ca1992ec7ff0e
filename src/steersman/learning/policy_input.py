"""Features of logged decisions for a policy, also across declarations.

A candidate may have other features than the live lineage, and a log may be older than the
declaration. Stored features are used if they were encoded in the same way; otherwise the stored
context is encoded again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman.spec.actions import Sequence

if TYPE_CHECKING:
    from steersman.db.rewards import Decided
    from steersman.learning.replica import Replica
    from steersman.spec.point import DecisionPoint


def sees(spec: DecisionPoint, feature_hash: bytes) -> tuple[Any, ...]:
    """Return a key of the feature encoding; stored features fit if the keys are equal."""
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
    """Return the features of a decision for a policy.

    Raises:
        InputError: the declaration does not allow the context, or action features are missing.
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
