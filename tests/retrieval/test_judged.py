"""Judged collections are read from both formats, and what is wrong in them is named."""

import csv
import gzip
import json
from functools import partial

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.judged_collections import load_judged

CORPUS = [
    {"id": "4", "title": "Wings", "text": "Lift on a wing.\u2028Drag."},
    {"id": "17", "title": "", "text": ""},
]
QUERIES = [
    {"id": "1", "text": "what lifts", "split": "train", "labels": ["SUPPORT"], "type": "bridge"},
    {"id": "2", "text": "what drags", "split": "test"},
    {"id": "3", "text": "what nobody judged", "split": "test"},
]
QRELS = "query-id\tcorpus-id\tscore\n1\t4\t3\n1\t17\t0\n2\t17\t1\n"


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture(autouse=True)
def _fields_as_long_as_in_a_new_process():
    before = csv.field_size_limit(131_072)  # who reads larger ones raises it for the whole process
    yield
    csv.field_size_limit(before)


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "wings"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text(lines(CORPUS), encoding="utf-8")
    (folder / "queries.jsonl").write_text(lines(QUERIES), encoding="utf-8")
    (folder / "qrels.tsv").write_text(QRELS, encoding="utf-8")
    return folder


@pytest.fixture
def gold(tmp_path):
    folder = tmp_path / "hops"
    folder.mkdir()
    questions = [
        {"id": "q1", "question": "who?", "gold": ["4", "17"], "domain": "d", "history": ["hi"]},
        {"id": "q2", "question": "nobody?", "gold": []},
    ]
    (folder / "passages.jsonl.gz").write_bytes(gzip.compress(lines(CORPUS).encode()))
    (folder / "questions.jsonl.gz").write_bytes(gzip.compress(lines(questions).encode()))
    return folder


def test_queries_and_judgements_are_read(beir):
    found = load_judged(beir)
    assert found.name == "wings"
    assert [(one.doc_id, one.title, one.text) for one in found.passages] == [
        ("4", "Wings", "Lift on a wing.\u2028Drag."),
        ("17", "", ""),
    ]
    assert [(one.id, dict(one.gains), one.split, one.category) for one in found.questions] == [
        ("1", {"4": 3.0}, "train", "bridge"),
        ("2", {"17": 1.0}, "test", ""),
    ]
    assert (found.splits, found.held_out) == (("test", "train"), "test")
    assert [one.id for one in found.split("train").questions] == ["1"]
    assert found.split(None) is found


def test_questions_with_their_gold_are_read(gold):
    found = load_judged(gold)
    (question,) = found.questions
    assert dict(question.gains) == {"4": 1.0, "17": 1.0}
    assert (question.text, question.category, question.history) == ("who?", "d", ("hi",))
    assert (found.splits, found.held_out) == (("",), None)


def test_labels_that_only_judges_know_become_no_category(beir):
    rows = [QUERIES[0] | {"type": None, "answerability": "no"}]
    (beir / "queries.jsonl").write_text(lines(rows), encoding="utf-8")
    (beir / "qrels.tsv").write_text("1\t4\t3\n", encoding="utf-8")
    assert load_judged(beir).questions[0].category == ""


def test_beirs_own_ids_are_read(beir):
    rows = [{"_id": row["id"], "text": row["text"]} for row in CORPUS]
    (beir / "corpus.jsonl").write_text(lines(rows), encoding="utf-8")
    assert [one.doc_id for one in load_judged(beir).passages] == ["4", "17"]


def test_collections_are_read_as_beir_publishes_them(beir):
    (beir / "qrels.tsv").unlink()
    (beir / "qrels").mkdir()
    rows = [{name: row[name] for name in ("id", "text")} for row in QUERIES]
    (beir / "queries.jsonl").write_text(lines(rows), encoding="utf-8")
    heading = "\ufeffquery-id\tcorpus-id\tscore\r\n"
    for split, judged in (("train", "1\t4\t1\r\n"), ("test", "2\t17\t2\r\n2\t4\t-1\r\n")):
        (beir / "qrels" / f"{split}.tsv").write_text(heading + judged, encoding="utf-8")
    found = load_judged(beir)
    assert [(one.id, dict(one.gains), one.split) for one in found.questions] == [
        ("1", {"4": 1.0}, "train"),
        ("2", {"17": 2.0}, "test"),
    ]
    assert found.held_out == "test"
    (beir / "qrels" / "train.tsv").unlink()
    assert [one.id for one in load_judged(beir).questions] == ["2"]
    (beir / "qrels.tsv").write_text("1\t4\t1\n1\t4\t1\n", encoding="utf-8")
    assert [one.id for one in load_judged(beir).questions] == ["1"]


def test_ids_may_be_whole_numbers_and_questions_have_no_gold(gold):
    passages = [{"id": 4, "title": None, "text": "Lift."}, {"id": 17, "text": ""}]
    questions = [
        {"id": 1, "question": "who?", "gold": [17, "4"], "conversation": 3, "split": "dev"},
        {"id": 2, "question": "nobody?"},
        {"id": 3, "question": "nobody?", "gold": None},
    ]
    for name, rows in (("passages", passages), ("questions", questions)):
        (gold / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines(rows).encode()))
    found = load_judged(gold)
    (question,) = found.questions
    assert (question.id, dict(question.gains)) == ("1", {"17": 1.0, "4": 1.0})
    assert (question.conversation, found.held_out) == ("3", "dev")


def test_positions_become_documents_each_once(beir):
    found = load_judged(beir)
    assert found.documents(np.array([1, 0, 1])) == ["17", "4"]


def test_gold_that_is_no_document_is_named(beir):
    (beir / "qrels.tsv").write_text(QRELS + "2\tgone\t1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"1 relevant ids: 'gone' \(question '2'\)"):
        load_judged(beir)
    found = load_judged(beir, missing="unfindable")
    assert found.unfindable == {"gone"}
    assert dict(found.questions[1].gains) == {"17": 1.0, "gone": 1.0}
    with pytest.raises(InputError, match="allowed: error, unfindable"):
        load_judged(beir, missing="ignore")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("corpus.jsonl", lines([*CORPUS, CORPUS[0]]), "duplicate id '4'"),
        ("corpus.jsonl", lines(CORPUS) + "{", "line 3: invalid JSON"),
        ("corpus.jsonl", "[" * 99_999, "line 1: invalid JSON"),
        ("corpus.jsonl", lines(CORPUS) + "[]", "line 3: '\\[\\]' must be a JSON object"),
        ("corpus.jsonl", '{"id": 4.5, "text": ""}', "line 1: id is '4.5'; it must be a string"),
        ("corpus.jsonl", '{"id": "4", "text": "a\\u0000"}', "line 1: .* NUL"),
        ("corpus.jsonl", '{"id": "4", "text": "a", "title": 7}', "line 1: the title"),
        ("corpus.jsonl", "", "contains no passages"),
        ("queries.jsonl", lines([*QUERIES, QUERIES[1]]), "line 4: duplicate id '2'"),
        ("queries.jsonl", '{"id": "1"}', "line 1: text is 'None'"),
        ("queries.jsonl", '{"id": "1", "text": " "}', "line 1: text is empty"),
        ("queries.jsonl", '{"id": "1", "text": "a", "history": "b"}', "line 1: history is 'b'"),
        ("qrels.tsv", "1\t4\n", "line 1: 2 columns"),
        ("qrels.tsv", "1\t4\tfour\n", "line 1: the score is 'four'"),
        ("qrels.tsv", "1\t4\tnan\n", "line 1: the score is 'nan'"),
        ("qrels.tsv", "1\t4\t-inf\n", "line 1: the score is '-inf'"),
        ("qrels.tsv", "9\t4\t1\n", "line 1: the query '9' is not in queries.jsonl"),
        ("qrels.tsv", "1\t4\t1\n1\t4\t2\n", "line 2: '4' is judged twice for the query '1'"),
        ("qrels.tsv", "1\t4\t0\n", "no question of .* has a relevant document"),
        (
            "qrels.tsv",
            "1\t" + "4" * 200_000 + "\t1\n",
            "qrels.tsv is not a valid table: field larger",
        ),
        ("qrels.tsv", "1\t" + "4" * 500 + "\t1\n", r"no document for .*: '4{79} \(question '1'\)"),
        (
            "qrels.tsv",
            "".join(f"1\tgone{number}\t1\n" for number in range(9)),
            r"9 relevant ids.*'gone4' \(question '1'\) and 4 more",
        ),
    ],
)
def test_load_judged_with_a_bad_file_names_the_line_or_ids(beir, file, content, says):
    (beir / file).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=says):
        load_judged(beir)


NO_LIST = r"line 1: gold is .* list of ids"
_packed = partial(gzip.compress, mtime=0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        *(
            (_packed(f'{{"id": "q1", "question": "who?", "gold": {value}}}\n'.encode()), NO_LIST)
            for value in ('"4"', "[4.5]", "[true]", "0")
        ),
        (b"no gzip", r"questions.jsonl"),
        (_packed(b"\xff\xfe{}"), r"questions.jsonl"),
    ],
    ids=["a text", "a fraction", "a truth", "a number", "no gzip", "no UTF-8"],
)
def test_load_judged_with_bad_questions_names_them(gold, content, says):
    (gold / "questions.jsonl.gz").write_bytes(content)
    with pytest.raises(DataError, match=says):
        load_judged(gold)


def test_a_truncated_file_is_named(gold):
    file = gold / "passages.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(DataError, match="cannot be read"):
        load_judged(gold)


@pytest.mark.parametrize(
    ("missing", "folder", "says"),
    [
        ("corpus.jsonl", "", r"put corpus.jsonl, queries.jsonl and qrels.tsv there"),
        ("corpus.jsonl", "nowhere", "no collection found"),
        ("qrels.tsv", "", r"qrels.tsv is missing \(or qrels.tsv.gz\)"),
    ],
)
def test_load_judged_with_a_file_missing_says_what_belongs_there(beir, missing, folder, says):
    (beir / missing).unlink()
    with pytest.raises(DataError, match=says):
        load_judged(beir / folder)


def test_a_split_that_is_not_there_is_refused(beir):
    with pytest.raises(DataError, match="no split 'valid'; it has 'test', 'train'"):
        load_judged(beir).split("valid")
