"""Passages are spans of their document, cut where its structure allows it."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.retrieval.documents.chunks import WHOLE, Chunking, cut
from steersman.retrieval.documents.document import Document, Section
from steersman.retrieval.documents.read import read

WORDS = st.sampled_from(
    [
        "pump",
        "hums.",
        "Größe",
        "e\u0301",
        "👩‍👩‍👧",
        "🇩🇪🇫🇷",
        "。",
        "日本語",
        "\n",
        "\n\n",
        "  ",
        "\r\n",
        "\t",
        "!",
        "a" * 90,
        "\u0301",
        "-",
    ]
)
TEXTS = st.one_of(
    st.lists(WORDS, max_size=120).map(" ".join),
    st.lists(WORDS, max_size=120).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=600),
)
CHUNKINGS = st.builds(
    lambda size, share: Chunking(size, int(size * share / 2)),
    st.integers(64, 200),
    st.floats(0, 1),
)


@st.composite
def documents(draw):
    text = draw(TEXTS)
    starts = draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    levels = draw(st.lists(st.integers(1, 6), min_size=len(starts), max_size=len(starts)))
    sections = tuple(
        Section(start, level, f"s{number}")
        for number, (start, level) in enumerate(zip(starts, levels, strict=True))
    )
    pages = tuple(draw(st.lists(st.integers(0, len(text)), max_size=3).map(sorted)))
    return Document("d", text, sections=sections, pages=pages)


@pytest.mark.slow
@given(documents(), CHUNKINGS)
@settings(max_examples=300, deadline=None)
def test_passages_are_spans_that_cover_all_but_white_space(document, chunking):
    passages = cut(document, chunking)
    covered = set()
    for number, passage in enumerate(passages):
        lineage = passage.lineage
        assert passage.text == document.text[lineage.start : lineage.end]
        assert (passage.chunk, lineage.sha256) == (number, document.sha256)
        assert 0 < len(passage.text) <= chunking.size
        covered.update(range(lineage.start, lineage.end))
    missed = set(range(len(document.text))) - covered
    assert "".join(document.text[place] for place in sorted(missed)).strip() == ""
    assert passages == cut(document, chunking)


@pytest.mark.slow
@given(documents(), CHUNKINGS)
@settings(max_examples=150, deadline=None)
def test_every_heading_holds_for_all_of_its_passage(document, chunking):
    for passage in cut(document, chunking):
        lineage = passage.lineage
        under = [path_at(document, place) for place in range(lineage.start, lineage.end)]
        said = [path for path, is_heading in under if not is_heading]
        assert all(path[: len(lineage.headings)] == lineage.headings for path in said)


def path_at(document, place):
    """The headings above a place by another way: the last of each level that none above ended.

    Sections with nothing below their first line say nothing that headings could hold for.
    """
    path = []
    for section in document.sections:
        if section.start <= place:
            path = [one for one in path if one.level < section.level] + [section]
    if not path:
        return (), document.text[place].isspace()
    start = path[-1].start
    ends = [one.start for one in document.sections if one.start > start] + [len(document.text)]
    body = document.text[start : min(ends)].strip().partition("\n")[2].strip()
    return tuple(one.title for one in path), body.strip("=- ") == "" or document.text[
        place
    ].isspace()


@pytest.mark.slow
@given(TEXTS.filter(lambda text: len(text) > 64), CHUNKINGS)
@settings(max_examples=200, deadline=None)
def test_what_readers_see_as_one_character_stays_whole(text, chunking):
    document = Document("d", text)
    for passage in cut(document, chunking):
        for place in (passage.lineage.start, passage.lineage.end):
            marks = text[max(0, place - 31) : place + 1]
            if all(unicodedata.category(one) == "Mn" for one in marks):
                continue  # more marks than any script writes
            assert not (0 < place < len(text) and unicodedata.category(text[place]) == "Mn")


def test_a_family_a_flag_and_a_hand_stay_whole():
    for whole in ("👩‍👩‍👧", "🇩🇪", "👍🏽", "é", "\r\n"):
        for shift in range(10):
            text = "x" * (60 + shift) + whole + "y" * 60
            at = text.index(whole)
            inside = range(at + 1, at + len(whole))
            for passage in cut(Document("d", text), Chunking(64, 0)):
                assert passage.lineage.start not in inside
                assert passage.lineage.end not in inside


def test_a_thousand_marks_on_one_letter_end():
    passages = cut(Document("d", "e" + "\u0301" * 1000), Chunking(64, 32))
    assert "".join(passage.text for passage in passages).count("e") == 1


@pytest.mark.parametrize("text", ["a", "\n a \n\n", "x" * 800, "a b\n\n" * 160])
def test_a_short_document_is_one_passage_as_it_is(text):
    [passage] = cut(Document("d", text))
    assert passage.text == text
    assert passage.lineage.start == 0


def test_nothing_to_find_is_no_passage_but_a_title_is_something():
    assert cut(Document("d", "")) == ()
    assert cut(Document("d", " \n")) == ()
    [passage] = cut(Document("d", "", title="Pumps"))
    assert passage.text == ""


def test_passages_that_were_cut_already_stay_whole(tmp_path):
    lines = [
        f'{{"id": "p{number}", "title": "T", "text": "{"word " * 900}"}}' for number in range(3)
    ]
    (tmp_path / "passages.jsonl").write_text("\n".join(lines))
    for document in read(tmp_path / "passages.jsonl"):
        [passage] = cut(document, WHOLE)
        assert passage.text == document.text
        assert passage.doc_id == document.doc_id


PARAGRAPHS = "\n\n".join(f"Paragraph {number} says this. It says that." for number in range(9))


def test_cuts_fall_between_paragraphs_then_sentences_then_words():
    by_paragraph = cut(Document("d", PARAGRAPHS), Chunking(130, 0))
    assert all(passage.text.startswith("Paragraph") for passage in by_paragraph)
    assert all(passage.text.endswith("that.") for passage in by_paragraph)
    sentences = cut(Document("d", PARAGRAPHS.replace("\n\n", " ")), Chunking(70, 0))
    assert all(passage.text.endswith(".") for passage in sentences)
    words = cut(Document("d", "alpha beta gamma " * 30), Chunking(70, 0))
    assert all(set(passage.text.split()) <= {"alpha", "beta", "gamma"} for passage in words)
    japanese = cut(Document("d", "東京は大きい都市です。" * 20), Chunking(70, 0))
    assert all(passage.text.endswith("。") for passage in japanese)


def test_the_overlap_begins_with_a_sentence_and_stays_within_its_section():
    text = "One is here. Two is here. Three is here. Four is here. Five is here. Six is here."
    first, second, *_ = cut(Document("d", text), Chunking(64, 20))
    assert first.text == "One is here. Two is here. Three is here. Four is here."
    assert second.text == "Four is here. Five is here. Six is here."
    both = f"{text}\n# Next\nSeven."
    last = cut(
        Document("d", both, sections=(Section(len(text) + 1, 1, "Next"),)), Chunking(64, 20)
    )[-1]
    assert last.text == "# Next\nSeven."


def test_no_passage_lies_in_the_one_before_where_what_follows_cannot_be_cut():
    run = "x" * 60
    text = "One pump hums. Two pumps hum. The key is this. " + f"{run} Then it stops. " * 6
    spans = [
        (one.lineage.start, one.lineage.end) for one in cut(Document("d", text), Chunking(64, 32))
    ]
    assert all(one[1] < other[1] for one, other in pairwise(spans))
    assert sum(text[start:end].count(run) for start, end in spans) == 6


@pytest.mark.slow
@given(documents(), CHUNKINGS)
@settings(max_examples=150, deadline=None)
def test_every_passage_has_more_than_the_one_before(document, chunking):
    passages = cut(document, chunking)
    assert all(one.lineage.end < other.lineage.end for one, other in pairwise(passages))


def test_a_bare_heading_goes_with_what_it_heads():
    text = "# Manual\n\n## Pumps\n" + "They hum. " * 12
    document = Document("d", text, sections=(Section(0, 1, "Manual"), Section(10, 2, "Pumps")))
    first, *rest = cut(document, Chunking(64, 0))
    assert first.text.startswith("# Manual\n\n## Pumps\nThey hum.")
    assert {passage.lineage.headings for passage in (first, *rest)} == {("Manual", "Pumps")}


def test_small_sections_below_one_stay_with_it_and_neighbours_do_not():
    text = "# A\nfirst\n## B\nsecond\n# C\nthird\n" + "word " * 20
    starts = [text.index(mark) for mark in ("# A", "## B", "# C")]
    sections = tuple(
        Section(start, level, name)
        for start, level, name in zip(starts, (1, 2, 1), "ABC", strict=True)
    )
    passages = cut(Document("d", text, sections=sections), Chunking(64, 0))
    assert passages[0].text == "# A\nfirst\n## B\nsecond"
    assert passages[0].lineage.headings == ("A",)
    assert passages[1].text.startswith("# C")
    assert passages[1].lineage.headings == ("C",)


def test_a_passage_says_on_which_page_it_begins():
    text = "x" * 60 + " " + "y" * 60 + " " + "z" * 60
    passages = cut(Document("d", text, pages=(0, 61, 61, 122)), Chunking(64, 0))
    assert [passage.lineage.page for passage in passages] == [1, 3, 4]
    assert cut(Document("d", text))[0].lineage.page is None


@pytest.mark.parametrize(("size", "overlap"), [(63, 0), (100, 51), (100, -1), (1 << 32, 0)])
def test_sizes_out_of_range_are_refused(size, overlap):
    with pytest.raises(InputError, match="allowed:"):
        Chunking(size, overlap)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [".", "\n", " ", '"', '."', "a.", "。", "\u0301", "# a\n", "\r"])
def test_a_monotonous_text_is_cut_in_time_that_grows_with_it(unit):
    # Hundreds of thousands of repeats: anything quadratic would not end.
    text = (unit * 400_000)[:400_000] + "end"
    passages = cut(Document("d", text), Chunking(4_000, 2_000))
    assert passages[-1].text.endswith("end")


@pytest.mark.slow
@pytest.mark.parametrize(
    "below", ["\n" * 400_000 + "x", " \n" * 200_000 + "x", "=" * 400_000 + "x"]
)
def test_what_stands_below_a_heading_is_looked_at_in_time_that_grows_with_it(below):
    text = "# Title\n" + below
    passages = cut(Document("d", text, sections=(Section(0, 1, "Title"),)))
    assert passages[-1].text.endswith("x")


@pytest.mark.slow
def test_a_hundred_thousand_bare_headings_are_grouped_in_time_that_grows_with_them():
    count = 100_000
    text = "# A\n" + "## b\n" * count
    below = (Section(4 + 5 * number, 2, "b") for number in range(count))
    passages = cut(Document("d", text, sections=(Section(0, 1, "A"), *below)))
    assert passages[-1].lineage.end == len(text) - 1
