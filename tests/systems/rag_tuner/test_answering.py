"""What fails because of a prompt is a configuration's fault; what fails for anybody is nobody's."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.db.judge_cache import JudgeCache
from steersman.errors import (
    BackendAnswerError,
    BackendError,
    BackendUnavailableError,
    DataError,
    InputError,
)
from steersman.providers.chat import ChatBackend
from steersman.providers.detectors.answer_review import Instability
from steersman.providers.judges.judge import Retry
from steersman.retrieval.searcher import Searcher
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.evaluator import LiveEvaluator
from steersman_systems.rag_tuner.judged_collections import Question
from steersman_systems.rag_tuner.limits import Limits
from tests.providers.chat_server import chat_server
from tests.retrieval.hashed_words import HashedWords
from tests.systems.rag_tuner.live import (
    ALL,
    QUESTIONS,
    WORDS,
    Written,
    answers,
    evaluator,
    passages,
)

pytest.importorskip("bm25s")


class Refusing(Written):
    """A model that answers with an error while it has one."""

    def __init__(self, refusal):
        super().__init__()
        self.refusal = refusal

    def complete(self, prompt, *, max_tokens, timeout_s):
        if "PASSAGES" in prompt and self.refusal is not None:
            raise self.refusal
        return super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)


@pytest.mark.parametrize(
    "refusal",
    [
        BackendAnswerError("no such key"),
        BackendAnswerError("the answer is no JSON"),
        BackendError("something else"),
    ],
)
def test_a_model_that_refuses_everybody_says_nothing_of_a_configuration(tmp_path, refusal, caplog):
    model, kept = Refusing(refusal), JudgeCache(tmp_path / "kept.sqlite")
    live = evaluator(kept=kept, answers=answers(model, retry=Retry(tries=1)))
    found = live.measure(WORDS, ALL)
    assert (found.batch, found.unjudged) == (None, {"model": len(ALL)})
    assert caplog.text.count(f"the model that answers is away: {refusal}") == 1
    with pytest.raises(DataError, match=r"have no verdict \(model 3\).*servers and keys"):
        live.evaluate(WORDS, ALL)
    model.refusal = None
    assert not live.evaluate(WORDS, ALL).failed.any()


def test_a_model_that_has_no_turn_to_give_says_nothing_of_a_configuration():
    now = [0.0]

    class Taken(Written):
        def complete(self, prompt, *, max_tokens, timeout_s):
            now[0] += timeout_s
            raise BackendUnavailableError("other prompts took all the time", asked=False)

    retry = Retry(tries=1, first_s=0.001, longest_s=0.001)
    live = evaluator(answers=answers(Taken(), retry=retry, clock=lambda: now[0]))
    assert live.measure(WORDS, ALL).unjudged == {"model": len(ALL)}


def test_a_prompt_that_is_refused_is_a_failure_of_the_configuration(tmp_path):
    model = Refusing(BackendAnswerError("the prompt is too long", of_prompt=True))
    live = evaluator(kept=JudgeCache(tmp_path / "kept.sqlite"), answers=answers(model))
    found = live.measure(WORDS, ALL)
    assert (found.batch.failed.all(), found.unjudged) == (True, {})
    assert "too long" in found.told[0].why


def test_what_a_server_says_of_a_key_and_of_a_prompt_is_told_apart():
    with chat_server() as server:
        for mode, why in (
            *(("unauthorized", "model"), ("garbage", "model")),
            *(("too_long", "413"), ("null", "NoneType")),
        ):
            asked = answers(ChatBackend(server.url(mode), "writer"))
            episode = asked.episode(max_cost_usd=None, max_calls=None)
            assert why in episode.answer("why", ["a passage"], "plain").why


def test_prompts_that_cannot_be_sent_are_told_one_by_one_and_cost_nothing():
    with chat_server() as server:
        asked = answers(ChatBackend(server.url(), "writer"))
        episode = asked.episode(max_cost_usd=None, max_calls=None)
        half = episode.answer("why \ud83d?", ["a passage"], "plain")
        long = episode.answer("why", ["x" * 70_000] * 3, "plain")
        assert (half.text, half.why) == (None, "unreadable")
        assert long.text is None
        assert "allowed: 1 to 200000" in long.why
        assert (episode.calls, episode.cost_usd, long.cost_usd, server.asked) == (0, 0.0, 0.0, [])
        assert episode.answer("why", ["half \ud83d", "whole"], "plain").why == "unreadable"
        assert episode.answer("why", ["whole"], "plain").text == "blue"
        none = answers(ChatBackend(server.url(), "writer"), max_tokens=0)
        with pytest.raises(InputError, match="max_tokens is 0"):
            none.episode(max_cost_usd=None, max_calls=None).answer("why", ["a"], "plain")


class Strict(HashedWords):
    """Takes no half characters, as the tokenizers of real models do not."""

    def encode(self, texts):
        for text in texts:
            text.encode()
        return super().encode(texts)


def test_a_question_with_half_a_character_has_no_quality_and_is_no_failure():
    half = Question("half", "why \ud83d hum", {"pumps": 1.0})
    live = LiveEvaluator(
        Searcher(passages(), embedder=Strict()),
        [half, *QUESTIONS[1:]],
        revision="r",
        answers=answers(Written()),
    )
    found = live.measure(Configuration("hybrid", k=2), ALL)
    assert not found.batch.failed.any()
    assert np.isnan(found.batch.quality).tolist() == [[True, True], [False, False], [False, False]]
    assert found.told[0].why == "unreadable"


def test_a_question_that_was_not_answered_as_often_as_wanted_is_asked_again(tmp_path):
    now = [0.0]

    class Late(Written):
        late = True

        def complete(self, prompt, *, max_tokens, timeout_s):
            said = super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
            if "PASSAGES" in prompt and self.answers == 2 and self.late:
                now[0] += timeout_s
                raise BackendUnavailableError("no whole answer in time")
            return said

    model, kept = Late(), JudgeCache(tmp_path / "kept.sqlite")
    several = {"instability": Instability(), "repeats": 3, "retry": Retry(tries=1)}
    asked = answers(model, clock=lambda: now[0], **several)
    live = evaluator(kept=kept, answers=asked, limits=Limits(workers=1))
    first = live.measure(WORDS, ALL[:1])
    assert (len(first.told[0].said), first.batch.failed.tolist()) == (1, [False])
    model.late = False
    second = live.measure(WORDS, ALL[:1])
    assert (len(second.told[0].said), second.paid_before, model.answers) == (3, 0, 4)
    assert live.measure(WORDS, ALL[:1]).paid_before == 1
