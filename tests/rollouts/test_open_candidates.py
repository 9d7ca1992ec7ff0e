"""Candidates that each request numbers anew are judged by their names wherever evidence is made."""

from uuid import uuid4

import numpy as np
import pytest

from steersman.db.held_out import HeldOut
from steersman.db.logged_choices import LoggedChoice
from steersman.learning.held_out import ComparedState, _compare
from steersman.ope import LoggedData, evaluate
from steersman.ope.paired import off_policy_delta
from steersman.points.policy_factory import load_policy
from steersman.policies import JointSquareCB
from steersman.registry.description import Published, describe
from steersman.rollouts.candidate import Candidate
from steersman.rollouts.candidate_evidence import logged_data, off_policy
from steersman.snapshots.comparison import diff
from steersman.snapshots.reference_log import Reference
from steersman.spec.loader import loads
from steersman.spec.point import Gates
from tests.registry.test_diff import AT

SPEC = loads("""
format: 1
skill: search
decision: passage
context: {dim: 8, fields: {}}
actions: {kind: choice, open: true, features: [is_best, length]}
policy: {algorithm: joint_squarecb}
floor: 0.1
fallback: {rules: [], otherwise: first}
reward: {terms: {clicked: {weight: 1}}}
""")
COUNT, ROWS = 8, 1600
NAMES = [f"passage {place}" for place in range(COUNT)]


@pytest.fixture(scope="module")
def log():
    """The first passage never failed, and each request offers all in an order of its own."""
    rng = np.random.default_rng(0)
    rows = []
    for row in range(ROWS):
        order = rng.permutation(COUNT)
        features = np.column_stack([order == 0, rng.normal(size=COUNT)]).astype(float)
        place = int(rng.integers(COUNT))
        reward = float(order[place] == 0 or rng.random() < 0.8)
        offered = [NAMES[one] for one in order]
        rows.append((row, offered, features, offered[place], reward))
    return rows


@pytest.fixture(scope="module")
def learned(log):
    policy = JointSquareCB((), dim=2, floor=0.1)
    for _, offered, features, action, _ in log:
        policy.learn(features[offered.index(action)], action, float(action == NAMES[0]))
    return policy


def _by_hand(policy, log):
    target = np.array([policy.distribution(None, eligible=one[1], features=one[2]) for one in log])
    return LoggedData(
        [one[1].index(one[3]) for one in log], [one[4] for one in log], np.full(ROWS, 1 / COUNT),
        target, names=[one[3] for one in log], clusters=[str(one[0]) for one in log],
    )  # fmt: skip


def test_of_a_rollouts_candidate(log, learned):
    logged = [
        LoggedChoice(uuid4(), str(row), {}, offered, features.ravel().tolist(), action, 0.125, one)
        for row, offered, features, action, one in log
    ]
    candidate = Candidate.of(learned, SPEC)
    assert list(logged_data(candidate, logged).names) == [one.action for one in logged]
    found = off_policy(candidate, logged, gates=Gates())
    wanted = evaluate(_by_hand(learned, log), estimators=("snips",), adaptive=True)["snips"]
    assert (found.low, found.value, found.high) == (wanted.low, wanted.value, wanted.high)
    half = 1.959964 * wanted.standard_error
    assert wanted.value - wanted.low > 1.05 * half  # what the first passage leaves open


def test_of_two_snapshots(log, learned):
    before = JointSquareCB((), dim=2, floor=0.1)
    reference = Reference(
        [None] * ROWS, [one[3] for one in log], np.full(ROWS, 1 / COUNT),
        [one[4] for one in log], eligible=[one[1] for one in log],
        features=[one[2] for one in log], units=[str(one[0]) for one in log],
    )  # fmt: skip
    named = {"tenant": "acme", "skill": "search", "point": "passage", "created_at": AT}
    first, second = (
        Published(describe(one.state(), **named, version=version), one.state())
        for one, version in ((before, "0.1.0"), (learned, "0.1.1"))
    )
    found = diff(first, second, reference).off_policy
    wanted = off_policy_delta(_by_hand(before, log), _by_hand(learned, log), estimator="snips")
    assert (found.low, found.delta, found.high) == (wanted.low, wanted.delta, wanted.high)


def test_of_held_out_decisions(log, learned):
    rows = [
        HeldOut(uuid4(), str(row), {}, offered, features.ravel().tolist(), action, 0.125, reward)
        for row, offered, features, action, reward in log
    ]
    before = JointSquareCB((), dim=2, floor=0.1)
    new, old = (
        ComparedState(SPEC, load_policy(one.state()), "0.1.0", None) for one in (learned, before)
    )
    found = _compare(rows, (new, old), ({}, {}), 0.95)
    wanted = off_policy_delta(
        _by_hand(before, log), _by_hand(learned, log), estimator="snips", adaptive=True
    )
    assert found.reasons == ()
    assert (found.low, found.difference, found.high) == (wanted.low, wanted.delta, wanted.high)
