"""Turns: each arm's draws have its own exact propensities; a candidate that fails costs nobody."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import numpy as np
import pytest

from steersman.serving.arm_dispatch import ArmDispatch
from steersman.serving.arms import Arms
from steersman.serving.pending_decision import PointRequest
from steersman.wire import DecideRequest, Refused
from tests.api.rollouts import TENANT, a_rollout, serving

CONTEXT = {"intent": "refund"}
N = 400


class _Raises:
    """A policy that cannot decide."""

    likeness = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    def decide(self, *_: object, **__: object) -> None:
        raise self._error

    decide_many = decide


class _Available:
    """A group commit whose store answers."""

    available, depth = True, 0


def _take(arms, control, *, context=CONTEXT, n=N):
    counts: Counter = Counter()
    control.arms = arms
    requests = [DecideRequest("search", "depth", unit=f"u{i}") for i in range(n)]
    dispatch = ArmDispatch(
        _Available(),
        guardian=lambda: "NORMAL",
        rng=np.random.default_rng(0),
        on_fallback=lambda reason: counts.update([reason]),
        on_arm=lambda _skill, _point, arm, result, _seconds: counts.update([(arm, result)]),
    )
    asked = [PointRequest(TENANT, control, request, dict(context)) for request in requests]
    return dispatch.draw(asked, [UUID(int=i) for i in range(n)]), counts


def _distribution(served):
    x, _ = served.replica.encode(CONTEXT)
    return served.replica.policy.distribution(x)


def test_each_arm_draws_from_its_own_state() -> None:
    control, candidate = serving(likes="shallow"), serving("0.1.1", likes="deep")
    assert not np.allclose(_distribution(control), _distribution(candidate))
    drew, counts = _take(Arms(a_rollout("ab", 0.5), candidate), control)
    assert {one.label.arm for one in drew} == {"control", "candidate"}
    for one in drew:
        whole = _distribution(candidate if one.label.arm == "candidate" else control)
        assert one.p == whole[("shallow", "deep").index(one.action)]
        assert one.served is (candidate if one.label.arm == "candidate" else control)
    assert counts.total() == N
    assert set(counts) == {("control", "ok"), ("candidate", "ok")}


def test_a_candidate_that_is_not_loaded_is_counted(caplog) -> None:
    control = serving(likes="shallow")
    arms = Arms(a_rollout("ab", 0.5), None)
    drew, counts = _take(arms, control)
    assert {one.served for one in drew} == {control}
    assert {one.label.arm for one in drew} == {"control"}
    assert {one.label.rollout for one in drew} == {str(UUID(int=7))}
    assert counts["candidate", "fallback"] == N - counts["control", "ok"] > 100
    assert len(caplog.records) < 12  # told, and not once for each


@pytest.mark.parametrize("error", [RuntimeError("no"), np.linalg.LinAlgError("singular")])
def test_a_candidate_that_raises_costs_nobody_an_answer(error, caplog) -> None:
    control, candidate = serving(), serving("0.1.1")
    candidate.replica.policy = _Raises(error)
    drew, counts = _take(Arms(a_rollout("ab", 0.5), candidate), control)
    assert {one.served for one in drew} == {control}
    assert not any(one.degraded for one in drew)
    assert counts["candidate", "failed"] == N - counts["control", "ok"] > 100
    assert repr(error) in caplog.text


def test_what_control_refuses_too_is_the_callers_mistake() -> None:
    control, candidate = serving(), serving("0.1.1")
    drew, counts = _take(Arms(a_rollout("ab", 0.5), candidate), control, context={"intent": 7})
    assert {type(one) for one in drew} == {Refused}
    assert counts == {}
