"""What every strategy keeps, whatever it is."""

from importlib.util import find_spec

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.loop import tune
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.slices import rotating
from steersman_systems.rag_tuner.strategies.factory import NAMES, build_strategy
from steersman_systems.rag_tuner.strategies.fixed import Fixed
from tests.systems.rag_tuner.worlds import tuned, world

RUNNABLE = [name for name in NAMES if name != "ppo" or find_spec("torch")]

WORLD, TUNED = world(), tuned(gamma=0.05, delta=0.05)
EVERY = np.arange(len(WORLD))
TRUE = np.array(
    [reward_of(WORLD.evaluate(one, EVERY), TUNED).per_query.mean() for one in TUNED.space.all]
)


def strategy_of(name, policy=TUNED):
    if name == "tpe":
        pytest.importorskip("optuna")
    return build_strategy(name, policy, queries=len(WORLD))


def run(strategy, evaluations, seed=0, policy=TUNED):
    rng = np.random.default_rng(seed)
    slices = rotating(EVERY, 32, rng)
    return list(tune(strategy, WORLD, policy, slices, evaluations=evaluations, seed=seed))


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_is_asked_is_in_the_space_with_a_probability(name):
    for one in run(strategy_of(name), 12):
        assert TUNED.space.check(one.configuration) == one.configuration
        unknown = name in {"halving", "tpe"}
        assert np.isnan(one.propensity) if unknown else 0 < one.propensity <= 1


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_same_seed_asks_the_same(name):
    first = [one.configuration for one in run(strategy_of(name), 15)]
    assert first == [one.configuration for one in run(strategy_of(name), 15)]


@pytest.mark.parametrize("name", RUNNABLE)
def test_nothing_is_recommended_before_anything_is_known(name):
    with pytest.raises(InputError, match="nothing was evaluated yet"):
        strategy_of(name).recommend()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE)
def test_what_breaks_a_gate_is_never_recommended(name):
    """Reranking takes 8 ms here and the gate allows 6: all but those without it break it."""
    limits = TUNED.thresholds.model_copy(update={"p95_latency_ms": 6.0})
    policy = TUNED.model_copy(update={"thresholds": limits})
    strategy = strategy_of(name, policy)
    done = run(strategy, 40, policy=policy)
    assert any(one.reward.breaches for one in done)
    assert not strategy.recommend().rerank


@pytest.mark.parametrize("name", RUNNABLE)
def test_nothing_is_recommended_when_everything_breaks_a_gate(name):
    limits = TUNED.thresholds.model_copy(update={"p95_latency_ms": 1.0})
    policy = TUNED.model_copy(update={"thresholds": limits})
    strategy = strategy_of(name, policy)
    run(strategy, 10, policy=policy)
    with pytest.raises(InputError, match="none may serve"):
        strategy.recommend()


def test_where_all_broke_a_gate_none_is_the_likeliest():
    limits = TUNED.thresholds.model_copy(update={"p95_latency_ms": 1.0})
    policy = TUNED.model_copy(update={"thresholds": limits}).among(TUNED.space.all[:4])
    strategy = strategy_of("factored", policy)
    for one in policy.space.all:
        batch = WORLD.evaluate(one, EVERY[:32])
        strategy.tell(batch, reward_of(batch, policy))
    found = strategy.distribution(np.random.default_rng(0))
    assert found == pytest.approx(policy.space.draw_probabilities)


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_nobody_asked_for_may_be_told(name):
    """The baseline is evaluated beside the others, though it is not in the space."""
    strategy = strategy_of(name)
    batch = WORLD.evaluate(Configuration("rrf"), EVERY[:32])
    strategy.tell(batch, reward_of(batch, TUNED))
    run(strategy, 8)
    assert strategy.recommend()


def test_the_fixed_one_is_always_itself():
    fixed = Fixed(Configuration("rrf"))
    assert {one.configuration for one in run(fixed, 3)} == {Configuration("rrf")}
    assert fixed.recommend() == Configuration("rrf")


def test_halving_tries_the_better_ones_more_often():
    done = [one.configuration for one in run(strategy_of("halving"), 60)]
    counts = {one: done.count(one) for one in done}
    often = [TRUE[TUNED.space.index[one]] for one, count in counts.items() if count >= 4]
    once = [TRUE[TUNED.space.index[one]] for one, count in counts.items() if count == 1]
    assert np.mean(often) > np.mean(once)


@pytest.mark.slow
def test_the_factored_one_finds_the_best_with_fewer_evaluations():
    regret = {}
    for name in ("random", "factored"):
        found = []
        for seed in range(20):
            strategy = strategy_of(name)
            run(strategy, 60, seed)
            found.append(TRUE.max() - TRUE[TUNED.space.index[strategy.recommend()]])
        regret[name] = np.array(found)
    assert regret["factored"].mean() < 0.02
    ahead = regret["random"] - regret["factored"]
    assert ahead.mean() > 2.1 * ahead.std(ddof=1) / np.sqrt(20)  # t, 19 degrees of freedom, 95 %
