"""Taking an update back: the application did something else, so its reward says nothing here."""

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
    """Take back an update that a policy learned; on any error nothing was changed.

    The sums are then those of never having learned it, up to rounding: to the last bit only a
    replay without the update gives them.

    Args:
        policy: has learned the update.
        x: the context, as it was learned.
        action: likewise.
        reward: likewise, with all its revisions.
        weight: likewise.
        bucket: likewise; a policy that forgets needs it.

    Raises:
        InputError: malformed values, more than was learned, or a policy that takes nothing back.
        ActionError: an unknown name.

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
