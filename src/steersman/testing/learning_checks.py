"""Contract checks of learning: batches, weights, replays, corrections and merges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import InputError, MergeError
from steersman.policies.undo import withdraw
from steersman.testing.made_up_log import Log, assert_close, copied, state_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.policies import ChoicePolicy

_TWICE = 2.0  # a weight that must not be lost


def check_batch(policy: ChoicePolicy, log: Log) -> None:
    """Check that learning a batch equals learning its rows one by one."""
    batch = copied(policy)
    log.teach(policy)
    batch.learn_batch(log.contexts, log.actions, log.rewards, weights=log.weights)
    assert_close(policy, batch, log, "learning a batch differs from learning its rows")


def check_weight(policy: ChoicePolicy, log: Log) -> None:
    """Check that a weight counts observations: 0 changes nothing, 2 equals two updates.

    Only policies with equally many updates are compared, all in one time bucket: what decays with
    updates has then decayed alike. How often an action was learned from is left out.
    """
    x, action, bucket = log.contexts[0], log.actions[0], log.bucket(policy)
    other = next((name for name in log.names if name != action), action)
    log.teach(policy, slice(1, 30), bucket=bucket)
    whole, parts = copied(policy), copied(policy)
    whole.learn(x, action, 1.0, weight=0.0, bucket=bucket)
    parts.learn(log.contexts[1], other, 0.0, weight=0.0, bucket=bucket)
    said = (
        "an update of weight 0 must change nothing: multiply everything that `_learn` adds by its "
        "weight"
    )
    assert_close(whole, parts, log, said, but="plays")
    whole.learn(x, action, 0.75, weight=_TWICE, bucket=bucket)
    whole.learn(x, action, 0.75, weight=0.0, bucket=bucket)
    for _ in range(2):
        parts.learn(x, action, 0.75, bucket=bucket)
    said = (
        "weight 2 must equal learning twice: multiply everything that `_learn` adds by its weight"
    )
    assert_close(whole, parts, log, said, but="plays")


def check_replay(policy: ChoicePolicy, log: Log) -> None:
    """Check that the same log gives the same bytes."""
    twin = copied(policy)
    log.teach(policy)
    log.teach(twin)
    assert state_bytes(policy) == state_bytes(twin), "the same log must give the same state"


def check_revision(policy: ChoicePolicy, log: Log) -> None:
    """Check that a corrected reward equals the right reward learned at once."""
    corrected = copied(policy)
    x, action = log.contexts[0], log.actions[0]
    bucket = log.bucket(policy)
    log.teach(policy, slice(1, None), bucket=bucket)
    log.teach(corrected, slice(1, None), bucket=bucket)
    policy.learn(x, action, 0.75, weight=_TWICE, bucket=bucket)
    corrected.learn(x, action, 0.25, weight=_TWICE, bucket=bucket)
    corrected.revise(x, action, 0.5, weight=_TWICE, bucket=bucket)
    assert_close(
        policy, corrected, log, "a corrected reward must give the same state as the right reward"
    )
    if bucket is None:
        return
    policy.learn(x, action, 0.5, bucket=bucket + 1)
    corrected.learn(x, action, 0.25, bucket=bucket + 1)
    for one in (policy, corrected):
        log.teach(one, slice(1, 9), bucket=bucket + 4)
    corrected.revise(x, action, 0.25, bucket=bucket + 1)
    assert_close(
        policy, corrected, log, "a reward that is corrected late must keep its old time weight"
    )


def check_withdrawal(policy: ChoicePolicy, log: Log) -> None:
    """Check that a withdrawn update leaves no trace."""
    x, action = log.contexts[0], log.actions[0]
    bucket = log.bucket(policy)
    later = None if bucket is None else bucket + 3
    log.teach(policy, slice(1, 30), bucket=bucket)
    other = copied(policy)
    other.learn(x, action, 0.75, weight=_TWICE, bucket=bucket)
    for one in (policy, other):
        log.teach(one, slice(30, 40), bucket=later)
    before = state_bytes(other)
    try:
        withdraw(other, x, action, 0.75, weight=_TWICE, bucket=bucket)
    except InputError:  # it takes nothing back, and says so
        assert state_bytes(other) == before, "a refused withdrawal must not change the state"
        return
    assert_close(policy, other, log, "a withdrawn update must leave no trace")


def check_merge(policy: ChoicePolicy, log: Log) -> None:
    """Check that deltas of three copies merge in any order and grouping, each once."""
    base = policy.state()
    parts = [slice(0, 20), slice(20, 40), slice(40, 60)]
    deltas = []
    for number, part in enumerate(parts):
        worker = type(policy).from_state(base)
        log.teach(worker, part)
        deltas.append(worker.delta(id=f"worker {number}"))
    forwards, backwards = type(policy).from_state(base), type(policy).from_state(base)
    forwards.merge(deltas)
    for delta in reversed(deltas):
        backwards.merge([delta])
    assert_close(forwards, backwards, log, "the order of a merge must not matter")
    if getattr(policy, "forget", 1.0) == 1.0:
        log.teach(policy)
        assert_close(policy, forwards, log, "merged copies must equal one learner")
    else:
        _check_clocks(policy, log, parts)
    worker = type(policy).from_state(base)
    log.teach(worker, parts[0])
    own = worker.delta(id="own")
    with_own = state_bytes(worker)
    try:
        worker.merge([own])
    except MergeError:
        assert state_bytes(worker) == with_own, "a refused merge must not change the state"
    else:
        message = "a worker must not merge its own delta"
        raise AssertionError(message)
    before = state_bytes(forwards)
    for twice in (deltas[:1], [type(policy).from_state(base).delta(id="new")] * 2):
        try:
            forwards.merge(twice)
        except MergeError:
            assert state_bytes(forwards) == before, "a refused merge must not change the state"
            continue
        message = "a delta must not be merged twice"
        raise AssertionError(message)


def check_since(policy: ChoicePolicy, log: Log) -> None:
    """Check that deltas since a state hold later updates, and states keep merged ids."""
    log.teach(policy, slice(0, 20))
    base = policy.state()
    other, merged = type(policy).from_state(base), type(policy).from_state(base)
    log.teach(other, slice(40, 60))
    log.teach(policy, slice(20, 40))
    deltas = [policy.delta(since=base), other.delta(since=base)]
    for delta in deltas:
        try:
            merged.merge([delta])
        except MergeError as error:
            message = f"two deltas without an explicit id must merge: {error}"
            raise AssertionError(message) from error
    if getattr(policy, "forget", 1.0) == 1.0:
        log.teach(policy, slice(40, 60))
        assert_close(
            policy, merged, log, "a delta since a state must hold exactly the later updates"
        )
    again, before = copied(merged), state_bytes(merged)
    for delta in deltas:
        try:
            again.merge([delta])
        except MergeError:
            assert state_bytes(again) == before, "a copy must have the same state"
            continue
        message = "a state must keep the ids of merged deltas"
        raise AssertionError(message)


def _check_clocks(policy: ChoicePolicy, log: Log, parts: Sequence[slice]) -> None:
    """Check that merged copies weight time buckets as one learner does."""
    base, deltas = policy.state(), []
    for number, part in enumerate(parts):
        worker = type(policy).from_state(base)
        log.teach(worker, part, bucket=1000 + 2 * number)
        deltas.append(worker.delta(id=f"bucket {number}"))
    merged, learner = type(policy).from_state(base), type(policy).from_state(base)
    merged.merge(deltas)
    for number, part in enumerate(parts):
        log.teach(learner, part, bucket=1000 + 2 * number)
    assert_close(learner, merged, log, "merged copies must weight old rows as one learner does")
