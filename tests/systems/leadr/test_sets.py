"""Every set is read in the format it is published in; what is absent or broken is named."""

import csv
import gzip
import json

import pytest

from steersman.errors import DataError, InputError
from steersman.systems.leadr import sets
from steersman.systems.leadr.sets.files import table


def write(folder, name, content):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(content.encode()))
    else:
        file.write_text(content, encoding="utf-8")
    return file


def said(question):
    return [(turn.speaker, turn.text) for turn in question.history]


# -- this project's own, and BEIR's ---------------------------------------------------------------

OWN_PASSAGES = [
    {"id": "p1", "title": "Wings", "text": "Lift on a wing."},
    {"id": "p2", "title": "", "text": "Drag."},
]
OWN_QUESTION = {
    "id": "q1", "question": "and drag?", "answers": ["Drag."], "gold": ["p2", "p9"],
    "pool": ["p2", "p1"], "history": ["what lifts?", "A wing."], "domain": "flight",
    "split": "dev", "conversation": "c1", "answerability": ["ANSWERABLE"],
}  # fmt: skip


def own(tmp_path, question=OWN_QUESTION, suffix=""):
    write(tmp_path / "own", f"passages.jsonl{suffix}", OWN_PASSAGES)
    write(tmp_path / "own", f"questions.jsonl{suffix}", [question])


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


# -- questions with candidates of their own -------------------------------------------------------

HOTPOT = {
    "_id": "5a", "question": "Who?", "answer": "Rush", "type": "bridge", "level": "hard",
    "context": [["Rush", ["A band.", " From Toronto."]], ["Toto", ["Another band."]]],
    "supporting_facts": [["Rush", 0], ["Rush", 1]],
}  # fmt: skip


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


def test_a_page_outside_the_evidence_is_refused(tmp_path):
    trivia(tmp_path, "../../qa/wikipedia-dev.json")
    with pytest.raises(DataError, match="the name of a file under evidence/wikipedia"):
        sets.load("triviaqa", tmp_path)


# -- absent and broken ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(sets.KNOWN))
def test_an_absent_set_is_told_with_its_origin(tmp_path, name):
    known = sets.KNOWN[name]
    with pytest.raises(DataError) as told:
        sets.load(name, tmp_path)
    for part in (name, known.about, str(tmp_path), known.origin):
        assert part in str(told.value)


@pytest.mark.parametrize("name", sorted(sets.KNOWN))
def test_an_empty_folder_is_told_with_the_file_that_is_missing(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=r"has no .*; put it there"):
        sets.load(name, tmp_path)


def test_an_unknown_set_is_told_what_would_be_read(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataError, match=r"put passages.jsonl and questions.jsonl there"):
        sets.load("mine", tmp_path)


def test_a_broken_line_is_told_by_its_number(tmp_path):
    own(tmp_path)
    file = tmp_path / "own" / "passages.jsonl"
    file.write_text(file.read_text() + '{"id": "p3", "text": \n', encoding="utf-8")
    with pytest.raises(DataError, match=r"passages.jsonl, line 3 is no JSON"):
        sets.load("own", tmp_path)
    file.write_text("\n[1]\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"passages.jsonl, entry 1 is '1'; it must be an object"):
        sets.load("own", tmp_path)
    file.write_bytes(b'{"id": "p1", "text": "\xff"}\n')
    with pytest.raises(DataError, match=r"passages.jsonl cannot be read: .*utf-8"):
        sets.load("own", tmp_path)


def test_a_broken_list_is_told_by_line_and_column(tmp_path):
    write(tmp_path / "hotpotqa", "hotpot_dev_distractor_v1.json", '[{"_id": "a"},\n {]')
    with pytest.raises(DataError, match=r"v1.json, line 2, column 3 is no JSON"):
        sets.load("hotpotqa", tmp_path)


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
        ({"pool": ["p7"]}, r"line 1: the candidate 'p7' is no passage of the set"),
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
    with pytest.raises(DataError, match="the question 'q1' is there twice"):
        sets.load("own", tmp_path)
    write(tmp_path / "own", "passages.jsonl", [OWN_PASSAGES[0]] * 2)
    with pytest.raises(DataError, match=r"line 2: the passage 'p1' is there twice"):
        sets.load("own", tmp_path)


def test_a_negative_cap_is_refused(tmp_path):
    with pytest.raises(InputError, match="at_most is -1"):
        sets.load("own", tmp_path, at_most=-1)
