"""Held-out comparison with removed actions: probability 0, no error."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest

from steersman.db.held_out import HeldOut
from steersman.db.logged_choices import LoggedChoice
from steersman.learning.held_out import ComparedState, _compare
from steersman.policies import Fixed
from steersman.rollouts.candidate import Candidate
from steersman.rollouts.candidate_evidence import logged_data, off_policy
from steersman.rollouts.plan import plan_of
from steersman.spec.loader import loads
from tests.api.test_mixed import MIXED
from tests.rollouts.world import document

WORTH = {"shallow": 0.2, "middle": 0.4, "deep": 0.9}
OLD = loads(document())
NEW = loads(document().replace("middle, ", "").replace(", middle", ""))
MIXED_OLD = loads(MIXED.replace(", contextual: true", ""))
MORE_BARRED = "barred: [{variant: bm25}, "
MIXED_NEW = loads(
    MIXED.replace(", contextual: true", "")
    .replace("barred: [", MORE_BARRED)
    .replace("otherwise: {variant: bm25", "otherwise: {variant: hybrid")
)


def log(names, worth, n=3000):
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(names), size=n)
    return [
        HeldOut(UUID(int=i), f"u{i}", {}, None, None, names[a], 1.0 / len(names),
                float(rng.random() < worth(names[a])))
        for i, a in enumerate(drawn)
    ]  # fmt: skip


@pytest.mark.slow
def test_an_arm_that_was_taken_out_is_never_drawn_and_the_rest_is_judged():
    assert set(NEW.actions.names) == {"shallow", "deep"}
    rows = log(OLD.actions.names, WORTH.get)
    old = ComparedState(OLD, Fixed(OLD.actions.names, "middle", floor=0.0), "0.1.0", None)
    new = ComparedState(NEW, Fixed(NEW.actions.names, "deep", floor=0.0), "0.1.1", None)
    found = _compare(rows, (new, old), [{}, {}], 0.95)
    assert found.reasons == ()
    assert found.low < WORTH["deep"] - WORTH["middle"] < found.high
    other = _compare(rows, (old, new), [{}, {}], 0.95)
    assert abs(other.difference + found.difference) < 1e-9


def test_what_only_some_requests_allowed_is_left_out_where_it_is_gone():
    rows = log(OLD.actions.names, WORTH.get)
    rows = [row._replace(eligible=list(OLD.actions.names)) for row in rows]
    states = [ComparedState(NEW, Fixed(NEW.actions.names, it, floor=0.1), "0.1.1", None) for it in
              ("deep", "shallow")]  # fmt: skip
    found = _compare(rows, tuple(states), [{}, {}], 0.95)
    assert found.reasons == ()
    assert found.low > 0.5


@pytest.mark.slow
def test_a_configuration_that_was_barred_is_never_drawn_and_the_rest_is_judged():
    gone = set(MIXED_OLD.actions.names) - set(MIXED_NEW.actions.names)
    assert gone
    names = MIXED_OLD.actions.names
    good = next(name for name in MIXED_NEW.actions.names if '"hybrid"' in name)
    rows = log(names, lambda name: 0.9 if name == good else 0.3, n=60 * len(names))
    old = ComparedState(MIXED_OLD, Fixed(names, min(gone), floor=0.3), "0.1.0", None)
    new = ComparedState(MIXED_NEW, Fixed(MIXED_NEW.actions.names, good, floor=0.3), "0.1.1", None)
    found = _compare(rows, (new, old), [{}, {}], 0.95)
    assert all("tuple.index" not in reason for reason in found.reasons)
    assert found.reasons != () or found.low < 0.7 * 0.6 < found.high + 0.1


@pytest.mark.slow
def test_a_candidate_that_lacks_what_was_drawn_is_judged_by_the_rest():
    rows = log(OLD.actions.names, WORTH.get)
    logged = [LoggedChoice(r.id, r.unit, r.context, None, None, r.action, r.p, r.reward)
              for r in rows]  # fmt: skip
    candidate = Candidate.of(Fixed(NEW.actions.names, "deep"), NEW)
    data = logged_data(candidate, logged)
    assert data.target.shape == (len(rows), 3)
    assert set(data.target[:, 2]) == {0.0}  # what is gone stands last
    found = off_policy(candidate, logged, gates=plan_of(OLD, salt="s"))
    assert found.reasons == ()
    assert found.low < WORTH["deep"] < found.high
    assert candidate.mass(next(one for one in logged if one.action == "middle")) == 0.0
