"""Stems are those of the published English stemmer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.retrieval.bm25 import query_terms, stem

# From the vocabulary that Snowball publishes with its English stemmer, and its special cases.
PUBLISHED = """
consign consign · consigned consign · consigning consign · consignment consign · consist consist
consisted consist · consistency consist · consistent consist · consistently consist
consisting consist · consists consist · consolation consol · consolations consol
consolatory consolatori · console consol · consoled consol · consoles consol
consolidate consolid · consolidated consolid · consolidating consolid · consoling consol
conspicuous conspicu · conspicuously conspicu · conspiracy conspiraci · conspirator conspir
conspirators conspir · conspire conspir · constable constabl · constancy constanc
knack knack · knavish knavish · kneaded knead · kneading knead · knee knee · kneel kneel
kneeling kneel · knees knee · knell knell · knelt knelt · knew knew · knick knick · knife knife
knight knight · knightly knight · knights knight · knit knit · knitted knit · knives knive
skis ski · skies sky · dying die · news news · inning inning · proceed proceed · succeed succeed
generate generat · generic generic · communism communism · universal universal · arsenal arsenal
internal internal · organism organism · added add · egged egg · university universiti
caresses caress · ponies poni · ties tie · cries cri · gas gas · this this · gaps gap · kiwis kiwi
agreed agre · feed feed · luxuriated luxuri · hopping hop · hoping hope · fizzed fizz · tried tri
by by · say say · cry cri · happy happi · enjoy enjoy · beautifully beauti · rational ration
relational relat · hopeful hope · goodness good · probate probat · rate rate · controlling control
oncologists oncolog · apology apolog · analogously analog · roll roll · cease ceas · adoption adopt
""".replace("·", "\n").split("\n")


@pytest.mark.parametrize(("word", "expected"), [line.split() for line in PUBLISHED if line.strip()])
def test_stems_are_the_published_ones(word, expected):
    assert stem(word) == expected


@given(st.text(max_size=30))
def test_any_word_has_a_stem(word):
    assert len(stem(word)) <= len(word)
    assert stem(word) == stem(word)


@pytest.mark.parametrize("word", ["", "ab", "v2", "naïve", "天気", "x" * 41, "Wings"])
def test_what_is_no_english_word_stays(word):
    assert stem(word) == word


def test_names_of_programmers_are_taken_apart_and_stemmed():
    assert query_terms("getUserConnections()") == ["get", "user", "connect"]


def test_a_query_of_function_words_alone_keeps_them():
    assert query_terms("to be or not to be") == ["to", "be", "or", "not", "to", "be"]
    assert query_terms("to be a wing") == ["wing"]
    assert query_terms("") == []
