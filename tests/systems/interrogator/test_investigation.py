"""An investigation asks until it is there, until its limit, or until nothing is left to ask."""

import dataclasses

import numpy as np
import pytest

from steersman.errors import ActionError, InputError
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.choosers import Choice, Heuristic, Uniform
from steersman_systems.interrogator.investigation import investigate
from steersman_systems.interrogator.questions import Questions, Template
from steersman_systems.interrogator.targets import Target


@pytest.fixture
def ask(few, words):
    """Return an investigation of a text, each from an empty cache unless one is given."""

    def run(text, *, chooser=None, cache=None, seed=0, **options):
        answerer = OptionAnswerer(words, MemoryCache() if cache is None else cache)
        rng = np.random.default_rng(seed)
        return investigate(
            words.target(text), questions=few, chooser=chooser or Heuristic(), answerer=answerer,
            rng=rng, **options,
        )  # fmt: skip

    return run


def _asked(done):
    return [step.drawn.action for step in done.steps]


def test_answers_are_appended_until_it_is_there(ask):
    done = ask("text food pizza", stop_at=0.98)
    assert done.hypothesis == "text food pizza"
    assert done.solved
    assert _asked(done) == ["field", "form", "topic"]
    assert done.similarity == pytest.approx(1.0, abs=1e-3)


def test_a_filled_slot_opens_the_questions_that_need_it(ask):
    done = ask("text sea ships cold", stop_at=1.0)
    slots = [dict(step.situation.slots) for step in done.steps]
    assert slots[0] == {}
    assert slots[-1] == {"field": "sea", "topic": "ships"}
    assert "dish" in _asked(done)
    assert "ships cold" in done.hypothesis


def test_a_question_is_asked_once_and_the_session_ends_when_none_is_left(ask):
    done = ask("nothing like it", stop_at=1.0)
    asked = _asked(done)
    assert len(set(asked)) == len(asked) <= 5
    assert not done.solved


def test_the_limit_ends_it(ask):
    done = ask("nothing like it", stop_at=1.0, limit=2)
    assert len(done.steps) == 2


def test_an_opening_that_is_there_needs_no_question(ask):
    done = ask("text")
    assert (done.steps, done.solved, done.steps_to(0.9)) == ((), True, 0)
    assert done.embedder_calls == 1


def test_gains_add_up_and_are_never_negative(ask):
    done = ask("text food pizza question rome", stop_at=1.0)
    gains = [step.gain for step in done.steps]
    assert min(gains) >= 0.0
    assert done.similarity == pytest.approx(done.opening.similarity + sum(gains), abs=1e-12)
    for step in done.steps:
        missed = step.outcomes["cache_miss"]
        assert step.reward == pytest.approx(step.outcomes["similarity_gain"] - 0.05 * missed)


def test_the_same_again_costs_nothing_and_reaches_the_same(ask):
    cache = MemoryCache()
    first, second = (ask("text food pizza", cache=cache) for _ in range(2))
    assert first.embedder_calls > 0 == second.embedder_calls
    assert second.cache_hits == len(second.steps)
    assert first.similarity == second.similarity
    assert all(step.outcomes["cache_miss"] == 0.0 for step in second.steps)


def test_one_seed_is_one_investigation(ask):
    runs = [ask("text food", chooser=Uniform(), seed=seed, stop_at=1.0) for seed in (1, 1, 2)]
    assert _asked(runs[0]) == _asked(runs[1]) != _asked(runs[2])


def test_steps_to_a_similarity_count_questions(ask):
    done = ask("text food pizza", stop_at=0.98)
    assert done.steps_to(done.opening.similarity) == 0
    assert done.steps_to(0.98) == 3
    assert done.steps_to(1.01) is None


def test_situations_follow_from_answers(ask):
    done = ask("text food pizza question", stop_at=1.0)
    before = done.steps[0].situation
    assert (before.step, before.change, before.asked) == (0, 0.0, ())
    assert before.answer_similarity == before.similarity == done.opening.similarity
    for earlier, later in zip(done.steps, done.steps[1:], strict=False):
        situation = later.situation
        assert situation.change == earlier.gain == situation.gains[-1]
        assert situation.similarity == earlier.answer.similarity
        assert situation.answer_similarity == earlier.answer.answer_similarity
        assert situation.asked == (*earlier.situation.asked, earlier.drawn.action)
        assert earlier.drawn.action not in situation.eligible
    last = done.steps[-1].situation.context()
    assert last["step"] == len(done.steps) - 1
    assert last["last"].split() == list(done.steps[-1].situation.asked[-3:])


class _Stubborn:
    """A chooser that does not look at what is eligible."""

    def choose(self, situation, rng):
        return Choice("dish", 1.0, np.zeros(5), "stubborn")

    def learn(self, situation, drawn, outcomes):
        raise AssertionError


def test_a_choice_that_is_not_eligible_is_refused(ask):
    with pytest.raises(ActionError, match="'dish' was chosen; eligible: field, form"):
        ask("text food", chooser=_Stubborn())


@pytest.mark.parametrize("options", [{"limit": 0}, {"stop_at": 1.5}, {"stop_at": -1.0}])
def test_limits_out_of_range_are_refused(ask, options):
    with pytest.raises(InputError, match="allowed: limit 1 or more"):
        ask("text", **options)


def test_a_target_of_another_embedder_is_refused(few, words):
    answerer = OptionAnswerer(words, MemoryCache())
    target = Target.of_vector(np.ones(768))
    with pytest.raises(InputError, match="embed the target with the same embedder"):
        investigate(target, questions=few, chooser=Heuristic(), answerer=answerer,
                    rng=np.random.default_rng(0))  # fmt: skip


def test_an_investigation_changes_no_situation(ask):
    done = ask("text food pizza")
    first = done.steps[0].situation
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.step = 3
    assert first.slots == {}


def test_what_the_answerer_cannot_take_is_never_asked(words, few):
    free = Template("free", "What is it?", "broad", "{option}", ())
    questions = Questions("text", (free, *few.templates))
    done = investigate(
        words.target("text food pizza"),
        questions=questions,
        chooser=Heuristic(),
        answerer=OptionAnswerer(words, MemoryCache()),
        rng=np.random.default_rng(0),
    )
    assert done.steps[0].drawn.action == "field"
    assert all("free" not in step.situation.eligible for step in done.steps)
