"""What a run answered goes through the detectors, and what is shown of it is masked."""

import json

import pytest

from steersman.errors import DataError
from steersman.providers.detectors.answer_review import Instability, flagged_answers
from steersman.providers.detectors.national_ids import PersonalData


def written(tmp_path, *answers):
    file = tmp_path / "handbook-run" / "predictions.jsonl"
    file.parent.mkdir(exist_ok=True)
    rows = (
        {"question": name, "text": "Who is it?", "prompt": "plain", "answer": answer}
        for name, answer in answers
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_flagged_answer_is_shown_masked_with_its_place(tmp_path):
    personal = PersonalData()
    answer = "Ann, ann@example.org, DNI 12345678Z."
    file = written(tmp_path, ("q1", "Nobody."), ("q2", answer))
    (found,) = flagged_answers(file, [personal], personal)
    assert (found.detector, found.kinds, found.score) == ("personal_data", ("email", "es_dni"), 1.0)
    assert found.subject == "handbook-run/plain/q2/2"
    assert found.excerpt == "Question: Who is it?\nAnswer: Ann, [email], DNI [es_dni]."


def test_half_a_surrogate_pair_in_an_id_ends_no_scan(tmp_path):
    personal = PersonalData()
    file = written(tmp_path, ("q\ud800", "ann@example.org"))
    (found,) = flagged_answers(file, [personal], personal)
    assert found.subject == "handbook-run/plain/q?/1"


def test_answers_of_one_question_that_differ_are_flagged_together(tmp_path):
    personal = PersonalData()
    file = written(tmp_path, ("q1", "At nine."), ("q1", "Nobody knows."), ("q2", "At ten."))
    (found,) = flagged_answers(file, [], personal, Instability())
    assert (found.detector, found.kinds) == ("instability", ("answers_differ",))
    assert found.excerpt.endswith("Answer: At nine.\nAnswer: Nobody knows.")


@pytest.mark.parametrize("content", ["{", "[]", '{"question": "q"}', '{"question": 1, "text": "", "prompt": "", "answer": ""}'])  # fmt: skip  # noqa: E501
def test_a_line_that_is_no_answer_is_named(tmp_path, content):
    file = tmp_path / "predictions.jsonl"
    file.write_text(f"\n{content}\n")
    with pytest.raises(DataError, match="line 2"):
        list(flagged_answers(file, [], PersonalData()))
    with pytest.raises(DataError, match=r"give the predictions\.jsonl"):
        list(flagged_answers(tmp_path / "none", [], PersonalData()))
