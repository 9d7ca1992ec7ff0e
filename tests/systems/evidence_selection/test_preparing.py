"""A set is made ready: questions with gold alone, candidates by the form that suits it."""

import pytest

from steersman.errors import DataError, InputError
from steersman_systems.evidence_selection.prepared_set import prepare, ready
from tests.systems.evidence_selection.bands import bands
from tests.systems.evidence_selection.set_files import OWN_PASSAGES, OWN_QUESTION, write

BARE = {"id": "q2", "question": "what lifts?", "gold": []}


def test_questions_without_gold_are_left_out_and_counted(tmp_path):
    write(tmp_path / "own", "passages.jsonl", OWN_PASSAGES)
    write(tmp_path / "own", "questions.jsonl", [BARE, OWN_QUESTION])
    found = prepare("own", tmp_path, embedder=None)
    assert [one.id for one in found.questions] == ["q1"]
    assert (found.skipped, found.form, found.conversational) == (1, "keywords", True)
    assert found.groups == {"q1": "c1"}
    assert found.note == (
        "1 of its questions have nothing to judge by, and were left out; 1 of its gold passages "
        "are not in its collection and cannot be picked"
    )
    write(tmp_path / "own", "questions.jsonl", [BARE])
    with pytest.raises(DataError, match="no question of own has gold passages"):
        prepare("own", tmp_path, embedder=None)


def test_gold_that_is_no_passage_is_a_ceiling_and_no_error(tmp_path):
    write(tmp_path / "own", "passages.jsonl", OWN_PASSAGES)
    write(tmp_path / "own", "questions.jsonl", [OWN_QUESTION])
    found = prepare("own", tmp_path, embedder=None)
    assert found.evidence.unfindable == {"p9"}
    assert found.questions[0].gold == ("p2", "p9")


def test_an_unknown_form_is_refused():
    world = bands()
    with pytest.raises(InputError, match="unknown query form 'magic'; allowed: last, last_two"):
        ready(world.evidence, world.collection, form="magic")
    assert ready(world.evidence, world.collection, form="history").form == "history"
    assert world.form == "last"


def test_the_first_questions_alone_and_all_passages(tmp_path):
    write(tmp_path / "own", "passages.jsonl", OWN_PASSAGES)
    more = OWN_QUESTION | {"id": "q2"}
    write(tmp_path / "own", "questions.jsonl", [OWN_QUESTION, more])
    found = prepare("own", tmp_path, embedder=None, most=1)
    assert (len(found.pools), len(found.collection)) == (1, 2)


def test_of_a_set_of_which_nothing_was_left_out_nothing_is_told(tmp_path):
    write(tmp_path / "own", "passages.jsonl", OWN_PASSAGES)
    write(tmp_path / "own", "questions.jsonl", [OWN_QUESTION | {"gold": ["p2"]}])
    assert prepare("own", tmp_path, embedder=None).note == ""
