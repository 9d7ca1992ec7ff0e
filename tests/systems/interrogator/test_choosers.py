"""Choosers choose among the eligible with exact probabilities; the learned one learns."""

import dataclasses

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.spec.loader import loads
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.choosers import Heuristic, Learned, Uniform, worth
from steersman_systems.interrogator.exhaustive import Exhaustive
from steersman_systems.interrogator.investigation import investigate
from steersman_systems.interrogator.neighbours import Nearest
from steersman_systems.interrogator.point import load_point, point_document
from steersman_systems.interrogator.questions import load_questions
from steersman_systems.interrogator.state import Situation

POINT = """
format: 1
skill: interrogator
decision: question
context:
  dim: 64
  fields:
    target: {type: vector, size: 384}
    last: {type: text, ngrams: []}
    similarity: {type: number, mean: 0.5, sd: 0.2}
    similarity_change: {type: number, mean: 0.1, sd: 0.1}
    answer_similarity: {type: number, mean: 0.5, sd: 0.2}
    step: {type: number, mean: 2, sd: 2}
actions: {kind: choice, names: [field, form, topic, city, dish]}
policy: {algorithm: lin_ts, prior_var: 1.0, noise_var: 0.1}
explore: none
fallback: {otherwise: field}
reward:
  terms:
    similarity_gain: {weight: 1.0, low: 0, high: 0.5}
    cache_miss: {weight: -0.1, low: 0, high: 1}
"""


@pytest.fixture
def point():
    return loads(POINT)


@pytest.fixture
def situation(few, words):
    answerer = OptionAnswerer(words, MemoryCache())
    target = words.target("text food pizza")
    return Situation.at_start(few, target.vector, answerer.open(few.opening, target.vector))


def _choosers(words, point):
    return [
        Heuristic(),
        Uniform(),
        Nearest(words),
        Exhaustive(OptionAnswerer(words, MemoryCache())),
        Learned.declared(point),
    ]


@pytest.mark.parametrize("which", range(5))
def test_every_chooser_keeps_the_contract(words, point, situation, which):
    chooser = _choosers(words, point)[which]
    rng, same = np.random.default_rng(5), np.random.default_rng(5)
    drawn = chooser.choose(situation, rng)
    same.random()
    assert rng.random() == same.random(), "exactly one uniform"
    names = situation.questions.names
    assert drawn.action in situation.eligible
    assert drawn.distribution.sum() == pytest.approx(1.0)
    assert drawn.propensity == drawn.distribution[names.index(drawn.action)] > 0
    outside = [p for p, name in zip(drawn.distribution, names, strict=True)
               if name not in situation.eligible]  # fmt: skip
    assert outside == [0.0] * len(outside)


def test_chance_is_even(few, situation):
    rng = np.random.default_rng(0)
    actions = [Uniform().choose(situation, rng).action for _ in range(3_000)]
    shares = [actions.count(name) / 3_000 for name in situation.eligible]
    assert situation.eligible == ("field", "form", "city")
    np.testing.assert_allclose(shares, 1 / 3, atol=0.03)


def _next(situation, asked, gains, slots):
    few = situation.questions
    after = dataclasses.replace(
        situation, asked=asked, gains=gains, slots=slots, step=len(asked),
        eligible=few.eligible(asked, slots),
    )  # fmt: skip
    return Heuristic().choose(after, np.random.default_rng(0)).action


def test_the_heuristic_asks_in_order_and_leaves_a_phase_that_ran_dry(situation):
    filled = {"field": "food"}
    assert _next(situation, (), (), {}) == "field"
    assert _next(situation, ("field",), (0.2,), filled) == "form"
    assert _next(situation, ("field", "form"), (0.2, 0.0), filled) == "topic"
    assert _next(situation, ("form",), (0.001,), {}) == "field"


def test_two_dry_questions_end_a_phase_and_one_does_not():
    questions = load_questions()
    dry = Heuristic().next(("field", "intent"), (0.009, 0.0), ("object", "wanted"), questions)
    wet = Heuristic().next(("field", "intent"), (0.0, 0.01), ("object", "wanted"), questions)
    assert (dry, wet) == ("wanted", "object")
    # Where every phase ran dry, the declared order alone counts.
    asked = ("field", "intent", "wanted", "weather", "city", "when")
    left = ("object", "screen", "role")
    assert Heuristic().next(asked, (0.0,) * 6, left, questions) == "object"


def test_nearest_asks_what_has_the_nearest_option_and_counts_its_texts(words, few, situation):
    chooser = Nearest(words)
    drawn = chooser.choose(situation, np.random.default_rng(0))
    assert drawn.action == "field"
    assert chooser.embedder_calls == 3 + 2 + 2
    chooser.choose(situation, np.random.default_rng(0))
    assert chooser.embedder_calls == 7


def test_exhaustive_finds_the_best_step_and_its_answer_is_then_cached(words, few):
    answerer = OptionAnswerer(words, MemoryCache())
    chooser = Exhaustive(answerer)
    done = investigate(words.target("text oslo"), questions=few, chooser=chooser,
                       answerer=answerer, rng=np.random.default_rng(0), limit=1)  # fmt: skip
    assert done.steps[0].drawn.action == "city"
    assert done.steps[0].answer.cache_hit
    assert chooser.embedder_calls == 3 + 2 + 2
    tried = [answerer.answer(few[name], done.steps[0].situation).similarity
             for name in done.steps[0].situation.eligible]  # fmt: skip
    assert done.similarity == max(tried)


def test_a_shortlist_costs_less_and_holds_the_nearest(words, few, situation):
    answerer = OptionAnswerer(words, MemoryCache())
    chooser = Exhaustive(answerer, nearest=Nearest(words), shortlist=1)
    near = Nearest(words)
    drawn = chooser.choose(situation, np.random.default_rng(0))
    assert near.ranked(situation)[0] == drawn.action == "field"
    assert sorted(near.ranked(situation)) == sorted(situation.eligible)
    assert chooser.embedder_calls == 7 + 3
    with pytest.raises(InputError, match="without nearest, all questions are tried"):
        Exhaustive(answerer, shortlist=0)


def test_the_policy_learns_the_declared_reward_at_every_step(words, few, point):
    learned = Learned.declared(point)
    done = investigate(words.target("text food pizza"), questions=few, chooser=learned,
                       answerer=OptionAnswerer(words, MemoryCache()),
                       rng=np.random.default_rng(0))  # fmt: skip
    again = Learned.declared(point)
    for step in done.steps:
        again.policy.learn(step.drawn.x, step.drawn.action, worth(point.reward, step.outcomes))
    x = learned.encoder.encode(done.steps[0].situation.context())
    assert learned.policy.updates == len(done.steps)
    np.testing.assert_array_equal(learned.policy.distribution(x), again.policy.distribution(x))


def test_a_frozen_policy_learns_nothing(words, few, point):
    learned = Learned.declared(point, frozen=True)
    investigate(words.target("text food"), questions=few, chooser=learned,
                answerer=OptionAnswerer(words, MemoryCache()),
                rng=np.random.default_rng(0))  # fmt: skip
    assert learned.policy.updates == 0


def test_learning_finds_the_question_that_pays(words, few, point):
    learned = Learned.declared(point)
    rng = np.random.default_rng(1)
    answerer = OptionAnswerer(words, MemoryCache())
    first = []
    for _ in range(60):
        done = investigate(words.target("text rome"), questions=few, chooser=learned,
                           answerer=answerer, rng=rng, limit=1)  # fmt: skip
        first.append(done.steps[0].drawn.action)
    assert first[-20:].count("city") >= 18
    assert first[:5].count("city") < 5


def test_the_reward_keeps_the_ratio_of_gain_and_miss(point):
    for reward in (point.reward, load_point(load_questions()).reward):
        terms = reward.terms
        gain, miss = terms["similarity_gain"], terms["cache_miss"]
        assert -miss.weight / gain.weight == pytest.approx(0.05 / (gain.high - gain.low))
        middle = (gain.low + gain.high) / 2
        least = worth(reward, {"similarity_gain": middle, "cache_miss": 1})
        assert worth(reward, {"similarity_gain": middle, "cache_miss": 0}) > least


def test_an_outcome_that_is_missing_is_told(point):
    with pytest.raises(InputError, match="expected all of"):
        worth(point.reward, {"cache_miss": 1.0})


def test_a_point_without_named_choices_is_refused():
    text = point_document().replace("kind: choice", "kind: sequence")
    assert "kind: sequence" in text
    other = loads(POINT.replace("{kind: choice, names: [field, form, topic, city, dish]}",
                  "{kind: mixed, parts: {temperature: {type: real, low: 0, high: 1}}}")
                  .replace("{otherwise: field}", "{otherwise: {temperature: 0.5}}")
                  .replace("{algorithm: lin_ts, prior_var: 1.0, noise_var: 0.1}",
                           "{algorithm: fixed, action: {temperature: 0.5}}"))  # fmt: skip
    with pytest.raises(InputError, match=r"actions of kind .*; allowed: choice"):
        Learned.declared(other)
