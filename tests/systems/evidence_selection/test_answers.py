"""Answers are scored as the published script does; known answers from a second implementation."""

import re
import string
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.evidence_selection import answers, measures


def published_normalise(text):
    """SQuAD's own steps, one after the other, written out a second time."""
    lowered = "".join(one for one in text.lower() if one not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", lowered).split())


def published_f1(prediction, truth):
    one, other = (published_normalise(text).split() for text in (prediction, truth))
    if not one or not other:
        return int(one == other)
    same = sum(min(one.count(word), other.count(word)) for word in set(one))
    if same == 0:
        return 0
    precision, recall = same / len(one), same / len(other)
    return 2 * precision * recall / (precision + recall)


WORDS = st.lists(
    st.sampled_from(["a", "The", "an", "fox!", "Rush", "rush,", "1,000", "U.S.", "x-y", "é"]),
    max_size=6,
).map(" ".join)


@pytest.mark.slow
@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_f1_and_exact_match_are_those_of_the_published_script(answer, right):
    assert answers.f1(answer, right) == pytest.approx(
        max(published_f1(answer, one) for one in right), abs=1e-12
    )
    same = any(published_normalise(answer) == published_normalise(one) for one in right)
    assert answers.exact_match(answer, right) == same


@pytest.mark.parametrize(
    ("answer", "right", "f1"),
    [
        ("the Norman kings of England", ["Norman kings"], 2 * (2 / 4) * 1 / (2 / 4 + 1)),
        ("Rush Rush", ["Rush"], 2 * 0.5 * 1 / 1.5),
        ("", ["Rush"], 0),
        ("the", ["a"], 1),
        ("Rush", [], 0),
        ("no", ["yes", "no"], 1),
        ("yes they are", ["yes"], 0),
        ("no", ["no one"], 0),
        ("Yes.", ["yes"], 1),
        ("yes", ["no", "yes they are"], 0),
    ],
)
def test_known_values_of_f1(answer, right, f1):
    assert answers.f1(answer, right) == pytest.approx(f1, abs=1e-12)


def test_an_unknown_answer_is_matched_by_nothing():
    assert answers.exact_match("anything", []) == 0.0
    assert not answers.contains("anything", [])
    assert not answers.contains("anything", ["the", "..."])


@pytest.mark.parametrize(
    ("text", "right", "held"),
    [
        ("It is in the U.S., they say.", ["US"], True),
        ("Rushed", ["Rush"], False),
        ("New York", ["York New"], False),
        ("In New   York!", ["the new york"], True),
    ],
)
def test_containment_is_of_whole_words_in_a_row(text, right, held):
    assert answers.contains(text, right) is held


# -- measures of a selection ----------------------------------------------------------------------


def test_redundancy_is_the_mean_of_the_largest_likeness_to_what_was_before():
    rows = np.random.default_rng(0).normal(size=(5, 8))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    expected = [max(float(rows[i] @ rows[j]) for j in range(i)) for i in range(1, 5)]
    assert measures.redundancy(rows) == pytest.approx(np.mean(expected), abs=1e-12)
    assert measures.redundancy(rows[:1]) == 0.0
    with pytest.raises(InputError, match="vectors have 1 axes"):
        measures.redundancy(rows[0])


def test_repetition_counts_runs_that_were_said_before():
    one, other = "red fox ran far away today", "the red fox ran far and came"
    runs = [tuple(text.split()[i : i + 4]) for text in (one, "red fox ran far and came")
            for i in range(3)]  # fmt: skip
    doubled = sum(count - 1 for count in Counter(runs).values())
    assert measures.repetition([one, other]) == doubled / len(runs) == 1 / 6
    assert measures.repetition(["too short", "too short"]) == 0.0
    assert measures.repetition([one, one]) == 0.5


def test_words_tell_redundancy_where_there_are_no_vectors():
    assert measures.word_redundancy(["red fox", "blue sea", "red sea"]) == pytest.approx(
        (0 + 1 / 3) / 2
    )
    assert measures.word_redundancy(["", ""]) == 0.0


def test_citations_are_the_passages_that_hold_the_answer():
    texts = {"a": "Born in Warsaw.", "b": "Warsaw is a city.", "c": "A chemist."}
    assert measures.cited("Warsaw", texts) == ("a", "b")
    assert measures.cited("", texts) == ()
    assert measures.citation_accuracy(("a", "b"), ["b"]) == 0.5
    assert measures.citation_accuracy((), ["b"]) == 0.0
    assert (measures.attributed(("a", "b"), ["b"]), measures.attributed(("a",), ["b"])) == (1, 0)
