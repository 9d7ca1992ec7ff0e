"""Contract checks that every policy must pass, also one that you write yourself.

Each ``check_*`` function raises AssertionError with what was broken. They use public names alone.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import chisquare

from steersman.errors import ActionError, InputError, StateError
from steersman.testing.learning_checks import (
    check_batch,
    check_merge,
    check_replay,
    check_revision,
    check_since,
    check_withdrawal,
)
from steersman.testing.made_up_log import ROWS, TOLERANCE, Log, copied, state_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from steersman.policies import Choice, ChoicePolicy

    Floats = NDArray[np.float64]

_LOOKED_AT = (3, 0, 11, 26, 45)  # rows of the log whose decisions are looked at one by one


def check_policy(
    policy: ChoicePolicy | Callable[[], ChoicePolicy],
    *,
    contexts: Sequence[Any] | None = None,
    seed: int = 0,
) -> None:
    """Run every contract check on a policy; return None, or raise AssertionError.

    Use it in the tests of a policy of your own: exact propensities, purity of deciding, no
    aliasing, clear errors that change nothing, state round trips, batches, revisions and
    withdrawals however late, and merges that do not depend on order.

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
        raise InputError(f"check_policy wants a new policy; this one learned {made.updates} rows")
    if contexts is not None and len(contexts) != ROWS:
        raise InputError(f"check_policy got {len(contexts)} contexts; it wants {ROWS}")
    for check in CHECKS:
        check(copied(made), Log(made, contexts, seed))


def _made(policy: ChoicePolicy | Callable[[], ChoicePolicy]) -> ChoicePolicy:
    """Return the policy to be checked, made if need be; a class alone has nothing to choose from.

    Raises:
        InputError: it is no policy and makes none.
    """
    try:
        made = policy() if callable(policy) else policy
    except TypeError as error:
        if not isinstance(policy, type):
            raise
        message = (
            f"check_policy got the class {policy.__name__}, which makes no policy without "
            f"arguments ({error}); allowed is a policy, or a function that makes one; pass "
            f"{policy.__name__}(...)"
        )
        raise InputError(message) from error
    if isinstance(made, type) or not hasattr(made, "updates"):
        kind = f"the class {made.__name__}" if isinstance(made, type) else type(made).__name__
        message = (
            f"check_policy got {kind}; allowed is a policy, or a function that makes one; pass a "
            "policy that has learned nothing, e.g. LinUCB(['a', 'b'], dim=4, floor=0.1)"
        )
        raise InputError(message)
    return made


def check_distribution(policy: ChoicePolicy, log: Log) -> None:
    """Mass is non-negative, sums to 1, keeps the floor, and is nil where not eligible."""
    for rows, asked in ((slice(0, 0), _LOOKED_AT[:1]), (slice(0, 40), _LOOKED_AT)):
        log.teach(policy, rows)
        for row, eligible in product(asked, (None, log.names[:2], log.names[-1:])):
            request = log.request(row, eligible)
            rng, beside = np.random.default_rng(row), np.random.default_rng(row)
            choice = policy.decide(log.contexts[row], rng=rng, **request)
            beside.random()
            assert rng.random() == beside.random(), "decide must take exactly one uniform from rng"
            p = choice.distribution
            _check_eligible(policy, log, eligible, choice)
            same = np.array_equal(p, policy.distribution(log.contexts[row], **request))
            assert same, "decide draws from another distribution than distribution tells"
            assert p.dtype == np.float64, "the distribution must be float64"
            assert (p >= 0.0).all(), "negative mass"
            assert abs(p.sum() - 1.0) < TOLERANCE, f"the mass sums to {p.sum()}"
            assert not p[~choice.eligible].any(), "mass on an action that is not eligible"
            least = policy.floor / choice.eligible.sum()
            assert (p[choice.eligible] >= least - TOLERANCE).all(), "an action is below the floor"


def _check_eligible(
    policy: ChoicePolicy, log: Log, eligible: Sequence[str] | None, choice: Choice
) -> None:
    """What is drawn is eligible, by the request's own word, and has the mass it is said to have."""
    names = list(policy.actions or (log.names if eligible is None else eligible))
    wanted = [eligible is None or name in eligible for name in names]
    assert choice.eligible.tolist() == wanted, "the choice tells others than those eligible"
    assert eligible is None or choice.action in eligible, "an action was drawn that is not eligible"
    place = names.index(choice.action)
    mass, below = choice.distribution[place], choice.distribution[:place].sum()
    assert choice.propensity == mass, "propensity differs from the distribution"
    drawn = below - TOLERANCE <= choice.u <= below + mass + TOLERANCE
    assert drawn, "the uniform that is told draws another"


def check_propensity(policy: ChoicePolicy, log: Log) -> None:
    """The propensity is the entry of the distribution, and draws come with just that frequency."""
    log.teach(policy)
    names = list(policy.actions or log.names)
    x, request = log.contexts[0], log.request(0)
    expected = policy.distribution(x, **request)
    rng = np.random.default_rng(7)
    counts = np.zeros(len(names))
    for _ in range(2000):
        choice = policy.decide(x, rng=rng, **request)
        place = names.index(choice.action)
        assert choice.propensity == expected[place], "propensity differs from the distribution"
        counts[place] += 1
    assert not counts[expected == 0.0].any(), "an action without mass was drawn"
    likely = expected * 2000 >= 5
    if likely.sum() > 1:
        seen, due = counts[likely], expected[likely]
        p_value = chisquare(seen, due / due.sum() * seen.sum()).pvalue
        assert p_value > 1e-4, f"draws do not follow the propensities (p = {p_value:.1e})"


def check_pure(policy: ChoicePolicy, log: Log) -> None:
    """Deciding takes one uniform, changes nothing, and shares no memory."""
    log.teach(policy)
    before, distributions = state_bytes(policy), log.distributions(policy)
    x, request = log.contexts[0], log.request(0)
    original = np.array(x, copy=True) if isinstance(x, np.ndarray) else None
    first, second = np.random.default_rng(5), np.random.default_rng(5)
    choice = policy.decide(x, rng=first, **request)
    second.random()
    assert first.random() == second.random(), "decide must take exactly one uniform from rng"
    again = policy.decide(x, rng=np.random.default_rng(5), **request)
    assert again.action == choice.action, "the same seed must give the same action"
    choice.distribution[:] = -1.0
    choice.scores[:] = -1.0
    assert state_bytes(policy) == before, "deciding changed the state"
    assert np.array_equal(log.distributions(policy), distributions), "deciding changed decisions"
    assert original is None or np.array_equal(x, original), "deciding changed the context"


def check_no_aliasing(policy: ChoicePolicy, log: Log) -> None:
    """What was learned does not change when the caller reuses its arrays."""
    if not isinstance(log.contexts[0], np.ndarray):
        return
    x = log.contexts[0].copy()
    policy.learn(x, log.names[0], 1.0)
    before = state_bytes(policy)
    x[:] = 99.0
    for array in policy.state().values():
        array[...] = 0
    assert state_bytes(policy) == before, "the policy shares memory with its caller"


def check_bad_input(policy: ChoicePolicy, log: Log) -> None:
    """Bad input is a clear error and leaves the state as it was."""
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
            assert len(str(error)) > 20, f"an error without an explanation: {error!r}"
        else:
            message = "bad input was accepted"
            raise AssertionError(message)
        assert state_bytes(policy) == before, "bad input changed the state"
    after = log.distributions(policy)
    assert np.array_equal(after, distributions), "bad input changed later decisions"


def _bad_contexts(policy: ChoicePolicy, log: Log) -> list[Callable[[], Any]]:
    """Return calls with contexts that no policy over vectors accepts."""
    if not getattr(policy, "contextual", True):
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


def check_state(policy: ChoicePolicy, log: Log) -> None:
    """A state makes an equal policy, and a damaged one is refused."""
    log.teach(policy)
    twin = copied(policy)
    assert state_bytes(twin) == state_bytes(policy), "the state of the copy differs"
    close = np.allclose(log.distributions(twin), log.distributions(policy), atol=1e-6)
    assert close, "the copy decides differently"
    for array in policy.state().values():
        assert array.dtype in (np.float64, np.uint8), f"a state holds {array.dtype}"
    for damage in _damages(policy):
        try:
            type(policy).from_state(damage)
        except StateError:
            continue
        message = "a damaged state was loaded"
        raise AssertionError(message)


def _damages(policy: ChoicePolicy) -> list[dict[str, Any]]:
    """Return states that must be refused."""
    state = policy.state()
    text = state["meta"].tobytes().decode()
    other = text.replace(f'"{policy.algorithm}"', '"another"')
    later = text.replace('"version":1', '"version":99')
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


def check_many(policy: ChoicePolicy, log: Log) -> None:
    """Deciding many contexts at once makes the choices of deciding each in turn, to the bit."""
    if log.joint:
        return
    log.teach(policy)
    contexts = log.contexts[:10]
    rng = np.random.default_rng(11)
    each = [policy.decide(x, rng=rng) for x in contexts]
    many = policy.decide_many(contexts, rng=np.random.default_rng(11))
    assert len(many) == len(each), f"{len(many)} choices for {len(each)} contexts"
    for one, other in zip(each, many, strict=True):
        same = (one.action, one.propensity, one.u) == (other.action, other.propensity, other.u)
        alike = np.array_equal(one.distribution, other.distribution)
        assert same, "deciding many at once differs from deciding each in turn"
        assert alike, "deciding many at once says other probabilities than deciding each in turn"


def check_actions_change(policy: ChoicePolicy, log: Log) -> None:
    """A new action gets its forced share and its prior; removed again, all is as before."""
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
    if policy.algorithm.startswith("joint") or getattr(policy, "forget", 1.0) != 1.0:
        return  # what the newcomer taught is shared, or has let the others fade
    close = np.allclose(log.distributions(policy), before, atol=0.05)
    assert close, "an action that came and went left its mark on the others"


def check_reserved(policy: ChoicePolicy, log: Log) -> None:
    """What is reserved for a new action outlasts a state, and takes of nobody's floor."""
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
        assert np.allclose(p, kept, atol=1e-6), "a state loses what is reserved for a new action"
        assert (p >= least).all(), "what is reserved for a new action is taken of the others' floor"


def check_unknown_action(policy: ChoicePolicy, log: Log) -> None:
    """An unknown action is an ActionError, which is a ValueError too."""
    if not policy.actions:
        return
    try:
        policy.learn(log.contexts[0], "no such action", 0.5)
    except ActionError as error:
        assert isinstance(error, ValueError), "ActionError must be a ValueError"
        return
    message = "an unknown action was learned"
    raise AssertionError(message)


CHECKS = (
    check_distribution,
    check_propensity,
    check_pure,
    check_no_aliasing,
    check_bad_input,
    check_state,
    check_many,
    check_batch,
    check_replay,
    check_revision,
    check_withdrawal,
    check_merge,
    check_since,
    check_actions_change,
    check_reserved,
    check_unknown_action,
)
