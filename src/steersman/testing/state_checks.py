"""Contract checks of states: copies, damage, and actions that come and go."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import StateError
from steersman.testing.made_up_log import TOLERANCE, copied, state_bytes

if TYPE_CHECKING:
    from steersman.policies import ChoicePolicy
    from steersman.testing.made_up_log import Log


def check_copy(policy: ChoicePolicy, log: Log) -> None:
    """Check that ``from_state(state())`` gives an equal policy."""
    given, made = deepcopy(policy), copied(policy)
    for rows in (slice(0, 0), slice(0, 20)):
        for one in (given, made):
            log.teach(one, rows)
        alike = np.allclose(log.distributions(given), log.distributions(made), atol=TOLERANCE)
        said = (
            "from_state(state()) gives another policy: `_config` must return every "
            "constructor argument except actions and floor"
        )
        assert alike, said
        assert state_bytes(given) == state_bytes(made), said


def check_state(policy: ChoicePolicy, log: Log) -> None:
    """Check that a state round trip works and a damaged state is refused."""
    log.teach(policy)
    twin = copied(policy)
    assert state_bytes(twin) == state_bytes(policy), "the copy must have the same state"
    close = np.allclose(log.distributions(twin), log.distributions(policy), atol=1e-6)
    assert close, "the copy must decide equally"
    for array in policy.state().values():
        assert array.dtype in (np.float64, np.uint8), (
            f"a state array has dtype {array.dtype}; allowed: float64 and uint8"
        )
    for damage in _damages(policy):
        try:
            type(policy).from_state(damage)
        except StateError:
            continue
        message = "a damaged state must be refused"
        raise AssertionError(message)


def _damages(policy: ChoicePolicy) -> list[dict[str, Any]]:
    """Return states that must be refused."""
    state = policy.state()
    meta = json.loads(state["meta"].tobytes())
    other = json.dumps({**meta, "algorithm": f"not {policy.algorithm}"})
    later = json.dumps({**meta, "version": meta["version"] + 98})
    damages: list[dict[str, Any]] = [
        {name: a for name, a in state.items() if name != "meta"},
        {**state, "meta": state["meta"][:-3]},
        {**state, "meta": np.frombuffer(other.encode(), np.uint8)},
        {**state, "meta": np.frombuffer(later.encode(), np.uint8)},
        {**state, "surprise": np.zeros(2)},
    ]
    for name, array in state.items():
        if name != "meta" and array.size:
            damages.append({**state, name: array * np.nan})
            damages.append({**state, name: array[:-1]})
            damages.append({**state, name: array.astype(np.float32)})
    return damages


def check_actions_change(policy: ChoicePolicy, log: Log) -> None:
    """Check that a new action gets its share and prior, and its removal restores the rest."""
    if not policy.actions or hasattr(policy, "parts"):  # which says once what there is
        return
    log.teach(policy)
    before = log.distributions(policy)
    policy.add_action("newcomer", explore=2, share=0.25)
    log.names = policy.actions
    x = log.contexts[0]
    share = policy.distribution(x, **log.request(0))[-1]
    # Of what the floor leaves, new actions take half at most.
    least = min(0.25, policy.floor / len(policy.actions) + 0.5 * (1.0 - policy.floor))
    assert share >= least - TOLERANCE, f"a new action got {share}, less than its reserved share"
    policy.learn(x, "newcomer", 0.0)
    policy.learn(x, "newcomer", 0.0)
    assert policy.distribution(x, **log.request(0)).sum() > 1.0 - TOLERANCE
    policy.remove_action("newcomer")
    log.names = policy.actions
    if not policy.state_per_action or getattr(policy, "forget", 1.0) != 1.0:
        return  # what the newcomer taught is shared, or has let the others fade
    close = np.allclose(log.distributions(policy), before, atol=0.05)
    assert close, "an action that was added and removed must not change the others"


def check_reserved(policy: ChoicePolicy, log: Log) -> None:
    """Check that the reserved share of a new action is saved and keeps the floor of others."""
    if not policy.actions or hasattr(policy, "parts"):
        return
    log.teach(policy)
    policy.add_action("newcomer", explore=100, share=0.25)
    log.names = policy.actions
    x = log.contexts[0]
    for _ in range(90):  # by now nothing but the reserved share speaks for it
        policy.learn(x, "newcomer", 0.0)
    twin, least = copied(policy), policy.floor / len(policy.actions) - TOLERANCE
    for row, context in enumerate(log.contexts[:10]):
        request = log.request(row)
        p, kept = (one.distribution(context, **request) for one in (policy, twin))
        assert np.allclose(p, kept, atol=1e-6), (
            "a state must keep the reserved share of a new action"
        )
        assert (p >= least).all(), (
            "the reserved share of a new action must not reduce the floor of the others"
        )
