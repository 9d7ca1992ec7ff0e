"""Repeats are found, the first is kept, and what is dropped is as similar as asked."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.retrieval.documents.chunks import WHOLE, cut
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.duplicates import _rows, unique

PROGRAM = """
import random
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.chunks import cut
from steersman.retrieval.documents.duplicates import unique
rng = random.Random(3)
texts = [" ".join(rng.choices("abcdefgh", k=40)) for _ in range(200)]
texts += [text[:-1] + "z" for text in texts]
found = unique((cut(Document(str(i), text))[0] for i, text in enumerate(texts)), near=0.5)
print([passage.id for passage in found.kept], found.dropped)
"""


def passages(*texts, titles=None):
    titles = titles or [""] * len(texts)
    return [
        cut(Document(f"d{number}", text, title), WHOLE)[0]
        for number, (text, title) in enumerate(zip(texts, titles, strict=True))
    ]


def shingled_jaccard(one, other):
    """The similarity by another way, from the words themselves."""
    sets = [
        {tuple(words[place : place + 3]) for place in range(len(words) - 2)}
        for words in (one.split(), other.split())
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_words_that_differ_in_vowel_signs_are_no_repeat():
    found = unique(passages("मिल का", "मेल की", "மலை", "மாலை"), near=None)
    assert len(found.kept) == 4


def test_the_same_words_repeat_whatever_their_case_signs_and_encoding():
    found = unique(
        passages("Caf\u00e9, pumps!", "cafe\u0301 PUMPS", "\uff23afé pumps", "Tea"), near=None
    )
    assert [passage.id for passage in found.kept] == ["d0#0", "d3#0"]
    assert found.dropped == (("d1#0", "d0#0", 1.0), ("d2#0", "d0#0", 1.0))


def test_other_words_and_another_order_are_no_exact_repeat():
    texts = ("pumps hum", "hum pumps", "pumps", "pumps hum hum")
    assert len(unique(passages(*texts), near=None).kept) == 4


def test_without_words_the_signs_count_and_then_the_titles():
    assert len(unique(passages("→ ↑", "→ ↓", "→ ↑")).kept) == 2
    assert len(unique(passages("", "", titles=["Pumps", "Valves"])).kept) == 2


def test_the_same_text_under_another_title_repeats():
    found = unique(passages("All rights reserved.", "All rights reserved.", titles=["A", "B"]))
    assert [repeat.repeats for repeat in found.dropped] == ["d0#0"]


def pairs(count, words=60, seed=5):
    """Texts and copies of them with some words exchanged."""
    rng = random.Random(seed)
    for number in range(count):
        text = [f"w{rng.randrange(5000)}" for _ in range(words)]
        copy = list(text)
        for place in rng.sample(range(words), number % 8):
            copy[place] = f"other{rng.randrange(5000)}"
        yield " ".join(text), " ".join(copy)


@pytest.mark.parametrize("near", [0.5, 0.8, 0.9])
def test_what_is_dropped_is_as_near_as_asked_and_what_is_near_is_dropped(near):
    for text, copy in pairs(80):
        similarity = shingled_jaccard(text, copy)
        found = unique(passages(text, copy), near=near)
        if similarity < near:
            assert len(found.kept) == 2
        else:
            assert found.dropped == (("d1#0", "d0#0", pytest.approx(similarity)),)


@pytest.mark.slow
def test_misses_at_the_threshold_are_as_rare_as_promised():
    for near in np.linspace(0.3, 1, 15):
        rows = _rows(near)
        assert (1 - near**rows) ** (128 // rows) <= 1e-3
    # 1,500 pairs right at a threshold of a half: 40 words of which the last 13 differ.
    rng = random.Random(11)
    missed = 0
    for _ in range(1500):
        text = [f"w{rng.randrange(10**6)}" for _ in range(40)]
        copy = text[:27] + [f"v{rng.randrange(10**6)}" for _ in range(13)]
        similarity = shingled_jaccard(" ".join(text), " ".join(copy))
        assert similarity == pytest.approx(25 / 51)
        missed += len(unique(passages(" ".join(text), " ".join(copy)), near=similarity).kept) == 2
    assert missed <= 6  # of 1.5 expected at most; more than 6 has a chance below 1 in 500


def test_a_repeat_of_a_dropped_one_names_the_kept_one():
    [(text, copy)] = list(pairs(3))[2:]
    found = unique(passages(text, copy, copy.upper()), near=0.7)
    assert [passage.id for passage in found.kept] == ["d0#0"]
    assert found.dropped[1] == ("d2#0", "d0#0", found.dropped[0].similarity)


@pytest.mark.slow
def test_the_result_depends_on_no_hash_seed():
    shown = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert shown[0] == shown[1]
    assert b"similarity" in shown[0]


@pytest.mark.parametrize(
    ("found", "options", "says"),
    [
        (passages("a") * 2, {}, "d0#0"),
        *(([], {"near": near}, "near") for near in (0.0, 0.29, 1.01, float("nan"))),
    ],
)
def test_unique_with_an_id_twice_or_a_bad_threshold_names_it(found, options, says):
    with pytest.raises(InputError, match=says):
        unique(found, **options)


def test_nothing_stays_nothing():
    assert unique([]).kept == ()
