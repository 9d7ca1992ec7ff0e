"""The linear model against the one it stands for, every query's level written out."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.strategies.surface import Surface, features
from tests.systems.rag_tuner.worlds import SPACE

NOISE, LEVELS = 0.02, 0.1


def told(design, queries=6, seed=0):
    """A surface, and the rows and rewards that it was told."""
    rng = np.random.default_rng(seed)
    surface = Surface(design, queries, noise_var=NOISE, query_var=LEVELS)
    rows, whose, rewards = [], [], []
    for place in (3, 0, 3, 7):
        some = rng.integers(queries, size=5)  # with repeats
        values = rng.normal(size=5)
        surface.add(place, some, values)
        rows += [design[place]] * 5
        whose += some.tolist()
        rewards += values.tolist()
    return surface, np.array(rows), np.array(whose), np.array(rewards)


def written_out(rows, whose, rewards, queries, noise):
    """Mean and covariance of the weights, by the joint precision of weights and levels."""
    levels = np.eye(queries)[whose]
    whole = np.hstack([rows, levels])
    prior = np.diag([1.0] * rows.shape[1] + [1 / LEVELS] * queries)
    covariance = np.linalg.inv(whole.T @ whole / noise + prior)
    mean = covariance @ (whole.T @ rewards) / noise
    size = rows.shape[1]
    left = rewards @ (rewards - whole @ mean)
    return mean[:size], covariance[:size, :size], left


def test_it_is_the_model_with_every_level_written_out():
    design = np.random.default_rng(1).normal(size=(9, 4))
    surface, rows, whose, rewards = told(design)
    mean, covariance, left = written_out(rows, whose, rewards, 6, NOISE)
    assert surface.mean() == pytest.approx(design @ mean, abs=1e-9)
    # What is left over is mixed into the guess, which counts as 64 rewards.
    assert surface.noise_var == pytest.approx((64 * NOISE + left) / (64 + 20), abs=1e-9)

    again = told(design)[0]
    draws = again.draws(40_000, np.random.default_rng(2))
    true = design @ covariance @ design.T
    assert np.abs(draws.mean(axis=1) - design @ mean).max() < 5 * np.sqrt(true.max() / 40_000)
    assert np.cov(draws) == pytest.approx(true, abs=0.05 * true.max())


def test_the_noise_is_learned():
    rng = np.random.default_rng(0)
    design = np.eye(3)
    surface = Surface(design, 50, noise_var=0.04, query_var=0.1)
    levels = rng.normal(0, np.sqrt(0.1), 50)
    for step in range(300):
        some = rng.integers(50, size=32)
        surface.add(step % 3, some, levels[some] + rng.normal(0, 0.05, 32))
        surface.mean()
    assert surface.noise_var == pytest.approx(0.05**2, rel=0.2)


def test_a_configuration_is_judged_on_the_queries_of_all():
    """The better one was tried on hard queries only; their levels are known from others."""
    levels = np.array([0.8] * 20 + [0.1] * 20)
    surface = Surface(np.eye(3), 40)
    for _ in range(20):
        surface.add(0, np.arange(20), levels[:20])  # easy ones
        surface.add(1, np.arange(20, 40), levels[20:] + 0.1)  # hard ones, and better by .1
        surface.add(2, np.arange(40), levels)
        surface.mean()
    mean = surface.mean()
    assert mean[1] - mean[0] == pytest.approx(0.1, abs=0.02)


def test_what_is_undefined_teaches_nothing():
    one, other = Surface(np.eye(2), 4), Surface(np.eye(2), 4)
    one.add(0, np.array([0, 1]), np.array([0.5, np.nan]))
    other.add(0, np.array([0]), np.array([0.5]))
    assert one.mean().tolist() == other.mean().tolist()


def test_features_know_what_is_alike():
    design = features(SPACE)
    index = SPACE.index

    def correlation(one, other):
        a, b = design[index[one]], design[index[other]]
        return a @ b / np.sqrt((a @ a) * (b @ b))

    here = Configuration(k=10, fusion_weight=0.5)
    near = Configuration(k=11, fusion_weight=0.55)
    far = Configuration("bm25", k=32, rerank=True, expansion=True)
    assert correlation(here, near) > 0.97
    assert 0 < correlation(here, far) < 0.9
    variances = (design**2).sum(axis=1)
    assert 0.25 < variances.min() < variances.max() < 0.7


@pytest.mark.parametrize("wrong", [{"queries": 0}, {"noise_var": 0.0}, {"query_var": -1.0}])
def test_what_is_no_surface(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Surface(np.eye(2), **{"queries": 3} | wrong)
