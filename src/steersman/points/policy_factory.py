"""Factory of policies from declarations and states, and warm start."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError, StateError
from steersman.errors.format import brief
from steersman.points.algorithms import algorithm_names, policy_class
from steersman.policies import inputs
from steersman.policies.base import ChoicePolicy
from steersman.policies.linear import LinearPolicy
from steersman.policies.states import algorithm_of
from steersman.spec.actions import Mixed
from steersman.spec.actions import Sequence as SequenceActions
from steersman.spec.policy import RulesPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.spec.actions import Actions
    from steersman.spec.context import Context
    from steersman.spec.point import DecisionPoint
    from steersman.spec.policy import PolicyParameters


def build(
    policy: PolicyParameters,
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
    made, kind = policy.policy_class, "mixed" if mixed else "sequence" if sequence else "choice"
    if kind not in made.action_kinds:
        raise InputError(
            f"{policy.algorithm} does not support {kind} actions; use another policy, or pass "
            f"actions of kind {' or '.join(sorted(made.action_kinds))}"
        )
    declared = policy.model_dump(exclude={"algorithm", "key", "contextual"})
    if mixed is not None:
        declared = _of_configurations(declared, mixed)
        if "parts" in inspect.signature(made).parameters:
            declared |= _parts(mixed)
    if isinstance(policy, RulesPolicy):
        declared["rules"] = [*declared["rules"], {"otherwise": declared.pop("otherwise")}]
    if sequence is not None:
        declared |= sequence.model_dump(include={"features", "vector", "max_steps", "stop"})
    elif policy.reads in ("vector", "action_features"):
        declared["dim"] = dim
    return made(actions, floor=floor, **declared)


def initial_policy(spec: DecisionPoint) -> ChoicePolicy:
    """Return the untrained policy of a decision point.

    Raises:
        InputError: mixed parts have too many values, or the policy refuses a parameter.

    >>> from steersman.spec.loader import loads
    >>> spec = loads('''
    ... format: 1
    ... skill: search
    ... decision: depth
    ... actions: {kind: choice, names: [shallow, deep]}
    ... policy: {algorithm: lin_ucb}
    ... floor: 0.02
    ... fallback: {rules: [], otherwise: shallow}
    ... reward: {terms: {clicked: {weight: 1}}}
    ... ''')
    >>> initial_policy(spec).actions
    ('shallow', 'deep')
    """
    return of_sections(spec.context, spec.actions, spec.policy, spec.floor)


def of_sections(
    context: Context, actions: Actions, policy: PolicyParameters, floor: float
) -> ChoicePolicy:
    """Return the untrained policy of the sections of a declaration; see `initial_policy`."""
    if isinstance(actions, Mixed):
        return build(policy, actions.names, dim=context.dim, floor=floor, mixed=actions)
    if isinstance(actions, SequenceActions):
        return build(policy, (), dim=0, floor=floor, sequence=actions)
    joint = policy.reads == "action_features"
    dim = len(actions.features) if joint else context.dim
    return build(policy, () if actions.open and joint else actions.names, dim=dim, floor=floor)


def _parts(mixed: Mixed) -> dict[str, Any]:
    """Return the parts as arguments of a policy that learns from them."""
    scales = {name: getattr(part, "scale", "") for name, part in mixed.parts.items()}
    return {
        "parts": {name: part.grid for name, part in mixed.parts.items()},
        "scales": {name: scale for name, scale in scales.items() if scale},
        "barred": mixed.exactly_barred,
    }


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

    >>> from steersman.policies import LinUCB
    >>> load_policy(LinUCB(["a", "b"], dim=2).state()).algorithm
    'lin_ucb'
    """
    try:
        found = policy_class(algorithm_of(state, known=algorithm_names()))
    except InputError as error:
        raise StateError(f"the state's policy cannot be loaded: {error}") from error
    return found.from_state(state)


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

    >>> from steersman.policies import BetaThompson
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
