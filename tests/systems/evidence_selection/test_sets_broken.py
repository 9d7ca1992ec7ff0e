"""Sets that are absent, broken, or as editors, archives and pages of the web leave them."""

import json
import tracemalloc

import pytest

from steersman.errors import DataError, InputError
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets import files
from steersman_systems.evidence_selection.sets import known_sets as sets
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder
from tests.systems.evidence_selection.set_files import (
    HOTPOT,
    OWN_PASSAGES,
    OWN_QUESTION,
    own,
    write,
)

# -- whatever editors, archives and pages of the web do to files ----------------------------------


def test_marks_of_byte_order_and_line_ends_of_windows_are_no_part_of_the_text(tmp_path):
    own(tmp_path)
    for name in ("passages", "questions"):
        file = tmp_path / "own" / f"{name}.jsonl"
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    found = sets.load("own", tmp_path)
    assert [one.doc_id for one in found.passages] == ["p1", "p2"]
    content = "\ufeff" + json.dumps([HOTPOT], indent=1).replace("\n", "\r\n")
    write(tmp_path / "hotpotqa", "hotpot_dev_distractor_v1.json.gz", content)
    assert sets.load("hotpotqa", tmp_path).questions[0].id == "5a"
    write(tmp_path / "b", "corpus.jsonl", [{"_id": "7", "text": "t"}])
    write(tmp_path / "b", "queries.jsonl", [{"_id": "a", "text": "why?"}])
    write(tmp_path / "b", "qrels/test.tsv", "\ufeffquery-id\tcorpus-id\tscore\r\na\t7\t1\r\n")
    assert sets.load("b", tmp_path).questions[0].gold == ("7",)


def test_what_no_store_keeps_is_replaced_and_what_is_too_long_cut(tmp_path, caplog):
    address = "http://example.org/" + "x" * 600
    passages = [{"id": address, "title": "T" * 1_500, "text": "NUL \0, half \ud83d, \U0001f600"},
                {"id": "ends with a blank ", "text": "b"}]  # fmt: skip
    question = OWN_QUESTION | {"gold": [address], "pool": [address, "ends with a blank "], "id": 7,
                               "conversation": 3}  # fmt: skip
    for name, rows in (("passages", passages), ("questions", [question])):
        content = "".join(json.dumps(row) + "\n" for row in rows)  # escaped, as JSON writes them
        write(tmp_path / "own", f"{name}.jsonl", content)
    found = sets.load("own", tmp_path)
    first, second = found.passages
    assert (first.text, len(first.title)) == ("NUL \ufffd, half \ufffd, \U0001f600", 1_000)
    assert found.questions[0].gold == (first.doc_id,)
    assert (found.pools, found.unfindable) == ({"7": (0, 1)}, frozenset())
    assert second.doc_id == second.doc_id.strip()
    assert found.conversations == {"7": "3"}
    assert "1 titles were cut to 1000 characters" in caplog.text


def test_what_archives_hide_beside_a_file_is_not_taken_for_it(tmp_path):
    for hidden in ("test/._test_conversation.json", "__MACOSX/test/test_conversation.json"):
        write(tmp_path / "coral", hidden, "\x00\x05")
    with pytest.raises(DataError, match=r"has no .*; put it there"):
        sets.load("coral", tmp_path)


def test_a_line_of_millions_is_read_and_one_without_end_is_told(tmp_path, monkeypatch):
    own(tmp_path)
    monkeypatch.setattr(files, "_LINE_CAP", 3_000_000)
    passages = [OWN_PASSAGES[0] | {"text": "x" * 2_000_000}, OWN_PASSAGES[1]]
    write(tmp_path / "own", "passages.jsonl", passages)
    assert len(sets.load("own", tmp_path).passages[0].text) == 2_000_000
    monkeypatch.setattr(files, "_LINE_CAP", 1_000_000)
    with pytest.raises(DataError, match=r"line 1 is longer than 1,000,000 characters"):
        sets.load("own", tmp_path)


@pytest.mark.parametrize("name", ["2WikiMultihopQA", "2wiki"])
def test_a_set_goes_by_its_names(tmp_path, name):
    write(tmp_path / name, "dev.json", json.dumps([HOTPOT]))
    assert sets.load(name, tmp_path).name == name


def test_a_folder_of_any_name_is_told_by_its_files_if_they_belong_to_one_set(tmp_path):
    write(tmp_path / "mine", "hotpot_dev_distractor_v1.json", json.dumps([HOTPOT]))
    assert sets.load("mine", tmp_path).questions[0].id == "5a"
    write(tmp_path / "mine", "musique_ans_v1.0_dev.jsonl", [])
    with pytest.raises(DataError, match="has no set in a known format"):
        sets.load("mine", tmp_path)


EMPTY = "holds 0 questions and 0 passages; at least one of each"
HOTPOT_FILE = "hotpot_dev_distractor_v1.json"


@pytest.mark.parametrize(
    ("name", "file", "content", "says"),
    [
        ("hotpotqa", HOTPOT_FILE, "[]", EMPTY),
        ("musique", "musique_ans_v1.0_dev.jsonl", "", EMPTY),
        ("nq", "v1.0-simplified_nq-dev-all.jsonl.gz", "", EMPTY),
        ("triviaqa", "qa/wikipedia-dev.json", '{"Data": []}', EMPTY),
        (
            "hotpotqa",
            HOTPOT_FILE,
            '[{"_id": "a"},\n {]',
            r"v1.json, line 2, column 3 is not JSON",
        ),
    ],
)
def test_load_of_an_empty_or_broken_set_says_what_is_wrong(tmp_path, name, file, content, says):
    write(tmp_path / name, file, content)
    with pytest.raises(DataError, match=says):
        sets.load(name, tmp_path)


# -- absent and broken ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(sets.KNOWN))
def test_an_absent_set_is_told_with_its_origin(tmp_path, name):
    known = sets.KNOWN[name]
    with pytest.raises(DataError) as told:
        sets.load(name, tmp_path)
    for part in (name, known.about, str(tmp_path), known.origin):
        assert part in str(told.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, r"has no .*; put it there") for name in sorted(sets.KNOWN)),
        ("mine", r"put passages.jsonl and questions.jsonl there"),
    ],
)
def test_load_of_an_empty_folder_names_the_missing_files(tmp_path, name, says):
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=says):
        sets.load(name, tmp_path)


def test_a_broken_line_is_told_by_its_number(tmp_path):
    own(tmp_path)
    file = tmp_path / "own" / "passages.jsonl"
    file.write_text(file.read_text() + '{"id": "p3", "text": \n', encoding="utf-8")
    with pytest.raises(DataError, match=r"passages.jsonl, line 3 is not JSON"):
        sets.load("own", tmp_path)
    file.write_text("\n[1]\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"passages.jsonl, entry 1 is '1'; it must be an object"):
        sets.load("own", tmp_path)
    file.write_bytes(b'{"id": "p1", "text": "\xff"}\n')
    with pytest.raises(DataError, match=r"passages.jsonl cannot be read: .*utf-8"):
        sets.load("own", tmp_path)


def test_a_cut_archive_is_told(tmp_path):
    own(tmp_path, suffix=".gz")
    file = tmp_path / "own" / "passages.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"passages.jsonl.gz cannot be read"):
        sets.load("own", tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gold": "p1"}, r"questions.jsonl, line 1: gold is 'p1'; it must be a list of names"),
        ({"pool": ["p7"]}, r"line 1: the candidate 'p7' is not a passage of the set"),
        ({"history": [1]}, r"history is \[1\]; it must be a list of texts"),
        ({"question": None}, r"question is None; it must be a text"),
    ],
)
def test_a_wrong_field_is_told_by_line(tmp_path, change, told):
    own(tmp_path, OWN_QUESTION | change)
    with pytest.raises(DataError, match=told):
        sets.load("own", tmp_path)


def test_what_is_there_twice_is_told(tmp_path):
    own(tmp_path)
    write(tmp_path / "own", "questions.jsonl", [OWN_QUESTION] * 2)
    with pytest.raises(DataError, match="duplicate question 'q1'"):
        sets.load("own", tmp_path)
    write(tmp_path / "own", "questions.jsonl", [OWN_QUESTION])
    write(tmp_path / "own", "passages.jsonl", [*OWN_PASSAGES, OWN_PASSAGES[0]])
    assert len(sets.load("own", tmp_path).passages) == 2  # the same passage again is one
    write(tmp_path / "own", "passages.jsonl", [OWN_PASSAGES[0], OWN_PASSAGES[0] | {"text": "?"}])
    with pytest.raises(DataError, match=r"line 2: duplicate passage 'p1'"):
        sets.load("own", tmp_path)


def test_a_negative_cap_is_refused(tmp_path):
    with pytest.raises(InputError, match="at_most is -1"):
        sets.load("own", tmp_path, at_most=-1)


def test_what_is_left_out_of_a_large_collection_takes_no_memory():
    found = SetBuilder("large", at_most=1, gold=["right"], pooled=["named"])
    for name in ("first", "named", "right"):
        found.passage("here", name, "text")
    tracemalloc.start()
    try:
        for number in range(20_000):
            found.passage("here", f"http://example.org/{number:060}", "text")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000
    found.ask("here", Question("q", "Who?", gold=("right",)), pool=["named", "first"])
    done = found.done("here")
    assert (done.left_out, done.pools) == (20_001, {"q": (0,)})
