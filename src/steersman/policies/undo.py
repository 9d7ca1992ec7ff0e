"""Withdrawal of learned updates."""

from __future__ import annotations

from typing import Any

from steersman.policies import inputs
from steersman.policies.base import ChoicePolicy


def withdraw(
    policy: ChoicePolicy,
    x: Any,
    action: str,
    reward: float,
    *,
    weight: float = 1.0,
    bucket: int | None = None,
) -> None:
    """Withdraw a learned update, for example because the application took another action.

    The sums are then the same as without the update, up to rounding. Only a replay of the log
    without the update is bit-identical. After an error nothing is changed.

    Args:
        policy: policy that learned the update.
        x: context of the update.
        action: action of the update.
        reward: reward of the update, with all its revisions.
        weight: weight of the update.
        bucket: time bucket of the update; required for a policy that forgets.

    Raises:
        InputError: malformed values, more than was learned, or a policy that cannot withdraw.
        ActionError: unknown action.

    >>> from steersman.policies import BetaThompson
    >>> policy = BetaThompson(["search", "ask"])
    >>> policy.learn("refund", "search", 1.0)
    >>> withdraw(policy, "refund", "search", 1.0)
    >>> policy.posterior("refund", "search")
    (1.0, 1.0)
    """
    inputs.kind("policy", policy, ChoicePolicy, "one of steersman.policies")
    index = policy.index(action)
    if bucket is not None:
        bucket = inputs.bucket(bucket)
    policy._withdraw(x, index, reward, inputs.weight(weight), bucket)  # noqa: SLF001
    if policy.actions and weight > 0.0:
        plays = policy._plays  # noqa: SLF001
        plays[index] = max(0.0, plays[index] - 1.0)
    policy.updates = max(0, policy.updates - 1)
