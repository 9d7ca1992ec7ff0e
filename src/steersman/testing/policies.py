"""Contract checks of policies, also for your own.

Each ``check_*`` function raises AssertionError with what was broken. They use public names alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from steersman.errors import InputError
from steersman.policies.base import Reads
from steersman.testing.deciding_checks import (
    check_distribution,
    check_many,
    check_order,
    check_propensity,
    check_pure,
)
from steersman.testing.input_checks import (
    check_arguments,
    check_bad_input,
    check_no_aliasing,
    check_unknown_action,
)
from steersman.testing.learning_checks import (
    check_batch,
    check_merge,
    check_replay,
    check_revision,
    check_since,
    check_weight,
    check_withdrawal,
)
from steersman.testing.made_up_log import ROWS, Log, copied
from steersman.testing.state_checks import (
    check_actions_change,
    check_copy,
    check_reserved,
    check_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.policies import ChoicePolicy


def check_policy(
    policy: ChoicePolicy | Callable[[], ChoicePolicy],
    *,
    contexts: Sequence[Any] | None = None,
    seed: int = 0,
) -> None:
    """Run every contract check on a policy; return None, or raise AssertionError.

    Use it in the tests of a policy of your own: exact propensities whatever is eligible, purity of
    deciding, no aliasing, clear errors that change nothing, state round trips, weights, batches,
    revisions and withdrawals however late, and merges that do not depend on order.

    Args:
        policy: a policy that has learned nothing yet, or a function that makes one. It is copied,
            never changed.
        contexts: 60 contexts that it accepts; default: seeded vectors of its ``dim``, or keys.
        seed: of the log that is made up for the checks.

    Raises:
        AssertionError: the first contract that is broken, in words.
        InputError: no policy, one that has learned, or another number of contexts.

    >>> from steersman.policies import LinUCB
    >>> check_policy(LinUCB(["a", "b", "c"], dim=4, floor=0.1))
    """
    made = _made(policy)
    if made.updates:
        raise InputError(
            f"check_policy needs a new policy; this one has learned {made.updates} rows"
        )
    if getattr(made, "reads", None) not in get_args(Reads):
        raise InputError(
            f"{type(made).__name__} does not say what it reads; set the class attribute reads to "
            f"one of {', '.join(get_args(Reads))}"
        )
    if contexts is not None and len(contexts) != ROWS:
        raise InputError(f"check_policy got {len(contexts)} contexts; expected {ROWS}")
    check_copy(made, Log(made, contexts, seed))  # all others see copies alone
    for check in CHECKS:
        check(copied(made), Log(made, contexts, seed))


def _made(policy: ChoicePolicy | Callable[[], ChoicePolicy]) -> ChoicePolicy:
    """Return the policy to check; call the given function if needed.

    Raises:
        InputError: it is neither a policy nor makes one.
    """
    try:
        made = policy() if callable(policy) else policy
    except TypeError as error:
        if not isinstance(policy, type):
            raise
        message = (
            f"check_policy got the class {policy.__name__}, which needs arguments ({error}); "
            f"allowed: a policy, or a function that makes one; pass {policy.__name__}(...)"
        )
        raise InputError(message) from error
    if isinstance(made, type) or not hasattr(made, "updates"):
        kind = f"the class {made.__name__}" if isinstance(made, type) else type(made).__name__
        message = (
            f"check_policy got {kind}; allowed: a policy, or a function that makes one; pass a "
            "policy that has learned nothing, e.g. LinUCB(['a', 'b'], dim=4, floor=0.1)"
        )
        raise InputError(message)
    return made


CHECKS = (
    check_distribution,
    check_order,
    check_propensity,
    check_pure,
    check_no_aliasing,
    check_arguments,
    check_bad_input,
    check_state,
    check_many,
    check_batch,
    check_weight,
    check_replay,
    check_revision,
    check_withdrawal,
    check_merge,
    check_since,
    check_actions_change,
    check_reserved,
    check_unknown_action,
)
