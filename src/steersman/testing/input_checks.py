"""Contract checks of policy inputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import ActionError, InputError, StateError
from steersman.policies.undo import withdraw
from steersman.testing.made_up_log import copied, state_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.policies import ChoicePolicy
    from steersman.testing.made_up_log import Log


def check_no_aliasing(policy: ChoicePolicy, log: Log) -> None:
    """Check that a policy does not share memory with its caller."""
    if not isinstance(log.contexts[0], np.ndarray):
        return
    x = log.contexts[0].copy()
    policy.learn(x, log.names[0], 1.0)
    before = state_bytes(policy)
    x[:] = 99.0
    for array in policy.state().values():
        array[...] = 0
    assert state_bytes(policy) == before, "the policy must not share memory with its caller"


def check_arguments(policy: ChoicePolicy, log: Log) -> None:
    """Check that calls do not change their arguments, and results are not shared."""
    bucket = log.bucket(policy)
    log.teach(policy, slice(0, 30), bucket=bucket)
    given = _arguments(policy, log)
    for name, call in _calls(policy, log, given).items():
        before = {argument: _seen(value) for argument, value in given.items()}
        with suppress(*([InputError] if name == "withdraw" else [])):  # it may take nothing back
            call()
        changed = [argument for argument in given if _seen(given[argument]) != before[argument]]
        said = f"{name} changed the {' and '.join(changed)} that it was given; work on a copy"
        assert not changed, said
    asked = given["request"]
    answer = policy.distribution(given["x"], **asked)
    kept = answer.copy()
    answer[:] = -1.0
    again = policy.distribution(given["x"], **asked)
    said = "distribution must return a new array each time, not an internal one"
    assert np.array_equal(again, kept), said


def _arguments(policy: ChoicePolicy, log: Log) -> dict[str, Any]:
    """Return what the calls of `_calls` are given, as arrays and lists that can be written to."""
    worker = copied(policy)
    log.teach(worker, slice(30, 40), bucket=log.bucket(policy))
    shapes = {x.shape if isinstance(x, np.ndarray) else None for x in log.contexts}
    vectors = len(shapes) == 1 and None not in shapes
    widest = max(log.contexts, key=lambda x: np.abs(x).max(initial=0.0)) if vectors else None
    return {
        "x": log.contexts[0] if widest is None else widest,  # which clipping would change
        "X": np.array(log.contexts) if vectors else log.contexts,
        "actions": log.actions,
        "rewards": log.rewards,
        "weights": log.weights,
        "request": {**log.request(0), "eligible": list(log.names)},
        "state": policy.state(),
        "deltas": [worker.delta(id="given")],
    }


def _calls(policy: ChoicePolicy, log: Log, given: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return one call of each method that takes an argument."""
    x, X, rng, bucket = given["x"], given["X"], np.random.default_rng(0), log.bucket(policy)
    one: tuple[Any, str, float] = (x, log.names[0], 0.25)
    more: dict[str, Any] = {"weight": 2.0, "bucket": bucket}
    buckets = None if bucket is None else [bucket] * len(X)
    weights = given["weights"]
    calls: dict[str, Callable[[], Any]] = {
        "decide": lambda: policy.decide(x, rng=rng, **given["request"]),
        "distribution": lambda: policy.distribution(x, **given["request"]),
        "learn": lambda: policy.learn(*one, **more),
        "revise": lambda: policy.revise(*one, **more),
        "withdraw": lambda: withdraw(policy, x, log.names[0], 0.5, **more),
        "learn_batch": lambda: policy.learn_batch(
            X, given["actions"], given["rewards"], weights=weights, buckets=buckets
        ),
        "from_state": lambda: type(policy).from_state(given["state"]),
        "delta": lambda: policy.delta(since=given["state"]),
        "merge": lambda: policy.merge(given["deltas"]),
    }
    if not log.joint:
        calls["decide_many"] = lambda: policy.decide_many(X, rng=rng)
    return calls


def _seen(value: Any) -> Any:
    """Return what a value holds now, so that it can be compared with what it holds later."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return [(name, _seen(inner)) for name, inner in value.items()]
    if isinstance(value, (list, tuple)):
        return [_seen(inner) for inner in value]
    return value


def check_bad_input(policy: ChoicePolicy, log: Log) -> None:
    """Check that bad input raises a clear error and does not change the state."""
    log.teach(policy)
    x = log.contexts[0]
    before, distributions = state_bytes(policy), log.distributions(policy)
    rng = np.random.default_rng(0)
    one = {**log.request(0), "eligible": ["no such action"]}
    nothing = {**log.request(0), "eligible": []}
    calls: list[Callable[[], Any]] = [
        lambda: policy.decide(x, rng=rng, **nothing),
        lambda: policy.learn(x, log.names[0], float("nan")),
        lambda: policy.learn(x, log.names[0], float("inf")),
        lambda: policy.learn(x, log.names[0], 0.5, weight=-1.0),
        lambda: policy.learn(x, log.names[0], 0.5, weight=float("nan")),
        lambda: policy.learn_batch([x, x], [log.names[0]] * 2, [0.5, float("nan")]),
        lambda: policy.learn_batch([x, x], [log.names[0]] * 2, [0.5]),
        lambda: policy.learn_batch([x, x], [log.names[0]] * 2, [0.5] * 2, weights=[1.0, -1.0]),
        lambda: policy.merge([{}]),
    ]
    if policy.actions:
        calls += [
            lambda: policy.decide(x, rng=rng, **one),
            lambda: policy.learn(x, "no such action", 0.5),
        ]
    if isinstance(x, np.ndarray):
        calls += _bad_contexts(policy, log)
    for call in calls:
        try:
            call()
        except (InputError, StateError) as error:
            assert len(str(error)) > 20, f"an error needs a message: {error!r}"
        else:
            message = "bad input was accepted"
            raise AssertionError(message)
        assert state_bytes(policy) == before, "bad input must not change the state"
    after = log.distributions(policy)
    assert np.array_equal(after, distributions), "bad input must not change later decisions"


def _bad_contexts(policy: ChoicePolicy, log: Log) -> list[Callable[[], Any]]:
    """Return calls with contexts that no policy over vectors accepts."""
    if policy.reads in ("nothing", "context"):
        return []
    x = log.contexts[0]
    bad: list[Any] = [x * np.nan, x + np.inf, x[:0], np.append(x, 1.0), [x.tolist()], x * 1e300]

    name, request, rng = log.names[0], log.request(0), np.random.default_rng(0)

    def calls(context: Any) -> list[Callable[[], Any]]:
        made: list[Callable[[], Any]] = [
            lambda: policy.learn(context, name, 0.5),
            lambda: policy.learn_batch([x, context], [name] * 2, [0.5, 0.5]),
        ]
        if not log.joint:  # which look at what is offered, not at the context
            made += [
                lambda: policy.decide(context, rng=rng, **request),
                lambda: policy.distribution(context, **request),
            ]
        return made

    every = [calls(context) for context in [*bad, "text", None, {"a": 1.0}]]
    return [call for some in every for call in some]


def check_unknown_action(policy: ChoicePolicy, log: Log) -> None:
    """Check that an unknown action raises an ActionError."""
    if not policy.actions:
        return
    try:
        policy.learn(log.contexts[0], "no such action", 0.5)
    except ActionError as error:
        assert isinstance(error, ValueError), "ActionError must be a ValueError"
        return
    message = "an unknown action must not be learned"
    raise AssertionError(message)
