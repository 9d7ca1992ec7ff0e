"""A clone that is a weighted sum learns what an expert does, against a second implementation."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from steersman.errors import InputError
from steersman_systems.evidence_selection.contenders import LinearlyCloned
from steersman_systems.evidence_selection.environment import Limits
from steersman_systems.evidence_selection.experts import GoldExpert
from steersman_systems.evidence_selection.linear_clone import _fitted, linear_clone
from steersman_systems.evidence_selection.training.examples import Examples
from tests.systems.evidence_selection.bands import bands

FULL = Limits(picks=2, expanding="always", may_stop=False)


def test_the_weights_minimise_the_loss_of_the_right_actions_together():
    rng = np.random.default_rng(0)
    steps, truth = [], np.array([2.0, -1.0, 0.0])
    for _ in range(40):
        rows = rng.normal(size=(6, 3))
        right = (rows @ truth + rng.normal(size=6) > 1).astype(float)
        if 0 < right.sum() < 6:
            steps.append((rows, right))
    examples = Examples.joined([Examples.step(*one) for one in steps])
    scorer = _fitted(examples, 1.0)
    mean, scale = examples.rows.mean(axis=0), examples.rows.std(axis=0)

    def loss(weights):
        total = 0.5 * weights @ weights
        for rows, right in steps:
            mass = np.exp((rows - mean) / scale @ weights)
            total -= np.log(mass[right > 0].sum() / mass.sum())
        return total

    again = minimize(loss, np.zeros(3), method="BFGS")
    flat = scorer.scores(examples.rows)
    expected = (examples.rows - mean) / scale @ again.x
    np.testing.assert_allclose(flat - flat.mean(), expected - expected.mean(), atol=2e-3)
    assert np.abs(approx_fprime(again.x, loss)).max() < 1e-2


def test_it_learns_to_follow_links_and_is_the_same_each_time():
    prepared = bands()
    known, held = prepared.pools[:5], prepared.pools[5]
    one, other = (LinearlyCloned("clone", FULL).fitted(known) for _ in range(2))
    picked = [each.select(held, rng=np.random.default_rng(0)) for each in (one, other)]
    assert set(picked[0].picked) == {"b5", "t5"}
    assert picked[0] == picked[1]


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(InputError, match="0 questions have no step to learn from"):
        linear_clone([], GoldExpert())
    with pytest.raises(InputError, match="rounds is 0"):
        linear_clone([], GoldExpert(), rounds=0)
