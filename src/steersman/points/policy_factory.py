"""Factory of policies from declarations and states, and warm start."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.policies import inputs
from steersman.policies.base import ChoicePolicy
from steersman.policies.beta_thompson import BetaThompson
from steersman.policies.epsilon_greedy import EpsilonGreedy
from steersman.policies.factored import FactoredTS
from steersman.policies.fixed import Fixed, Rules
from steersman.policies.joint import JointLinTS, JointSquareCB
from steersman.policies.kernel_ucb import KernelUCB
from steersman.policies.linear import LinearPolicy
from steersman.policies.lints import LinTS
from steersman.policies.linucb import BoundedLinUCB, LinUCB
from steersman.policies.sequence_linear import SequenceLinear
from steersman.policies.sequence_trees import SequenceTrees
from steersman.policies.states import algorithm_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.spec.actions import Mixed
    from steersman.spec.actions import Sequence as SequenceActions
    from steersman.spec.policy import Policy

CLASSES: dict[str, type[ChoicePolicy]] = {
    cls.algorithm: cls
    for cls in (
        LinUCB,
        BoundedLinUCB,
        KernelUCB,
        LinTS,
        BetaThompson,
        EpsilonGreedy,
        Fixed,
        Rules,
        JointSquareCB,
        JointLinTS,
        FactoredTS,
        SequenceLinear,
        SequenceTrees,
    )
}
_NEED_DIM = {"lin_ucb", "bounded_lin_ucb", "kernel_ucb", "lin_ts", "joint_squarecb", "joint_lin_ts"}


def build(
    policy: Policy,
    actions: Sequence[str],
    *,
    dim: int,
    floor: float,
    mixed: Mixed | None = None,
    sequence: SequenceActions | None = None,
) -> ChoicePolicy:
    """Return the policy that a decision point declares.

    Args:
        floor: ``point.floor``; 0 with ``explore: none``.

    Raises:
        InputError: parameter out of range, or wrong kind of actions.
        ActionError: unknown action in the declaration.

    >>> from steersman.spec.policy import LinUCBPolicy
    >>> declared = LinUCBPolicy(algorithm="lin_ucb", alpha=0.5)
    >>> build(declared, ["micro", "planner"], dim=64, floor=0.02).alpha
    0.5
    """
    declared: dict[str, Any] = policy.model_dump()
    algorithm = declared.pop("algorithm")
    declared.pop("key", None)
    if mixed is not None:
        declared = _of_configurations(declared, mixed)
    if algorithm == "rules":
        declared["rules"] = [*declared["rules"], {"otherwise": declared.pop("otherwise")}]
    if algorithm == "factored_ts":
        if mixed is None:
            raise InputError("factored_ts needs mixed actions; pass mixed")
        grids = {name: part.grid for name, part in mixed.parts.items()}
        scales = {name: getattr(part, "scale", "") for name, part in mixed.parts.items()}
        declared["parts"] = grids
        declared["scales"] = {name: scale for name, scale in scales.items() if scale}
        declared["barred"] = mixed.exactly_barred
    if (sequence is None) == algorithm.startswith("sequence_"):
        raise InputError(f"{algorithm} does not support this kind of actions; use another policy")
    if sequence is not None:
        declared |= sequence.model_dump(include={"features", "vector", "max_steps", "stop"})
    if declared.pop("contextual", False) or algorithm in _NEED_DIM:
        declared["dim"] = dim
    return CLASSES[algorithm](actions, floor=floor, **declared)


def _of_configurations(declared: dict[str, Any], mixed: Mixed) -> dict[str, Any]:
    """Return parameters with configurations replaced by their action names."""
    named: dict[str, Any] = {
        name: mixed.name_of(declared[name]) for name in ("action", "otherwise") if name in declared
    }
    if "rules" in declared:
        rules = [{**rule, "action": mixed.name_of(rule["action"])} for rule in declared["rules"]]
        named["rules"] = rules
    return {**declared, **named}


def load_policy(state: Mapping[str, Any]) -> ChoicePolicy:
    """Return the policy of a state, for any algorithm.

    Raises:
        StateError: damaged state, or unknown algorithm.

    >>> load_policy(LinUCB(["a", "b"], dim=2).state()).algorithm
    'lin_ucb'
    """
    return CLASSES[algorithm_of(state, known=CLASSES)].from_state(state)


def warm_start(
    policy: ChoicePolicy,
    X: Any,
    actions: Sequence[str],
    rewards: Any,
    *,
    trust: float = 0.1,
    limit: float | None = None,
    buckets: Sequence[int] | None = None,
) -> None:
    """Warm-start a policy from logs or expert opinions with a reduced weight.

    Rows from other conditions (another prompt, another month, an expert's guess) guide the first
    decisions but do not outweigh live traffic.

    Args:
        policy: policy that learns the rows, all or none.
        trust: weight of one row in observations, in (0, 1].
        buckets: n time buckets, for a policy that forgets and learns with buckets. Use today's
            bucket for full weight today. None: all rows have the same time, and later updates must
            have no buckets either.

    Raises:
        InputError: no rows, trust or limit out of range, or rows that the policy refuses.

    >>> policy = BetaThompson(["small", "large"])
    >>> warm_start(policy, ["faq"] * 10, ["small"] * 10, [1.0] * 10, trust=0.1)
    >>> policy.posterior("faq", "small")
    (2.0, 1.0)
    """
    if not isinstance(policy, ChoicePolicy):
        raise InputError(f"policy must be a policy, such as LinUCB; got {brief(policy)}")
    share = inputs.parameter("trust", trust, 0.0, 1.0, open_low=True)
    rows = inputs.count("actions", actions)
    if rows == 0:
        raise InputError("warm_start got no rows; nothing was learned")
    weights = np.full(rows, share)
    if limit is not None:
        most = inputs.parameter("limit", limit, 0.0, inputs.LARGEST_WEIGHT, open_low=True)
        # The policy itself refuses invalid names.
        counts = Counter(map(str, actions))
        weights *= [min(1.0, most / (counts[str(name)] * share)) for name in actions]
    if buckets is None and isinstance(policy, LinearPolicy):
        policy._learn_at_once(X, actions, rewards, weights)  # noqa: SLF001
    else:
        policy.learn_batch(X, actions, rewards, weights=weights, buckets=buckets)
