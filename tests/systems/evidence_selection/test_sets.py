"""Every set is read in the format it is published in; what is absent or broken is named."""

import csv
import json

import pytest

from steersman.errors import DataError
from steersman_systems.evidence_selection.sets import known_sets as sets
from steersman_systems.evidence_selection.sets.files import table
from tests.systems.evidence_selection.set_files import own, write


def said(question):
    return [(turn.speaker, turn.text) for turn in question.history]


# -- this project's own, and BEIR's ---------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_own_format(tmp_path, suffix):
    own(tmp_path, suffix=suffix)
    found = sets.load("own", tmp_path)
    (question,) = found.questions
    assert [one.doc_id for one in found.passages] == ["p1", "p2"]
    assert said(question) == [("user", "what lifts?"), ("agent", "A wing.")]
    assert (question.answers, question.gold, question.category) == (
        ("Drag.",), ("p2", "p9"), "flight",
    )  # fmt: skip
    assert found.pools == {"q1": (1, 0)}
    assert (found.splits, found.conversations) == ({"q1": "dev"}, {"q1": "c1"})
    assert found.unfindable == {"p9"}
    assert found.part("dev").questions == found.questions
    with pytest.raises(DataError, match="has no split 'test'; it has dev"):
        found.part("test")


def test_own_format_with_ids_as_beir_calls_them(tmp_path):
    write(tmp_path / "own", "passages.jsonl", [{"_id": 4, "text": "Drag."}])
    question = {"_id": 7, "question": "what drags?", "gold": [4], "pool": ["4"]}
    write(tmp_path / "own", "questions.jsonl", [question])
    found = sets.load("own", tmp_path)
    assert (found.questions[0].gold, found.pools, found.unfindable) == (("4",), {"7": (0,)}, set())


def test_candidates_that_were_too_many_are_none_of_a_pool(tmp_path):
    long = "p3 " + "x" * 300  # kept under a digest
    names = ["p0", "p1", "p2", long]
    rows = [{"id": name, "title": "T", "text": f"text of {name}"} for name in names]
    write(tmp_path / "mine", "passages.jsonl", [*rows, rows[3]])
    write(
        tmp_path / "mine", "questions.jsonl",
        [{"id": "q", "question": "What?", "gold": ["p0"], "pool": names, "conversation": "c"}],
    )  # fmt: skip
    assert sets.load("mine", tmp_path).pools == {"q": (0, 1, 2, 3)}
    few = sets.load("mine", tmp_path, at_most=1)
    assert (few.pools, few.left_out) == ({"q": (0, 1)}, 2)
    assert few.questions[0].conversation == "c"
    assert few.conversations == {"q": "c"}


def test_beir(tmp_path):
    folder = tmp_path / "scifacts"
    write(
        folder, "corpus.jsonl", [{"_id": str(n), "title": "T", "text": f"t{n}"} for n in range(9)]
    )
    write(folder, "queries.jsonl", [{"_id": "a", "text": "why?"}, {"_id": "b", "text": "how?"}])
    write(folder, "qrels/test.tsv", "query-id\tcorpus-id\tscore\na\t7\t2\na\t3\t0\n")
    found = sets.load("scifacts", tmp_path, at_most=4)
    (question,) = found.questions
    assert (question.id, question.gold, found.splits) == ("a", ("7",), {"a": "test"})
    assert [one.doc_id for one in found.passages] == ["0", "1", "2", "3", "7"]
    assert found.left_out == 4


def test_beir_as_mteb_has_it(tmp_path):
    folder = tmp_path / "b"
    write(folder, "corpus.jsonl.gz", [{"_id": "7", "text": "t", "title": None}, {"_id": "8"}])
    write(folder, "queries.jsonl", [{"_id": "a", "text": "why?"}])
    write(folder, "qrels/dev.jsonl", [{"query-id": "a", "corpus-id": "7", "score": 1}])
    found = sets.load("b", tmp_path)
    assert (found.questions[0].gold, found.splits) == (("7",), {"a": "dev"})
    assert [(one.doc_id, one.text) for one in found.passages] == [("7", "t"), ("8", "")]


def test_judgements_of_unknown_queries_and_no_numbers_are_told_by_line(tmp_path):
    folder = tmp_path / "b"
    write(folder, "corpus.jsonl", [{"_id": "1", "text": "t"}])
    write(folder, "queries.jsonl", [{"_id": "a", "text": "why?"}])
    write(folder, "qrels/test.tsv", "query-id\tcorpus-id\tscore\nz\t1\t1\n")
    with pytest.raises(DataError, match=r"test.tsv, line 2: the query 'z' is not in"):
        sets.load("b", tmp_path)
    write(folder, "qrels/test.tsv", "a\t1\thigh\n")
    with pytest.raises(DataError, match=r"line 1: the score is 'high'"):
        sets.load("b", tmp_path)
    write(folder, "qrels/test.tsv", "a\t1\n")
    with pytest.raises(DataError, match=r"line 1: 2 columns; there must be 3"):
        sets.load("b", tmp_path)
    write(folder, "qrels/test.tsv", "a\t1\t1\n")
    write(folder, "queries.jsonl", [{"_id": "a", "text": "why?"}, {"_id": "a", "text": "how?"}])
    with pytest.raises(DataError, match=r"queries.jsonl, line 2: duplicate question 'a'"):
        sets.load("b", tmp_path)


# -- conversations --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["list", "lines"])
def test_coral(tmp_path, shape):
    talk = {
        "conv_id": "Test_LDS_1",
        "turns": [
            {"turn_id": 1, "question": "What is a reef?", "response": "A ridge [2].",
             "golden_docs_pids": [2], "golden_docs_text": [""]},
            {"turn_id": 2, "question": "Where?", "response": "In warm seas.",
             "golden_rewrite": "Where are reefs?", "golden_docs_pids": [1, 3]},
        ],
    }  # fmt: skip
    name = "test/new_test_conversation.json" if shape == "list" else "test_conversation.json"
    write(tmp_path / "coral", name, json.dumps([talk]) if shape == "list" else [talk])
    corpus = [{"ref_id": n, "ref_string": f"passage {n}"} for n in (1, 2, 3, 4)]
    write(tmp_path / "coral", "passage_corpus.json", corpus)
    found = sets.load("coral", tmp_path)
    first, second = found.questions
    assert (first.id, first.gold, first.history) == ("Test_LDS_1_1", ("2",), ())
    assert said(second) == [("user", "What is a reef?"), ("agent", "A ridge [2].")]
    assert (second.gold, second.answers) == (("1", "3"), ("In warm seas.",))
    assert found.rewrites == {"Test_LDS_1_2": "Where are reefs?"}
    assert set(found.conversations.values()) == {"Test_LDS_1"}
    assert found.splits[first.id] == "test"


QRECC_PASSAGES = [
    {"id": "http://a.org#p0", "contents": "A."},
    {"id": "http://b#p1", "contents": "B."},
]


def test_qrecc_as_the_shared_task_has_it(tmp_path):
    rows = [
        {"Conversation_no": 7, "Turn_no": 2, "Question": "Why?", "Truth_rewrite": "Why A?",
         "Truth_answer": "So.", "Truth_passages": ["http://b#p1"], "Conversation_source": "quac"},
        {"Conversation_no": 7, "Turn_no": 1, "Question": "What is A?", "Truth_rewrite": "",
         "Truth_answer": "A letter.", "Truth_passages": [], "Conversation_source": "quac"},
    ]  # fmt: skip
    write(tmp_path / "qrecc", "scai-qrecc21-test-turns.json", json.dumps(rows))
    write(tmp_path / "qrecc", "collection-paragraph/part/1.jsonl", QRECC_PASSAGES)
    found = sets.load("qrecc", tmp_path)
    first, second = found.questions
    assert (first.id, first.gold) == ("7_1", ())
    assert said(second) == [("user", "What is A?"), ("agent", "A letter.")]
    assert (second.gold, second.category) == (("http://b#p1",), "quac")
    assert found.rewrites == {"7_2": "Why A?"}
    assert [one.id for one in found.answerable().questions] == ["7_2"]


def test_qrecc_as_its_authors_have_it(tmp_path):
    row = {"Context": ["What is A?", "A letter."], "Question": "Why?", "Rewrite": "Why A?",
           "Answer": "So.", "Answer_URL": "http://b", "Conversation_no": 1, "Turn_no": 2,
           "Conversation_source": "trec"}  # fmt: skip
    write(tmp_path / "qrecc", "qrecc_test.json", json.dumps([row]))
    with pytest.raises(DataError, match="has no collection-paragraph"):
        sets.load("qrecc", tmp_path)
    write(tmp_path / "qrecc", "collection-paragraph/1.jsonl.gz", QRECC_PASSAGES)
    (question,) = sets.load("qrecc", tmp_path).questions
    assert said(question) == [("user", "What is A?"), ("agent", "A letter.")]
    assert (question.answers, question.gold) == (("So.",), ())


def test_qrecc_with_its_truth_apart_and_numbers_as_texts(tmp_path):
    asked = {"Conversation_no": "7", "Turn_no": "1", "Question": "What is A?", "Context": []}
    truth = {"Conversation_no": 7, "Turn_no": 1, "Truth_rewrite": "What is the letter A?",
             "Truth_passages": ["http://a.org#p0"], "Truth_answer": "A letter."}  # fmt: skip
    write(tmp_path / "qrecc", "scai-qrecc21-test-questions.json", json.dumps([asked]))
    write(tmp_path / "qrecc", "scai-qrecc21-test-ground-truth.json", json.dumps([truth]))
    write(tmp_path / "qrecc", "passages/wayback/1.jsonl", QRECC_PASSAGES)
    found = sets.load("qrecc", tmp_path)
    (question,) = found.questions
    assert (question.id, question.gold, question.answers) == (
        "7_1", ("http://a.org#p0",), ("A letter.",),
    )  # fmt: skip
    assert found.rewrites == {"7_1": "What is the letter A?"}


SEGMENTS = [
    ("id", "text", "title"),
    ("10", 'A "duck" of Disney\'s.', '"Donald"'),
    ("11", 'Two\tcolumns,\ntwo lines, a "quote".', "Mickey [SEP] Intro"),
    ("12", "x" * 200_000, "Long"),
    ("13", '"Quoted" at its beginning.', "Plain"),
]


def test_topiocqa(tmp_path):
    folder = tmp_path / "topiocqa"
    row = {"Conversation_no": 1, "Turn_no": 2, "Question": "Since when?", "Answer": "1928",
           "Topic": "Mickey", "Topic_section": "Introduction", "Rationale": "in 1928",
           "Context": ["Who is Mickey?", "A mouse"],
           "Additional_answers": [{"Answer": "in 1928", "Topic": "Mickey"}]}  # fmt: skip
    gold = {"conv_id": 1, "turn_id": 2, "question": "Who is Mickey? [SEP] Since when?",
            "answers": ["1928"], "positive_ctxs": [{"title": "Mickey", "text": "", "score": 1000,
                                                    "passage_id": "11"}]}  # fmt: skip
    write(folder, "topiocqa_dataset/topiocqa_dev.json", json.dumps([row]))
    write(folder, "ir_all_history_dev.json", json.dumps([gold]))
    with (folder / "full_wiki_segments.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(SEGMENTS)
    found = sets.load("topiocqa", tmp_path)
    (question,) = found.questions
    assert (question.id, question.gold) == ("1_2", ("11",))
    assert question.answers == ("1928", "in 1928")
    assert said(question) == [("user", "Who is Mickey?"), ("agent", "A mouse")]
    assert [(one.doc_id, one.text, one.title) for one in found.passages] == SEGMENTS[1:]


def test_topiocqa_in_its_later_edition_with_and_without_the_collection(tmp_path):
    folder = tmp_path / "topiocqa"
    gold = {"id": "wiki:11", "title": "Mickey [SEP] Intro", "text": "A mouse of 1928."}
    row = {"Conversation_no": 1, "Turn_no": 1, "Question": "Since when?", "Answer": "1928",
           "Context": [], "Gold_passage": gold,
           "Additional_answers": [{"Answer": "UNANSWERABLE"}]}  # fmt: skip
    write(folder, "data/topiocqa_valid.jsonl", [row])
    found = sets.load("topiocqa", tmp_path)
    assert (found.questions[0].gold, found.splits) == (("11",), {"1_1": "dev"})
    assert found.questions[0].answers == ("1928",)
    assert [one.text for one in found.passages] == ["A mouse of 1928."]
    assert "its collection is not there" in found.note
    for name in ("11", "wiki:11"):  # the authors number them; others put the same before them
        rows = f"id\ttext\ttitle\r\n{name}\tA mouse.\tMickey\r\n"
        write(folder, "full_wiki_segments.tsv", rows)
        found = sets.load("topiocqa", tmp_path)
        assert ([one.text for one in found.passages], found.note) == (["A mouse."], "")
        assert found.unfindable == frozenset()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ('id\ttext\ttitle\n10\t"never ended\tx\n', "line 2: 2 columns; there must be 3"),
        ('id\ttext\ttitle\n\n10\t"a\nb"\n', "line 3: 2 columns; there must be 3"),
        ("id\ttext\ttitle\n10\ta\rb\tx\n", "line 2: new-line character .*; copy the file again"),
    ],
)
def test_what_is_wrong_in_a_quoted_table_is_told_by_line(tmp_path, rows, told):
    file = write(tmp_path, "rows.tsv", rows)
    with pytest.raises(DataError, match=told):
        list(table(file, columns=3, quoted=True))


def test_or_quac(tmp_path):
    folder = tmp_path / "or_quac"
    row = {"qid": "C_1_q#1", "question": "where?", "rewrite": "where was she born?",
           "history": [{"question": "who?", "answer": {"text": "a singer", "answer_start": 3}}],
           "answer": {"text": "CANNOTANSWER", "answer_start": 0}, "evidences": [],
           "retrieval_labels": []}  # fmt: skip
    write(folder, "preprocessed/test.txt", [row])
    write(folder, "qrels.txt", json.dumps({"C_1_q#1": {"G_0@1": 1}}))
    blocks = [{"title": "Her", "id": f"G_0@{n}", "text": f"block {n}", "aid": "0", "bid": n}
              for n in (0, 1)]  # fmt: skip
    write(folder, "all_blocks.txt.gz", blocks)
    found = sets.load("or_quac", tmp_path)
    (question,) = found.questions
    assert (question.gold, question.answers) == (("G_0@1",), ())
    assert said(question) == [("user", "who?"), ("agent", "a singer")]
    assert found.conversations == {"C_1_q#1": "C_1_q"}
    assert found.rewrites == {"C_1_q#1": "where was she born?"}


def test_or_quac_without_its_collection(tmp_path):
    row = {"qid": "C_1_q#0", "question": "who?", "history": [], "answer": {"text": "a singer"},
           "evidences": ["other", "she sang"], "retrieval_labels": [0, 1]}  # fmt: skip
    write(tmp_path / "or_quac", "preprocessed/dev.txt", [row])
    found = sets.load("or_quac", tmp_path)
    (question,) = found.questions
    assert (question.gold, found.pools) == ((found.passages[1].doc_id,), {"C_1_q#0": (0, 1)})
    assert "its collection is not there" in found.note
    write(tmp_path / "or_quac", "preprocessed/dev.txt", [row | {"retrieval_labels": [1]}])
    with pytest.raises(DataError, match=r"retrieval_labels is \[1\]; it must be 2 numbers"):
        sets.load("or_quac", tmp_path)
