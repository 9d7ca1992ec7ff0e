"""The sequential policy: learns in the simulator, is kept as arrays, and moves with exact odds."""

import numpy as np
import pytest

pytest.importorskip("torch")

from steersman.errors import DataError, InputError
from steersman.training.ppo.agent import PPO
from steersman.training.ppo.settings import Settings
from steersman_systems.rag_tuner.actions import Moves
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.environment import TuningEnvironment
from steersman_systems.rag_tuner.features import Features, RecentResults, Scaling, Situation
from steersman_systems.rag_tuner.loop import tune
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.slices import rotating
from steersman_systems.rag_tuner.strategies.ppo_guess import first_guess
from steersman_systems.rag_tuner.strategies.ppo_sequential import (
    SequentialPolicy,
    SequentialPpo,
    _episodes,
    train_sequential,
)
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, TUNED = world(), tuned(gamma=0.05, delta=0.05)
EVERY = np.arange(len(WORLD))
START = Configuration("hybrid", k=10)


def untrained(seed=0):
    features = Features(TUNED.space)
    parts = Moves(TUNED.space).parts
    scaling = Scaling(np.zeros(len(features)), np.ones(len(features)))
    return SequentialPolicy(PPO(parts, len(features), seed=seed), features, scaling, window=4)


def at_work(policy=None, start=START, weights=TUNED):
    return SequentialPpo(weights, policy or untrained(), start)


def run(strategy, evaluations, seed=0, weights=TUNED):
    slices = rotating(EVERY, 32, np.random.default_rng(seed))
    return list(tune(strategy, WORLD, weights, slices, evaluations=evaluations, seed=seed))


@pytest.mark.slow
def test_its_propensity_is_the_share_of_the_draws_that_lead_there():
    strategy = at_work(start=Configuration("bm25", k=32))
    asked = [strategy.ask(np.random.default_rng(seed)) for seed in range(1_500)]
    told = {one.configuration: one.propensity for one in asked}
    often = [one for one, mass in told.items() if mass > 0.01]
    assert often
    for one in often:
        share = np.mean([other.configuration == one for other in asked])
        error = np.sqrt(told[one] * (1 - told[one]) / len(asked))
        assert abs(share - told[one]) < 4.5 * error


def test_what_runs_is_what_was_evaluated_last():
    strategy = at_work()
    before = START
    for one in run(strategy, 10):
        moves = Moves(TUNED.space)
        masses = strategy._policy.agent.distributions(np.zeros(len(Features(TUNED.space))))
        assert moves.propensity(before, one.configuration, masses) > 0
        before = one.configuration
    assert strategy._running == before


def test_the_same_seed_moves_the_same():
    first, second = ([one.configuration for one in run(at_work(), 8)] for _ in range(2))
    assert first == second


def test_nothing_is_recommended_before_anything_is_known():
    with pytest.raises(InputError, match="nothing was evaluated yet"):
        at_work().recommend()


def test_what_broke_a_gate_is_not_recommended():
    """Reranking takes 8 ms here and the gate allows 6."""
    limits = TUNED.thresholds.model_copy(update={"p95_latency_ms": 6.0})
    gated = TUNED.model_copy(update={"thresholds": limits})
    strategy = at_work(weights=gated)
    known = set()
    for one in run(strategy, 30, weights=gated):
        if one.reward.breaches:
            known.add(one.configuration)
        held = len(known) < one.number
        if held and not one.configuration.rerank:
            assert strategy.recommend() not in known
    assert known


def test_of_what_was_evaluated_the_one_believed_to_be_the_best_is_recommended():
    strategy = at_work()
    for _ in run(strategy, 6):
        known, mean = strategy._ledger.configurations, strategy._belief.mean()
        assert strategy.recommend() == max(known, key=lambda one: mean[TUNED.space.index[one]])
    best = TUNED.space.all[strategy._belief.best()]
    assert best not in strategy._ledger.configurations, "it has nothing to leave out"


def test_a_baseline_from_outside_the_space_is_not_recommended():
    strategy = at_work()
    batch = WORLD.evaluate(Configuration("rrf"), EVERY)
    strategy.tell(batch, reward_of(batch, TUNED))
    with pytest.raises(InputError, match="none may serve"):
        strategy.recommend()


def test_nothing_is_recommended_when_everything_breaks_a_gate():
    limits = TUNED.thresholds.model_copy(update={"p95_latency_ms": 1.0})
    gated = TUNED.model_copy(update={"thresholds": limits})
    strategy = at_work(weights=gated)
    run(strategy, 5, weights=gated)
    with pytest.raises(InputError, match="none may serve"):
        strategy.recommend()


def test_a_baseline_from_outside_the_space_moves_nothing():
    strategy = at_work()
    batch = WORLD.evaluate(Configuration("rrf"), EVERY[:32])
    strategy.tell(batch, reward_of(batch, TUNED))
    assert strategy._running == START
    assert np.isnan(strategy._observed.quality).all()


def test_it_is_told_of_other_weights_and_refuses_another_space():
    strategy = at_work()
    before = strategy._state()
    strategy.retune(tuned(gamma=0.4, delta=0.4))
    assert strategy._state().tolist() != before.tolist()
    counts = TUNED.bounds.k.model_copy(update={"max": 20})
    bounds = TUNED.bounds.model_copy(update={"k": counts})
    with pytest.raises(InputError, match="trained for another space"):
        strategy.retune(TUNED.model_copy(update={"bounds": bounds}))


def test_what_was_paid_for_is_told_again_under_other_weights():
    dear = tuned(gamma=0.4, delta=0.4)
    changed, meant = at_work(), at_work(weights=dear)
    for one in run(changed, 6):
        meant.tell(one.batch, reward_of(one.batch, dear))
        meant.tell_smaller(WORLD.smaller(one.batch))
    before = changed._belief.mean()
    changed.retune(dear)
    assert changed._belief.mean() == pytest.approx(meant._belief.mean(), abs=1e-9)
    assert np.abs(changed._belief.mean() - before).max() > 0.05


def test_of_another_collection_it_believes_nothing():
    strategy = at_work()
    run(strategy, 6)
    running = strategy._running
    strategy.begin_again()
    assert strategy._running == running
    assert strategy._state().tolist() == at_work(start=running)._state().tolist()
    with pytest.raises(InputError, match="nothing was evaluated yet"):
        strategy.recommend()


@pytest.mark.slow
def test_before_it_learns_it_follows_what_is_believed():
    """It is told of every seventh configuration; the likeliest moves lead to one of the best."""
    policy = untrained()
    policy.agent.start_from(first_guess(policy.features, Moves(TUNED.space).parts))
    start = Configuration("bm25", k=30, rerank=True)
    strategy = SequentialPpo(TUNED, policy, start, explore=False)
    for one in TUNED.space.all[::7]:
        batch = WORLD.evaluate(one, EVERY)
        strategy.tell(batch, reward_of(batch, TUNED))
    for _ in range(6):
        strategy._running = strategy.ask(np.random.default_rng(0)).configuration
    assert strategy._running == TUNED.space.all[strategy._belief.best()]
    true = np.array([reward_of(WORLD.evaluate(one, EVERY), TUNED).value
                     for one in TUNED.space.all])  # fmt: skip
    assert true.max() - true[TUNED.space.index[strategy._running]] < 0.03
    assert np.median(true) < true.max() - 0.1


def test_what_is_believed_is_explored_and_its_mean_recommended():
    policy = untrained()
    parts = Moves(TUNED.space).parts
    policy.agent.start_from(first_guess(policy.features, parts))
    strategy = at_work(policy)
    run(strategy, 6)
    asked = {strategy.ask(np.random.default_rng(seed)).configuration for seed in range(30)}
    assert len(asked) > 5
    assert len({strategy.recommend() for _ in range(5)}) == 1


def test_episodes_are_cut_off_and_not_over():
    seen = Features(TUNED.space, without=("belief",))  # of which each state would be another draw
    simulators = [TuningEnvironment([WORLD], TUNED, features=seen, horizon=4, batch=16)
                  for _ in range(2)]  # fmt: skip
    scaling = Scaling(np.zeros(len(seen)), np.ones(len(seen)))
    agent = PPO(Moves(TUNED.space).parts, len(seen))
    played = _episodes(simulators, agent, scaling, [0, 1])
    ends = np.flatnonzero(played.last)
    assert ends.tolist() == [3, 7]
    assert np.flatnonzero(played.beyond).tolist() == [3, 7]
    beyond = [agent.expected(scaling.apply(one._state(one._episode))) for one in simulators]
    assert played.beyond[ends] == pytest.approx(beyond)


def test_without_exploring_the_likeliest_move_is_made():
    strategy = SequentialPpo(TUNED, untrained(), START, explore=False)
    asked = {strategy.ask(np.random.default_rng(seed)) for seed in range(3)}
    ((configuration, propensity),) = asked
    assert propensity == 1.0
    batch = WORLD.evaluate(configuration, EVERY[:32])
    assert strategy._moves.apply(START, strategy._policy.agent.best(strategy._state())) == (
        configuration
    )
    strategy.tell(batch, reward_of(batch, TUNED))
    assert strategy._running == configuration


def test_it_cannot_begin_outside_its_space():
    with pytest.raises(InputError, match="is not among"):
        at_work(start=Configuration("rrf"))


def test_a_policy_is_kept_as_arrays(tmp_path):
    policy = untrained(seed=3)
    policy.save(tmp_path / "a" / "policy.safetensors")
    again = SequentialPolicy.load(tmp_path / "a" / "policy.safetensors", TUNED)
    situation = Situation(RecentResults(), START, TUNED)
    state = policy.state(situation)
    assert again.state(situation).tolist() == state.tolist()
    pairs = zip(policy.agent.distributions(state), again.agent.distributions(state), strict=True)
    assert all(one.tolist() == other.tolist() for one, other in pairs)
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["policy.safetensors"]


def test_a_policy_for_another_space_is_refused(tmp_path):
    file = tmp_path / "policy.safetensors"
    untrained().save(file)
    prompts = TUNED.discrete.model_copy(update={"prompt": ("plain", "brief")})
    with pytest.raises(DataError, match="another space"):
        SequentialPolicy.load(file, TUNED.model_copy(update={"discrete": prompts}))


def test_what_is_no_policy_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a tuning policy"):
        SequentialPolicy.load(tmp_path / "missing", TUNED)
    (tmp_path / "damaged").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="damaged"):
        SequentialPolicy.load(tmp_path / "damaged", TUNED)


def test_nothing_to_train_in_is_refused():
    with pytest.raises(InputError, match="0 environments"):
        train_sequential([])
    with pytest.raises(InputError, match="-1 updates"):
        train_sequential([TuningEnvironment([WORLD], TUNED)], updates=-1)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_same_seed_trains_the_same():
    def trained():
        worlds = [TuningEnvironment([WORLD], TUNED, horizon=4, batch=16) for _ in range(2)]
        return train_sequential(worlds, updates=2, seed=1).agent.state()

    first, second = trained(), trained()
    assert all((first[name] == value).all() for name, value in second.items())


@pytest.mark.nightly
@pytest.mark.slow
def test_it_learns_to_move_to_what_is_worth_more():
    unguided = Features(TUNED.space, without=("belief",))  # or it begins with most of it
    worlds = [TuningEnvironment([WORLD], TUNED, features=unguided, horizon=16, batch=32)
              for _ in range(16)]  # fmt: skip
    rewards = []
    train_sequential(
        worlds, updates=40, settings=Settings(learning_rate=3e-3, kl_target=0.05),
        done=lambda _number, _update, reward: rewards.append(reward),
    )  # fmt: skip
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.03
