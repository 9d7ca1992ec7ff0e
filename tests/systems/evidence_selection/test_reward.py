"""What a selection is worth, and that shaping moves no optimum."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.reward import (
    RewardTerms,
    containment,
    information,
    redundancy,
)
from steersman_systems.evidence_selection.tasks import EvidenceTask


def test_containment_looks_at_what_is_picked_alone(collection, question):
    rules = Environment(Limits(expanding="always"))
    state = rules.start(collection.pool(question, size=1))
    assert containment(state) == 0.0
    state = rules.step(state, 0)
    assert containment(state) == 0.0
    rush = [one.id for one in state.pool.candidates].index("rush")
    assert containment(rules.step(state, rush)) == 1.0


def test_information_and_redundancy_by_hand(pool):
    rules = Environment()
    state = rules.step(rules.step(rules.start(pool), 0), 1)
    weights = pool.rarity
    covered = pool.covered[[0, 1]].any(axis=0)
    assert information(state) == pytest.approx(weights[covered].sum() / weights.sum())
    near = float(pool.vectors[0] @ pool.vectors[1])
    assert redundancy(state) == pytest.approx(max(near, 0.0), abs=1e-6)
    assert redundancy(rules.start(pool)) == information(rules.start(pool)) == 0.0


def test_shaping_adds_the_same_whatever_was_selected(pool):
    """With γ 1 the shaped rewards of a whole selection sum to −Φ(s₀): no optimum moves."""
    terms = RewardTerms(information=0.3, redundancy=0.2)
    task = EvidenceTask(pool, Environment(Limits(picks=2)), terms)
    for places in ([0, 1], [2, 0], [1, 3]):
        standing, phi = task.begin(), [task.potential(task.begin())]
        for place in places:
            row = standing.places.tolist().index(place)
            standing = task.take(standing, row)
            phi.append(task.potential(standing))
        assert task.options(standing) is None
        assert sum(np.diff(phi)) == pytest.approx(-phi[0])
        assert phi[-1] == 0.0
        assert phi[1] != 0.0
    stopped = task.take(task.begin(), len(task.begin().places) - 1)
    assert task.options(stopped) is None
    assert task.potential(stopped) == 0.0


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"finals": ((0.5, containment),)}, "final weights are"),
        ({"information": 1.5}, "information is"),
        ({"redundancy": float("nan")}, "redundancy is"),
        *(
            ({"finals": tuple((weight, containment) for weight in weights)}, "final weights are")
            for weights in ((float("nan"),), (1.5, -0.5), (0.5, 0.4), ())
        ),
    ],
)
def test_reward_terms_with_bad_weights_are_refused(terms, says):
    with pytest.raises(InputError, match=says):
        RewardTerms(**terms)
