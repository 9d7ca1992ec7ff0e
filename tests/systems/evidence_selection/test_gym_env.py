"""The environment as Gymnasium has it keeps Gymnasium's rules and this system's."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.reward import RewardTerms
from steersman_systems.evidence_selection.tasks import EvidenceTask

pytest.importorskip("gymnasium", reason="needs the extra evidence")

from steersman_systems.evidence_selection.gym_env import EvidenceEnv


@pytest.fixture
def env(collection, question):
    pool = collection.pool(question, size=2)
    terms = RewardTerms(information=0.2)
    tasks = [EvidenceTask(pool, Environment(Limits(picks=4)), terms)]
    return EvidenceEnv(tasks, most=10, gamma=1.0)


def test_observations_are_in_their_space(env):
    observed, info = env.reset(seed=0)
    assert info == {"question": "q1"}
    assert env.observation_space.contains(observed)
    assert observed["mask"].sum() == 3  # two candidates and stop


def test_a_whole_selection_earns_its_reward_and_the_shaping_cancels(env):
    rng = np.random.default_rng(0)
    for _ in range(10):
        observed, _ = env.reset()
        total, ended = 0.0, False
        while not ended:
            action = int(rng.choice(np.flatnonzero(observed["mask"])))
            observed, reward, ended, truncated, info = env.step(action)
            assert env.observation_space.contains(observed)
            assert not truncated
            total += reward
        # The only passages that name the answer are these two.
        assert total == pytest.approx(float(bool({"rush", "neil"} & set(info["picked"]))))


def test_a_question_in_which_nothing_can_be_done_is_refused(collection, question):
    """Its episode would have no action, and so no end."""
    pool = collection.pool(question, size=2)
    shut = EvidenceTask(pool, Environment(Limits(picks=2, tokens=1)))
    fine = EvidenceTask(pool, Environment(Limits(picks=2)))
    with pytest.raises(InputError, match="nothing can be done for question 'q1'"):
        EvidenceEnv([fine, shut], most=5)


def test_expand_and_stop_are_the_last_two(env):
    observed, _ = env.reset()
    assert observed["mask"][-2:].tolist() == [0, 1]
    ids = [one.id for one in env._standing.state.pool.candidates]
    observed, *_ = env.step(ids.index("band"))
    assert observed["mask"][-2:].tolist() == [1, 1]
    wider, *_ = env.step(10)
    assert wider["mask"].sum() > observed["mask"].sum() - 1
    *_, ended, _, _ = env.step(11)
    assert ended


@pytest.mark.parametrize("expanding", ["never", "always"])
def test_an_end_for_want_of_rows_takes_the_potential_back(collection, question, expanding):
    pool = collection.pool(question, size=4)
    rules = Environment(Limits(picks=3, expanding=expanding, may_stop=False))
    terms = RewardTerms(finals=((1.0, lambda _: 0.25),), information=1.0)
    task = EvidenceTask(pool, rules, terms)
    env = EvidenceEnv([task], most=1, gamma=1.0)
    observed, _ = env.reset()
    assert observed["mask"].tolist() == [1, 0, 0]
    observed, reward, ended, truncated, info = env.step(0)
    assert task.potential(env._standing) > 0.1, "the task itself would go on"
    assert (ended, truncated, len(info["picked"])) == (True, False, 1)
    assert not observed["mask"].any()
    assert reward == pytest.approx(0.25)


def test_masked_actions_and_questions_that_are_not_there_are_refused(env):
    env.reset()
    with pytest.raises(InputError, match="masked"):
        env.step(9)
    with pytest.raises(InputError, match="question"):
        env.reset(options={"question": 5})
    env.reset(options={"question": 0})
    env.step(11)
    with pytest.raises(InputError, match="reset"):
        env.step(0)
    for wrong in ({"tasks": []}, {"tasks": [1], "most": 0}, {"tasks": [1], "gamma": 2.0}):
        with pytest.raises(InputError):
            EvidenceEnv(**wrong)
