"""Answer relevancy against a real server whose questions are known."""

import json
import math

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.providers.judges.judge import judge_all
from steersman.providers.judges.relevancy import Relevancy
from steersman.providers.judges.scores import Case
from tests.providers.scripted import Script, judge_at, told
from tests.retrieval.hashed_words import HashedWords

ANSWER = "It opens at nine."
CASE = Case("When does it open?", ANSWER)
ASKED = ["When?", "At what time?", "From when on?"]


class Angles:
    """Texts whose direction in the plane is known, whatever their length."""

    def __init__(self, degrees, length=3.0):
        self.degrees, self.length = degrees, length

    def encode(self, texts):
        turned = np.radians([self.degrees[text] for text in texts])
        return self.length * np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def test_the_score_is_the_mean_cosine_with_the_question(chat):
    chat.answer = Script(questions={ANSWER: ASKED})
    embedder = Angles({CASE.question: 0, ASKED[0]: 0, ASKED[1]: 60, ASKED[2]: 90})
    found = Relevancy(judge_at(chat), embedder)(CASE)
    assert found.value == pytest.approx((1 + 0.5 + 0) / 3, abs=1e-6)
    assert (found.questions, found.calls, found.detail) == (tuple(ASKED), 1, "")
    assert told(chat.asked[0][2]["messages"][0]["content"]) == {"answer": ANSWER, "count": 3}


def test_the_embedders_of_retrieval_fit(chat):
    chat.answer = Script(questions={ANSWER: [CASE.question]})
    assert Relevancy(judge_at(chat), HashedWords(), questions=1)(CASE).value == pytest.approx(1.0)


def test_a_mean_below_zero_is_zero(chat):
    chat.answer = Script(questions={ANSWER: ASKED})
    embedder = Angles({CASE.question: 0} | dict.fromkeys(ASKED, 170))
    assert Relevancy(judge_at(chat), embedder)(CASE).value == 0.0


def test_a_noncommittal_answer_scores_zero(chat):
    chat.answer = Script(questions={"I do not know.": None})
    found = Relevancy(judge_at(chat), Angles({}))(Case("Why?", "I do not know."))
    assert (found.value, found.reason, found.detail) == (0.0, "", "noncommittal")


def test_an_empty_answer_scores_zero_and_nothing_is_asked(chat):
    found = Relevancy(judge_at(chat), Angles({}))(Case("Why?", " "))
    assert (found.value, found.calls) == (0.0, 0)


@pytest.mark.parametrize("questions", [ASKED[:2], [*ASKED, "more"], [], ["a", "", "c"]])
def test_another_number_of_questions_is_malformed(chat, questions):
    chat.answer = json.dumps({"noncommittal": False, "questions": questions})
    found = Relevancy(judge_at(chat), Angles({}))(CASE)
    assert (found.value, found.reason, found.calls) == (None, "malformed", 3)


class Short:
    def encode(self, texts):
        return np.ones((1, 3), np.float32)


class Failing:
    def encode(self, texts):
        raise DataError("no weights here")


@pytest.mark.parametrize(
    "embedder",
    [
        Failing(),
        Angles(dict.fromkeys([CASE.question, *ASKED], 0), length=0.0),
        Angles(dict.fromkeys([CASE.question, *ASKED], 0), length=math.nan),
        Short(),
    ],
)
def test_an_embedder_that_fails_leaves_the_score_undefined(chat, embedder):
    chat.answer = Script(questions={ANSWER: ASKED})
    found = Relevancy(judge_at(chat), embedder)(CASE)
    assert (found.value, found.reason, found.calls) == (None, "embedder", 1)


@pytest.mark.parametrize("questions", [0, 11])
def test_how_many_questions_has_bounds(chat, questions):
    with pytest.raises(InputError, match="1 to 10"):
        Relevancy(judge_at(chat), Angles({}), questions=questions)


class Strict(HashedWords):
    """Takes no half characters, as the tokenizers of real models do not."""

    def encode(self, texts):
        for text in texts:
            text.encode()
        return super().encode(texts)


def test_half_a_character_in_a_question_is_unreadable_and_nothing_else_is_lost(chat):
    chat.answer = Script(questions={ANSWER: [CASE.question]})
    judge = judge_at(chat)
    measure = Relevancy(judge, Strict(), questions=1)
    found = judge_all(judge, [measure], [CASE, Case("why \ud83d?", ANSWER)], workers=1)
    whole, half = found.scores["relevancy"]
    assert whole.value == pytest.approx(1.0)
    assert (half.value, half.reason, half.calls) == (None, "unreadable", 0)
