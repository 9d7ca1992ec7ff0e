"""Every set is read in the format it is published in; what is absent or broken is named."""

import csv
import json

import pytest

from steersman.errors import DataError
from steersman.systems.leadr import sets
from steersman.systems.leadr.sets.files import table
from tests.systems.leadr.set_files import HOTPOT, own, write


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
    assert (found.questions[0].gold, found.splits) == (("wiki:11",), {"1_1": "dev"})
    assert found.questions[0].answers == ("1928",)
    assert [one.text for one in found.passages] == ["A mouse of 1928."]
    assert "its collection is not there" in found.note
    write(folder, "full_wiki_segments.tsv", "id\ttext\ttitle\r\nwiki:11\tA mouse.\tMickey\r\n")
    found = sets.load("topiocqa", tmp_path)
    assert ([one.text for one in found.passages], found.note) == (["A mouse."], "")


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


# -- questions with candidates of their own -------------------------------------------------------


def test_hotpotqa(tmp_path):
    rows = [HOTPOT, HOTPOT | {"_id": "5b", "context": HOTPOT["context"][::-1]}]
    write(tmp_path / "hotpotqa", "hotpot_dev_distractor_v1.json", json.dumps(rows))
    found = sets.load("hotpotqa", tmp_path)
    assert [(one.title, one.text) for one in found.passages] == [
        ("Rush", "A band. From Toronto."), ("Toto", "Another band."),
    ]  # fmt: skip
    first, second = found.questions
    assert first.gold == second.gold == (found.passages[0].doc_id,)
    assert (first.answers, first.category) == (("Rush",), "bridge")
    assert found.pools == {"5a": (0, 1), "5b": (1, 0)}
    few = sets.load("hotpotqa", tmp_path, at_most=0)
    assert ([one.title for one in few.passages], few.left_out) == (["Rush"], 1)
    assert (few.pools, few.unfindable) == ({"5a": (0,), "5b": (0,)}, frozenset())


def test_hotpotqa_by_columns_and_with_a_title_twice(tmp_path):
    titles, sentences = ["Rush", "Toto", "Rush"], [["A band."], ["Another."], ["A film."]]
    row = {"id": "5a", "question": "Who?", "answer": "Rush", "type": "bridge",
           "context": {"title": titles, "sentences": sentences},
           "supporting_facts": {"title": ["Toto"], "sent_id": [0]}}  # fmt: skip
    write(tmp_path / "hotpotqa", "hotpotqa_validation.jsonl", [row])
    found = sets.load("hotpotqa", tmp_path)
    assert [one.text for one in found.passages] == ["A band.", "Another.", "A film."]
    assert (found.pools, found.splits) == ({"5a": (0, 1, 2)}, {"5a": "dev"})
    assert found.questions[0].gold == (found.passages[1].doc_id,)


def test_hotpotqa_over_all_of_wikipedia_has_gold_that_no_context_holds(tmp_path):
    facts = [["Rush", 0], ["Yes", 1]]
    other = {"_id": "5b", "context": [["Toto", ["Another band."]]], "supporting_facts": facts}
    rows = [HOTPOT, HOTPOT | other]
    write(tmp_path / "hotpotqa", "hotpot_dev_fullwiki_v1.json", json.dumps(rows))
    found = sets.load("hotpotqa", tmp_path)
    assert found.questions[1].gold == (found.passages[0].doc_id, "absent: Yes")
    assert found.unfindable == {"absent: Yes"}
    assert found.pools == {"5a": (0, 1), "5b": (1,)}


def test_two_wiki(tmp_path):
    row = HOTPOT | {"evidences": [["Rush", "country", "Canada"]], "entity_ids": "Q1_Q2"}
    write(tmp_path / "2wiki", "data/dev.json", json.dumps([row]))
    (question,) = sets.load("2wiki", tmp_path).questions
    assert (question.text, len(question.gold)) == ("Who?", 1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"context": [["Rush", "A band."]]},
            r"entry 1: context is .* a list of \[title, sentences\]",
        ),
        ({"question": "  "}, "question is empty"),
        ({"_id": None}, "_id is None; it must be a name"),
    ],
)
def test_what_is_wrong_in_hotpotqa_is_told_by_entry(tmp_path, change, told):
    write(tmp_path / "hotpotqa", "hotpot_dev_distractor_v1.json", json.dumps([HOTPOT | change]))
    with pytest.raises(DataError, match=told):
        sets.load("hotpotqa", tmp_path)


def test_musique(tmp_path):
    row = {"id": "3hop1__1_2_3", "question": "Seat?", "answer": "Stanley",
           "answer_aliases": ["Stanley, ND"], "answerable": True, "question_decomposition": [],
           "paragraphs": [
               {"idx": 0, "title": "A", "paragraph_text": "a", "is_supporting": False},
               {"idx": 1, "title": "B", "paragraph_text": "b", "is_supporting": True},
           ]}  # fmt: skip
    write(tmp_path / "musique", "data/musique_ans_v1.0_dev.jsonl", [row])
    found = sets.load("musique", tmp_path)
    (question,) = found.questions
    assert question.gold == (found.passages[1].doc_id,)
    assert (question.answers, question.category) == (("Stanley", "Stanley, ND"), "3hop1")
    assert found.pools == {row["id"]: (0, 1)}


def test_musique_in_full_asks_twice_under_one_id(tmp_path):
    row = {"id": "2hop__1_2", "question": "Seat?", "answer": "Stanley", "answer_aliases": [],
           "answerable": True, "paragraphs": [
               {"idx": 0, "title": "B", "paragraph_text": "b", "is_supporting": True}]}  # fmt: skip
    write(tmp_path / "musique", "musique_full_v1.0_dev.jsonl", [row, row | {"answerable": False}])
    found = sets.load("musique", tmp_path)
    assert [one.id for one in found.questions] == ["2hop__1_2", "2hop__1_2_unanswerable"]
    assert (found.questions[1].gold, found.questions[1].answers) == ((), ())
    assert found.answerable().questions == found.questions[:1]


@pytest.mark.parametrize(
    ("name", "file", "key"),
    [("nq", "biencoder-nq-dev.json.gz", "passage_id"),
     ("triviaqa", "retriever/biencoder-trivia-dev.json", "psg_id")],
)  # fmt: skip
def test_what_dpr_retrieved(tmp_path, name, file, key):
    def passage(number, score):
        return {"title": "T", "text": f"t{number}", "score": score, key: str(number)}

    row = {"dataset": f"{name}_dev_psgs_w100", "question": "who?", "answers": ["she", "her"],
           "positive_ctxs": [passage(1, 1000), passage(2, 11)], "negative_ctxs": [],
           "hard_negative_ctxs": [passage(3, 9), passage(3, 9)]}  # fmt: skip
    write(tmp_path / name, file, json.dumps([row]))
    found = sets.load(name, tmp_path)
    (question,) = found.questions
    assert (question.id, question.answers) == (f"{name}-0", ("she", "her"))
    assert question.gold == (found.passages[0].doc_id,)
    assert (found.pools, len(found.passages)) == ({f"{name}-0": (0, 1, 2)}, 3)
    assert "its collection is not there" in found.note


NQ = {
    "example_id": 797803103760793766, "question_text": "which is the most common",
    "document_url": "//x", "annotations": [
        {"yes_no_answer": "NONE",
         "long_answer": {"start_token": 4, "candidate_index": 1, "end_token": 9},
         "short_answers": [{"start_token": 5, "end_token": 7}], "annotation_id": 1}],
    "long_answer_candidates": [
        {"start_token": 0, "top_level": True, "end_token": 4},
        {"start_token": 4, "top_level": True, "end_token": 9},
        {"start_token": 4, "top_level": False, "end_token": 9}],
}  # fmt: skip
TOKENS = ["<P>", "One", "two", "</P>", "<P>", "Red", "fox", "ran", "</P>"]


@pytest.mark.parametrize("form", ["simplified", "full"])
def test_natural_questions(tmp_path, form):
    if form == "simplified":
        row = NQ | {"document_text": " ".join(TOKENS)}
    else:
        row = NQ | {"document_title": "Fox", "document_tokens": [
            {"token": one, "html_token": one.startswith("<"), "start_byte": 0, "end_byte": 1}
            for one in TOKENS]}  # fmt: skip
    write(tmp_path / "nq", "v1.0-simplified_nq-dev-all.jsonl.gz", [row])
    found = sets.load("nq", tmp_path)
    (question,) = found.questions
    assert [one.text for one in found.passages] == ["One two", "Red fox ran"]
    assert question.gold == (found.passages[1].doc_id,)
    assert question.answers == ("Red fox",)
    assert found.pools == {str(NQ["example_id"]): (0, 1)}


def test_natural_questions_are_read_from_all_their_parts(tmp_path):
    for part in range(5):
        row = NQ | {"example_id": part, "document_text": " ".join(TOKENS)}
        write(tmp_path / "nq", f"dev/nq-dev-{part:02}.jsonl{'.gz' if part else ''}", [row])
    write(tmp_path / "nq", "dev/nq-dev-00.jsonl.gz", [NQ])
    write(tmp_path / "nq", "nq-dev-sample.jsonl.gz", [NQ])
    found = sets.load("nq", tmp_path)
    assert [one.id for one in found.questions] == ["0", "1", "2", "3", "4"]


def test_a_span_outside_the_page_is_told(tmp_path):
    row = NQ | {"document_text": "too short"}
    write(tmp_path / "nq", "nq-dev-sample.jsonl", [row])
    with pytest.raises(DataError, match=r"line 1, .*candidates 1: end_token is 4; .* the 2 tokens"):
        sets.load("nq", tmp_path)


def trivia(tmp_path, filename="Rush.txt"):
    row = {"QuestionId": "tc_1", "Question": "Which band?", "QuestionSource": "http://q",
           "Answer": {"Value": "Rush", "Aliases": ["Rush", "Rush (band)"], "Type": "Other"},
           "EntityPages": [{"DocSource": "TagMe", "Filename": filename, "Title": "Rush"}],
           "SearchResults": []}  # fmt: skip
    content = json.dumps({"Data": [row], "Domain": "Wikipedia", "Version": 1.0})
    write(tmp_path / "triviaqa", "qa/wikipedia-dev.json", content)


def test_triviaqa(tmp_path):
    trivia(tmp_path)
    with pytest.raises(DataError, match=r"Data 1, EntityPages 1: the page .* cannot be read"):
        sets.load("triviaqa", tmp_path)
    page = " ".join(["other"] * 100 + ["Rush", "is", "a", "band"])
    write(tmp_path / "triviaqa", "evidence/wikipedia/Rush.txt", page)
    found = sets.load("triviaqa", tmp_path)
    (question,) = found.questions
    assert [len(one.text.split()) for one in found.passages] == [100, 4]
    assert question.gold == (found.passages[1].doc_id,)
    assert question.answers == ("Rush", "Rush (band)")


def test_triviaqa_over_pages_of_the_web_and_unfiltered(tmp_path):
    folder = tmp_path / "triviaqa" / "triviaqa-rc"
    row = {"QuestionId": "tc_1", "Question": "Which band?", "Answer": {"Value": "Rush"},
           "EntityPages": [], "SearchResults": [
               {"Filename": "1/1_2.txt", "Title": "Bands", "Rank": 0}, {"Title": "Not fetched"},
               {"Filename": "1/never.txt", "Title": "Never published"}]}  # fmt: skip
    write(folder, "evidence/web/1/1_2.txt", "Rush is a band")
    write(folder, "qa/web-dev.json", json.dumps({"Data": [row]}))
    with pytest.raises(DataError, match=r"SearchResults 3: the page .*never.txt cannot be read"):
        sets.load("triviaqa", tmp_path)
    (folder / "qa/web-dev.json").rename(folder / "qa/unfiltered-web-dev.json")
    found = sets.load("triviaqa", tmp_path)
    assert [one.text for one in found.passages] == ["Rush is a band"]
    assert found.questions[0].gold == (found.passages[0].doc_id,)


def test_a_page_outside_the_evidence_is_refused(tmp_path):
    trivia(tmp_path, "../../qa/wikipedia-dev.json")
    with pytest.raises(DataError, match="the name of a file under evidence/wikipedia"):
        sets.load("triviaqa", tmp_path)
