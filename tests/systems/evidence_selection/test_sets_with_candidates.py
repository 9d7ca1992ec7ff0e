"""Sets whose questions bring candidates of their own, in the formats they are published in."""

import json

import pytest

from steersman.errors import DataError
from steersman_systems.evidence_selection.sets import known_sets as sets
from tests.systems.evidence_selection.set_files import HOTPOT, write


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


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ([1], 1),  # of training questions there is one annotation
        ([-1], None),
        ([0, 1, 1, -1, -1], 1),
        ([1, 0, -1, -1, -1], 0),
        ([2, 2, 0, -1, -1], 1),  # 2 stands in 1
        ([-1, -1, 1, -1, -1], None),
    ],
)
def test_of_five_annotators_those_who_agree_tell_the_gold_passage(tmp_path, given, right):
    notes = [{"long_answer": {"candidate_index": one}, "short_answers": []} for one in given]
    row = NQ | {"annotations": notes, "document_text": " ".join(TOKENS)}
    write(tmp_path / "nq", "v1.0-simplified_nq-dev-all.jsonl.gz", [row])
    found = sets.load("nq", tmp_path)
    wanted = () if right is None else (found.passages[right].doc_id,)
    assert found.questions[0].gold == wanted


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
