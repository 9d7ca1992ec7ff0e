"""The loop."""

from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.loop import retell, tune
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.slices import rotating
from steersman_systems.rag_tuner.strategies.factory import build_strategy
from steersman_systems.rag_tuner.strategies.fixed import Fixed
from steersman_systems.rag_tuner.strategies.random import Random
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, TUNED = world(queries=40), tuned()


def episodes(strategy, count, size=16, seed=0, **more):
    slices = rotating(np.arange(40), size, np.random.default_rng([seed, 0]))
    return tune(strategy, WORLD, TUNED, slices, evaluations=count, seed=seed, **more)


class Nobody:
    """An evaluator that must not be asked."""

    def evaluate(self, configuration, queries):
        raise AssertionError(configuration)


def test_each_evaluation_is_told_before_it_is_given():
    strategy = Random(TUNED)
    for number, one in enumerate(episodes(strategy, 4), 1):
        assert one.number == number
        assert len(one.batch) == 16
        assert strategy.recommend()


class Shaken:
    """An evaluator whose quality depends on the day, and not on the query."""

    def __init__(self):
        self.days = 0

    def evaluate(self, configuration, queries):
        self.days += 1
        batch = WORLD.evaluate(configuration, queries)
        level = 0.9 if self.days % 2 else 0.3
        return replace(batch, quality=np.full_like(batch.quality, level))


def test_a_configuration_whose_quality_scatters_from_batch_to_batch_is_told_unstable():
    slices = rotating(np.arange(40), 16, np.random.default_rng(0))
    fixed = Fixed(Configuration(k=3))
    told = tune(fixed, Shaken(), TUNED, slices, evaluations=4, seed=0)
    assert [one.reward.penalty for one in told] == [0.0, 0.0, 0.5, 0.5]


def test_drawing_queries_is_no_instability():
    """Slices of one query scatter as queries do; that says nothing of the configuration."""
    found = [one.reward.penalty for one in episodes(Fixed(Configuration(k=3)), 12, size=1)]
    assert set(found) == {0.0}


def test_no_evaluations():
    with pytest.raises(InputError, match="evaluations is 0"):
        next(episodes(Random(TUNED), 0))


@pytest.mark.parametrize("name", ["factored", "halving", "random"])
def test_what_was_stopped_goes_on_as_if_it_had_not_been(name):
    whole = list(episodes(build_strategy(name, TUNED, queries=40), 12))
    known = [one.batch for one in whole[:7]]
    again = list(episodes(build_strategy(name, TUNED, queries=40), 12, known=known))
    assert [one.configuration for one in again] == [one.configuration for one in whole]
    assert [one.reward.value for one in again] == [one.reward.value for one in whole]


def test_what_is_known_is_not_evaluated_again():
    known = [one.batch for one in episodes(Random(TUNED), 5)]
    slices = rotating(np.arange(40), 16, np.random.default_rng([0, 0]))
    told = tune(Random(TUNED), Nobody(), TUNED, slices, evaluations=5, seed=0, known=known)
    assert [one.batch for one in told] == known


def test_the_log_of_another_run_is_refused():
    known = [one.batch for one in episodes(Random(TUNED), 3)]
    with pytest.raises(DataError, match="evaluation 1 of the log"):
        list(episodes(Random(TUNED), 5, seed=1, known=known))


def test_a_run_under_other_weights_begins_with_what_the_old_one_knew():
    """Told again, it believes what it would if it had been told so from the first."""
    dear = tuned(gamma=0.4, delta=0.4)
    paid = [one.batch for one in episodes(build_strategy("factored", TUNED, queries=40), 12)]
    begun = build_strategy("factored", dear, queries=40)
    retell(begun, paid, dear, evaluator=WORLD)
    told = build_strategy("factored", dear, queries=40)
    slices = rotating(np.arange(40), 16, np.random.default_rng([0, 0]))
    for batch in paid:
        assert next(slices).tolist() == batch.queries.tolist()
        told.tell(batch, reward_of(batch, dear))
        told.tell_smaller(WORLD.smaller(batch))
    assert begun.recommend() == told.recommend()
    assert begun._belief.mean() == pytest.approx(told._belief.mean(), abs=1e-12)
    random = Random(dear)
    retell(random, paid, dear, evaluator=WORLD)  # which learns nothing of fewer passages
    assert random.recommend() in {batch.configuration for batch in paid}


def test_tpe_suggests_from_what_was_paid_for_before():
    pytest.importorskip("optuna")
    paid = [one.batch for one in episodes(Random(TUNED), 12)]
    paid.append(WORLD.evaluate(Configuration("rrf"), np.arange(16)))  # outside the space
    begun = build_strategy("tpe", TUNED, queries=40)
    retell(begun, paid, TUNED, evaluator=WORLD)
    trials = begun._study.trials
    assert [one.value for one in trials] == [reward_of(one, TUNED).value for one in paid[:12]]
    assert {"hybrid"} == {one.params["variant"] for one in trials if "fusion_weight" in one.params}
    # They count as its own: the first ten are drawn at random, and the densities hold from there.
    asked = begun.ask(np.random.default_rng(0)).configuration
    afresh = build_strategy("tpe", TUNED, queries=40).ask(np.random.default_rng(0)).configuration
    assert asked != afresh
    own = begun._study.trials[-1].distributions
    assert {name: trials[0].distributions[name] for name in own if name in trials[0].params} == {
        name: of for name, of in own.items() if name in trials[0].params
    }


def test_ppo_which_learns_nothing_from_an_earlier_run_says_so():
    pytest.importorskip("torch")
    paid = [one.batch for one in episodes(Random(TUNED), 2)]
    with pytest.raises(InputError, match="learns only from its own draws"):
        retell(build_strategy("ppo", TUNED, queries=40), paid, TUNED)
