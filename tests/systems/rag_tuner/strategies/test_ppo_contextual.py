"""A configuration for each question: exact odds, one-step episodes, what depends on context."""

import numpy as np
import pytest

pytest.importorskip("torch")

from steersman.errors import InputError
from steersman.training.ppo.settings import Settings
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.strategies.ppo_contextual import ContextualPpo, contexts_of
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, TUNED = world(), tuned(gamma=0.05, delta=0.05)
CONTEXTS = contexts_of(["which"] * len(WORLD), WORLD.categories)


@pytest.mark.slow
def test_its_propensity_is_the_mass_of_what_the_configuration_reads():
    strategy = ContextualPpo(TUNED)
    masses = strategy.agent.distributions(np.ones(1))
    found = [strategy._choices.propensity(one, masses) for one in TUNED.space.all]
    assert sum(found) == pytest.approx(1)
    for seed in range(200):
        asked = strategy.ask(np.random.default_rng(seed))
        place = TUNED.space.index[asked.configuration]
        assert asked.propensity == pytest.approx(found[place])


def test_it_learns_after_every_eighth_evaluation():
    strategy, rng = ContextualPpo(TUNED), np.random.default_rng(0)
    for number in range(1, 18):
        batch = WORLD.evaluate(strategy.ask(rng).configuration, np.arange(32))
        strategy.tell(batch, reward_of(batch, TUNED))
        assert strategy.agent.updates == number // 8


def test_each_question_has_a_draw_and_a_propensity_of_its_own():
    strategy = ContextualPpo(TUNED, CONTEXTS)
    asked = strategy.ask_each(np.arange(6), np.random.default_rng(0))
    assert len({one.configuration for one, _ in asked}) > 1
    for one, drawn in asked:
        fused = one.configuration.variant == "hybrid"
        pairs = zip(strategy.agent.parts, drawn.parts, strict=True)
        read = [mass for part, mass in pairs if fused or part.name != "fusion_weight"]
        assert one.propensity == pytest.approx(np.prod(read))


@pytest.mark.slow
def test_it_learns_what_depends_on_the_category():
    """Questions of a want few passages, those of b many."""
    strategy = ContextualPpo(TUNED, CONTEXTS, settings=Settings(learning_rate=3e-3, kl_target=0.05))
    rng = np.random.default_rng(0)
    wanted = np.where(CONTEXTS[:, -1] > 0, 32, 3)
    for _ in range(40):
        queries = rng.integers(len(WORLD), size=256)
        asked = strategy.ask_each(queries, rng)
        ks = np.array([one.configuration.k for one, _ in asked])
        rewards = -np.abs(ks - wanted[queries]) / 29
        strategy.tell_each(queries, [drawn for _, drawn in asked], rewards)
    assert strategy.agent.updates == 40
    found = strategy.mapping(WORLD.categories)
    assert found["a"].k < 10
    assert found["b"].k > 25
    assert strategy.likeliest(1).k == found["b"].k


def test_undefined_rewards_are_left_out():
    strategy = ContextualPpo(TUNED, CONTEXTS)
    queries = np.arange(4)
    drawn = [one for _, one in strategy.ask_each(queries, np.random.default_rng(0))]
    strategy.tell_each(queries, drawn, np.array([0.1, np.nan, 0.2, np.nan]))
    assert len(strategy._questions) == 2


def test_what_has_no_context_is_refused():
    strategy = ContextualPpo(TUNED, CONTEXTS)
    with pytest.raises(InputError, match="question 500 has no context"):
        strategy.likeliest(500)
    with pytest.raises(InputError, match="categories for"):
        strategy.mapping(["a"])
    with pytest.raises(InputError, match="contexts are"):
        ContextualPpo(TUNED, np.array([[np.nan]]))
    with pytest.raises(InputError, match="every is 0"):
        ContextualPpo(TUNED, every=0)


def test_contexts_are_cheap_and_within_bounds():
    texts = ["Who wrote Lisp 1.5?", "", "a " * 500]
    found = contexts_of(texts, ["names", "", "names"])
    assert found.shape == (3, 6)
    assert ((found >= 0) & (found <= 2)).all()
    with pytest.raises(InputError, match="1 texts, 2 categories"):
        contexts_of(["x"], ["a", "b"])
