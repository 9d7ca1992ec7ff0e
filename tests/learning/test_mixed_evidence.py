"""Held-out comparison for mixed actions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pytest

from steersman.db.held_out import HeldOut
from steersman.learning.held_out import ComparedState, _compare
from steersman.points.policy_factory import build
from steersman.policies import Fixed
from steersman.registry.description import Published, describe
from steersman.snapshots.comparison import diff
from steersman.snapshots.reference_log import Reference
from steersman.spec.loader import loads
from tests.api.test_mixed import MIXED

SPEC = loads(MIXED.replace(", contextual: true", ""))
NAMES = SPEC.actions.names


def worth(name):
    return 0.8 if json.loads(name)["variant"] == "hybrid" else 0.3


def state(*, taught):
    policy = build(SPEC.policy, NAMES, dim=8, floor=0.2, mixed=SPEC.actions)
    if taught:
        for name in NAMES:
            policy.learn(None, name, worth(name))
    return policy


@pytest.fixture(scope="module")
def log():
    """Return draws of an untrained state with noisy rewards."""
    rng = np.random.default_rng(0)
    drawn = [state(taught=False).decide(None, rng=rng) for _ in range(3000)]
    return [
        HeldOut(UUID(int=n), f"u{n}", {}, None, None, one.action, one.propensity,
                float(rng.random() < worth(one.action)))
        for n, one in enumerate(drawn)
    ]  # fmt: skip


def truth(policy):
    mass = policy.distribution(None)
    return sum(p * worth(name) for p, name in zip(mass, NAMES, strict=True))


@pytest.mark.slow
def test_a_state_that_learned_is_shown_to_be_better(log):
    old, new = (ComparedState(SPEC, state(taught=it), "0.1.0", None) for it in (False, True))
    found = _compare(log, (new, old), [{}, {}], 0.95)
    assert found.reasons == ()
    assert found.low < truth(new.policy) - truth(old.policy) < found.high
    assert found.low > 0
    assert not found.is_worse


@pytest.mark.slow
def test_two_snapshots_are_compared_without_a_list_of_thousands(log):
    named = {"tenant": "acme", "skill": "rag", "point": "retrieval"}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    policies = [state(taught=False), state(taught=True)]
    both = [
        Published(describe(one.state(), version=version, created_at=at, **named), one.state())
        for one, version in zip(policies, ("0.1.0", "0.1.1"), strict=True)
    ]
    reference = Reference(
        contexts=[None] * len(log),
        actions=[row.action for row in log],
        propensities=[row.p for row in log],
        rewards=[row.reward for row in log],
        units=[row.unit for row in log],
    )
    found = diff(*both, reference)
    assert found.traffic is None
    assert (found.added, found.removed) == ((), ())
    assert found.off_policy.estimator == "snips"
    ahead = truth(policies[1]) - truth(policies[0])
    assert found.off_policy.low < ahead < found.off_policy.high
    assert "0.1.1" in str(found)
    # One that always does the same is told apart by its algorithm.
    fixed = Fixed(NAMES, NAMES[0], floor=0.2)
    third = Published(
        describe(fixed.state(), version="1.0.0", created_at=at, **named), fixed.state()
    )
    assert diff(both[0], third, reference).change == "major"
