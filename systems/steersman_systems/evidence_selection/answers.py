"""Correctness of an answer: exact match, word F1, and containment in a text.

Texts are normalised as in SQuAD, HotpotQA and MuSiQue: lower case, no punctuation, no articles,
single blanks.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ALONE = frozenset({"yes", "no", "noanswer"})
_SAID = frozenset({"yes", "no"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@lru_cache(maxsize=4096)
def normalised(text: str) -> str:
    """Return the normalised form of a text.

    The last few thousand results are cached, because training repeats passages. As in the published
    code, only ASCII punctuation and English articles are removed.

    >>> normalised("The  Beatles (band)!")
    'beatles band'

    Source: Rajpurkar et al., SQuAD (2016), evaluation script 1.1.
    """
    bare = _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION))
    return " ".join(bare.split())


def exact_match(answer: str, right: Sequence[str]) -> float:
    """Return 1 if an answer equals a correct one, else 0; 0 without a correct one.

    >>> exact_match("the Beatles.", ["Beatles", "Fab Four"])
    1.0
    """
    given = normalised(answer)
    return float(any(given == normalised(one) for one in right))


def f1(answer: str, right: Sequence[str]) -> float:
    """Return the highest word F1 of an answer with a correct one.

    Args:
        right: correct answers; 0 without any.

    Returns:
        In [0, 1]. An answer without words matches only a correct one without words. This follows
        SQuAD 2.0, which gives 1; SQuAD 1.1 gives 0. Yes and no match only themselves, as in
        HotpotQA.

    >>> f1("in Warsaw, Poland", ["Warsaw"])
    0.5
    """
    given = normalised(answer).split()
    return max((_f1(given, normalised(one).split()) for one in right), default=0.0)


def contains(text: str, right: Sequence[str]) -> bool:
    """Return whether a text contains a correct answer as consecutive whole words.

    >>> contains("She was born in Warsaw.", ["warsaw", "Paris"])
    True
    >>> contains("A warsawian.", ["warsaw"])
    False
    """
    padded = f" {normalised(text)} "
    wanted = (normalised(one) for one in right)
    return any(f" {one} " in padded for one in wanted if one)


def in_words(right: Sequence[str]) -> list[str]:
    """Return the correct answers that a passage can contain: all but yes and no.

    The word "no" in a text does not show that the text answers the question.

    >>> in_words(["No.", "Norway"])
    ['Norway']
    """
    return [one for one in right if normalised(one) not in _SAID]


def _f1(given: list[str], right: list[str]) -> float:
    if not given or not right or not _ALONE.isdisjoint((" ".join(given), " ".join(right))):
        return float(given == right)
    shared = sum((Counter(given) & Counter(right)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(given), shared / len(right)
    return 2 * precision * recall / (precision + recall)
