"""Questions are read with every mistake told at its line, and asked only when they can be."""

import dataclasses

import pytest

from steersman.errors import ActionError, SpecError
from steersman_systems.configs import shipped
from steersman_systems.interrogator.point import load_point, point_document
from steersman_systems.interrogator.questions import load_questions

HEAD = "format: 1\nopening: A text\nquestions:\n"
COLOUR = """\
  - name: colour
    phase: broad
    question: What colour?
    phrase: in {option}
    options: [red, blue]
    fills: colour
"""
SHADE = """\
  - name: shade
    phase: detail
    question: Which shade?
    phrase: a {option} {slot}
    options: {red: [dark, light]}
    needs: colour
"""


def _read(tmp_path, text):
    path = tmp_path / "questions.yaml"
    path.write_text(text, encoding="utf-8")
    return load_questions(path)


def _refused(tmp_path, text):
    with pytest.raises(SpecError) as refused:
        _read(tmp_path, text)
    return str(refused.value).replace(str(tmp_path), "")


def test_a_file_becomes_questions(tmp_path):
    questions = _read(tmp_path, HEAD + COLOUR + SHADE)
    assert questions.names == ("colour", "shade")
    assert questions["shade"].vocabulary({"colour": "red"}) == ("dark", "light")
    assert questions["shade"].vocabulary({}) == ()
    assert questions["shade"].extend("A hat", "dark", {"colour": "red"}) == "A hat a dark red"
    with pytest.raises(ActionError, match="allowed: colour, shade"):
        questions["size"]


def test_a_question_is_eligible_when_its_slot_is_filled_and_has_options(tmp_path):
    questions = _read(tmp_path, HEAD + COLOUR + SHADE)
    assert questions.eligible((), {}) == ("colour",)
    assert questions.eligible(("colour",), {"colour": "red"}) == ("shade",)
    assert questions.eligible(("colour",), {"colour": "blue"}) == ()
    assert questions.eligible(("colour", "shade"), {"colour": "red"}) == ()


def test_a_question_for_a_language_model_alone_has_no_options(tmp_path, words):
    asked = COLOUR.replace("[red, blue]", "ask")
    questions = _read(tmp_path, HEAD + asked)
    assert questions["colour"].asks
    assert questions.eligible((), {}) == ("colour",)
    assert questions["colour"].vocabulary({}) == ()


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (COLOUR.replace("[red, blue]", "[]"), 8, "a question without options; got []; allowed 1"),
        (COLOUR.replace("    options: [red, blue]\n", ""), 4, "options: ask, if only a language"),
        (COLOUR.replace("[red, blue]", "[red, Red]"), 8, "an option twice; got 'red'"),
        (COLOUR.replace("[red, blue]", "[red, ' ']"), 8, "an empty option"),
        (COLOUR.replace("[red, blue]", "[red, 3]"), 8, "wrong type; got 3; allowed text"),
        (COLOUR.replace("[red, blue]", "some"), 8, "unknown choice; got 'some'"),
        (COLOUR.replace("[red, blue]", "{red: [dark]}"), 8, "options by the value of no slot"),
        (COLOUR + COLOUR.replace("fills: colour", "fills: other"), 10, "was there before; got"),
        (COLOUR.replace("in {option}", "in red"), 7, "no place for the answer: {option}"),
        (COLOUR.replace("in {option}", "'{slot} {option}'"), 7, "{slot} of no slot"),
        (COLOUR.replace("broad", "wide"), 5, "unknown choice; got 'wide'; allowed 'broad'"),
        (SHADE, 9, "a slot that no question fills; got 'colour'"),
        (COLOUR + SHADE.replace("{red: [", "{green: ["), 14, "colour is never answered so"),
        (COLOUR + SHADE.replace("[dark, light]", "[]"), 14, "no options; got []"),
        (COLOUR + "    needs: colour\n", 10, "needs what it fills"),
        (COLOUR + "    needs: shade\n" + SHADE + "    fills: shade\n", 10, "wait for each other"),
        (COLOUR + "    colour: red\n", 10, "unknown field"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_at_its_line(tmp_path, text, line, says):
    message = _refused(tmp_path, HEAD + text)
    told = [one for one in message.splitlines() if says in one]
    assert told, message
    assert told[0].startswith(f"/questions.yaml:{line}: questions[")


def test_all_mistakes_are_told_at_once(tmp_path):
    text = COLOUR.replace("in {option}", "in red") + SHADE.replace("[dark, light]", "[]")
    assert len(_refused(tmp_path, HEAD + text).splitlines()) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "an empty document"),
        (b"format: 1\nopening: A\nquestions: []\n", "too few entries"),
        (b"format: 2\nopening: A\nquestions: []\n", "unknown choice; got 2"),
        (b"\xff\xfe", "save it as UTF-8"),
        (b"questions: &a [*a]\n", "anchor"),
    ],
)
def test_a_file_that_declares_no_questions_is_refused(tmp_path, content, says):
    path = tmp_path / "questions.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=says):
        load_questions(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        load_questions(tmp_path / "none.yaml")


def test_the_shipped_questions_fit_the_decision_point_and_a_step():
    questions = load_questions()
    assert load_point(questions).actions.names == questions.names
    assert len(questions.templates) == 50
    for template in questions.templates:
        lists = [template.options] if isinstance(template.options, tuple) else (
            list(template.options.values())
        )  # fmt: skip
        assert all(6 <= len(options) <= 12 for options in lists), template.name
    phases = [template.phase for template in questions.templates]
    assert phases == sorted(phases, key=("broad", "narrow", "detail").index)


def test_another_set_of_names_than_the_points_is_refused():
    questions = load_questions()
    fewer = dataclasses.replace(questions, templates=questions.templates[1:])
    with pytest.raises(SpecError, match="actions that are not questions: field;"):
        load_point(fewer)
    turned = dataclasses.replace(questions, templates=questions.templates[::-1])
    with pytest.raises(SpecError, match="the order differs"):
        load_point(turned)


def test_the_document_is_what_is_declared_to_a_service(tmp_path):
    assert point_document() == shipped("interrogator/question.yaml").read_text(encoding="utf-8")
    with pytest.raises(SpecError, match="check the path"):
        point_document(tmp_path / "none.yaml")


def test_what_changes_a_question_changes_the_hash(few):
    other = dataclasses.replace(few.templates[0], question="What field?")
    changed = dataclasses.replace(few, templates=(other, *few.templates[1:]))
    assert changed.sha256 != few.sha256
    assert dataclasses.replace(few, opening="words").sha256 != few.sha256
