"""Passages are linked where one names another's title, and a search follows the links."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.retrieval.passage_links import (
    ENTITY,
    TITLE,
    LinkExpansion,
    Links,
    expand,
    link_entities,
    link_passages,
    link_titles,
)
from steersman.retrieval.ranking import Ranking
from tests.retrieval.passages import whole


def targets(links):
    return [links.of(position)[0].tolist() for position in range(len(links))]


def test_a_title_in_a_text_is_a_link():
    passages = whole(
        "It was painted by Pablo Picasso in Paris.",
        "A painter.",
        "A city. Picasso lived there.",
        titles=("Guernica (painting)", "Pablo Picasso", "Paris"),
    )
    assert targets(link_titles(passages)) == [[1, 2], [], []]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("He saw Guernica there.", True),
        ("He saw guernica there.", False),
        ("He saw Guernicas there.", False),
        ("(Guernica), he said", True),
        ("", False),
    ],
)
def test_a_title_is_named_by_its_words_in_its_case(text, names):
    passages = whole(text, "A painting.", titles=("Note", "Guernica (painting)"))
    assert targets(link_titles(passages))[0] == ([1] if names else [])


def test_of_overlapping_titles_the_longest_counts():
    passages = whole("Born in New York City.", "x", "y", titles=("A", "New York", "New York City"))
    assert targets(link_titles(passages))[0] == [2]


def test_no_passage_leads_to_its_own_document():
    assert targets(link_titles(whole("Paris is Paris.", titles=("Paris",)))) == [[]]


def test_a_title_that_everybody_names_is_left_out():
    texts = ["It is in France." for _ in range(201)]
    passages = whole(*texts, "A country.", titles=[f"Town {i}" for i in range(201)] + ["France"])
    assert not len(link_titles(passages).targets)


def test_titles_without_words_are_no_titles():
    passages = whole("a (b) c", "x", "y", titles=("", "(b)", "…"))
    assert targets(link_titles(passages)) == [[], [], []]


NAMES = ["Ada", "Ada Byron", "Byron", "Charles", "Charles Babbage", "Engine"]


@pytest.mark.slow
@given(st.lists(st.lists(st.sampled_from([*NAMES, "and", "the"]), max_size=6), max_size=8))
def test_links_are_those_of_reading_every_text_word_by_word(texts):
    passages = whole(*(" ".join(text) for text in texts), *NAMES, titles=[""] * len(texts) + NAMES)
    found = targets(link_titles(passages))
    for position, passage in enumerate(passages):
        words, named, place = passage.text.split(), set(), 0
        while place < len(words):
            fits = [one for one in NAMES if words[place : place + len(one.split())] == one.split()]
            longest = max(fits, key=len, default="")
            named.add(longest)
            place += len(longest.split()) or 1
        expected = sorted(len(texts) + NAMES.index(one) for one in named - {"", passage.title})
        assert found[position] == expected


def test_expanding_brings_and_lifts():
    found = Ranking(np.array([0, 1, 2]), np.array([5.0, 4.0, 1.0], np.float32))
    links = Links.of_pairs(5, [(0, 3, TITLE), (0, 2, TITLE), (1, 4, ENTITY)])
    wider, origins = expand(found, links, LinkExpansion(seeds=2, title=0.8, entity=0.5))
    scores = dict(zip(wider.positions.tolist(), wider.scores.tolist(), strict=True))
    assert scores == pytest.approx({0: 1.0, 1: 0.75, 2: 0.8, 3: 0.8, 4: 0.375})
    assert wider.positions.tolist() == [0, 2, 3, 1, 4]
    assert origins == {3: 0, 4: 1}


def test_only_the_seeds_lead_on():
    found = Ranking(np.array([0, 1]), np.array([5.0, 4.0], np.float32))
    wider, origins = expand(found, Links.of_pairs(3, [(1, 2, TITLE)]), LinkExpansion(seeds=1))
    assert (wider.positions.tolist(), origins) == ([0, 1], {})


def test_nothing_leads_nowhere():
    empty = Ranking(np.zeros(0, np.intp), np.zeros(0, np.float32))
    wider, origins = expand(empty, Links.of_pairs(3, [(1, 2, TITLE)]))
    assert (len(wider.positions), origins) == (0, {})


@pytest.mark.slow
@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 1))))
def test_links_are_the_pairs_they_were_made_of(pairs):
    links = Links.of_pairs(10, [*pairs, *pairs])
    found = {
        (source, target, kind)
        for source in range(10)
        for target, kind in zip(*(one.tolist() for one in links.of(source)), strict=True)
    }
    assert (found, len(links)) == (pairs, 10)
    assert set(links.pairs()) == pairs


@pytest.mark.parametrize(
    ("starts", "ends", "kinds"),
    [([], [], []), ([0, 1], [], []), ([0, 2, 1], [0], [0]), ([0, 1], [1], [0]), ([0, 1], [0], [])],
)
def test_arrays_that_do_not_fit_are_refused(starts, ends, kinds):
    with pytest.raises(InputError):
        Links(np.array(starts), np.array(ends, np.int32), np.array(kinds, np.uint8))


def test_a_pair_of_no_passage_is_refused():
    with pytest.raises(InputError, match="starts at 3, but there are only 3 passages"):
        Links.of_pairs(3, [(3, 0, TITLE)])


def test_a_name_that_few_share_links_both_ways():
    passages = whole(
        "Built by Acme Tool Works in Leeds.",
        "The Bank of England lent to Acme Tool Works.",
        "he worked for acme tool works.",
        "Leeds is a city. It has a bank.",
    )
    found = link_entities(passages)
    assert targets(found) == [[1], [0], [], []]
    assert found.kinds.tolist() == [ENTITY, ENTITY]


def test_a_name_that_many_share_links_nothing():
    assert not len(link_entities(whole(*["By Acme Works."] * 4)).targets)
    assert len(link_entities(whole(*["By Acme Works."] * 3)).targets) == 6


def test_a_passage_leads_to_a_few_by_its_rarest_names():
    names = ["Ada Byron", "Bob Cole", "Cat Dent", "Dan Earl", "Eve Ford"]
    texts = [f"{names[0]} again.", *(f"{name} was there." for name in names)]
    found = link_entities(whole(*texts, "and ".join(f"{name} " for name in names)))
    assert targets(found)[6] == [2, 3, 4, 5]


def test_both_kinds_together():
    passages = whole("Ada Byron wrote.", "Of Ada Byron.", "x", titles=("Note", "Life", "Ada Byron"))
    found = link_passages(passages)
    assert set(found.pairs()) == {(0, 1, ENTITY), (1, 0, ENTITY), (0, 2, TITLE), (1, 2, TITLE)}
