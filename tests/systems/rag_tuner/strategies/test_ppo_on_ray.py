"""Before the cluster is asked: what training begins with, and what a checkpoint must agree with.

On a cluster: ``tests/deploy/test_ray.py``.
"""

import numpy as np
import pytest

pytest.importorskip("torch")

from steersman.errors import DataError
from steersman.training.ppo.agent import PPO
from steersman.training.ppo.rllib import _about as about_training
from steersman.training.ppo.rllib import _write
from steersman_systems.rag_tuner.environment import TuningEnvironment
from steersman_systems.rag_tuner.features import Features
from steersman_systems.rag_tuner.strategies.ppo_on_ray import _about, _guess, train_on_ray
from steersman_systems.rag_tuner.strategies.ppo_sequential import fitted_scaling, train_sequential
from tests.systems.rag_tuner.worlds import tuned, world

TUNED = tuned()


def simulator(seed=0, **more):
    return TuningEnvironment([world(queries=40, seed=seed)], TUNED, horizon=4, batch=16, **more)


def scaling_of(environment, seed=0):
    return fitted_scaling(environment, np.random.default_rng([seed, 0]))


def test_it_begins_with_the_policy_that_training_here_begins_with():
    environment = simulator()
    here = train_sequential([environment], updates=0).agent.state()
    agent = PPO(environment.moves.parts, len(environment.features))
    agent.start_from(_guess(environment))
    assert all((here[name] == of).all() for name, of in agent.state().items())


def test_without_belief_there_is_nothing_to_guess_from():
    environment = simulator(features=Features(TUNED.space, without=("belief",)))
    assert _guess(environment) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("going_on", "match"),
    [
        ((simulator(), 1), "seed"),
        ((simulator(seed=1), 0), "scaling"),
        ((simulator(window=2), 0), "features"),
    ],
)
def test_another_seed_or_simulator_of_the_same_shape_is_no_going_on(tmp_path, going_on, match):
    file, environment = tmp_path / "checkpoint", simulator()
    agent = PPO(environment.moves.parts, len(environment.features))
    about = about_training(agent, 0, _about(environment, scaling_of(environment)))
    _write(file, {**agent.state(), "penalty": np.array(0.2), **about})
    other, seed = going_on
    with pytest.raises(DataError, match=rf"it has different .*{match}"):
        train_on_ray(other, address="auto", seed=seed, checkpoint=file)
