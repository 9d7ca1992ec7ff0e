"""Measures of a selection: redundancy and attribution.

Recall, nDCG and all-gold are in `steersman.retrieval`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman_systems.evidence_selection.answers import contains, in_words, normalised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.floating]

_GRAM = 4


def redundancy(vectors: Floats) -> float:
    """Return the mean cosine of each passage with its nearest earlier passage.

    This is the redundancy term of maximal marginal relevance.

    Returns:
        In [-1, 1]; 0 for fewer than two passages.

    Raises:
        InputError: the argument is not an array of vectors.

    >>> redundancy(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    0.5

    Source: Carbonell & Goldstein, The Use of MMR (1998), its second term with λ = 0.
    """
    if vectors.ndim != 2:
        raise InputError(f"vectors have {vectors.ndim} axes; expected shape (picked, size)")
    if len(vectors) < 2:
        return 0.0
    wide = np.asarray(vectors, np.float64)
    near = wide @ wide.T
    return float(np.mean([near[place, :place].max() for place in range(1, len(near))]))


def word_redundancy(texts: Sequence[str]) -> float:
    """Return `redundancy` by shared words, for texts without vectors.

    Returns:
        Mean of each text's largest Jaccard index with an earlier one, in [0, 1].

    >>> word_redundancy(["red fox", "red fox", "blue sea"])
    0.5
    """
    sets = [set(normalised(text).split()) for text in texts]
    if len(sets) < 2:
        return 0.0
    largest = [
        max(_jaccard(sets[place], before) for before in sets[:place])
        for place in range(1, len(sets))
    ]
    return float(np.mean(largest))


def repetition(texts: Sequence[str]) -> float:
    """Return the share of four-word runs in a context that occur earlier in it.

    Returns:
        In [0, 1]; 0 for a context too short for a run.

    >>> repetition(["one two three four", "one two three four"])
    0.5
    """
    seen: set[tuple[str, ...]] = set()
    runs = again = 0
    for text in texts:
        words = normalised(text).split()
        for start in range(len(words) - _GRAM + 1):
            run = tuple(words[start : start + _GRAM])
            runs += 1
            again += run in seen
            seen.add(run)
    return again / runs if runs else 0.0


def cited(answer: str, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the passages that contain an answer word for word.

    >>> cited("Warsaw", {"a": "Born in Warsaw.", "b": "A chemist."})
    ('a',)
    >>> cited("no", {"a": "It has no doubt."})
    ()
    """
    right = in_words([answer])
    return tuple(name for name, text in texts.items() if right and contains(text, right))


def citation_accuracy(citations: Sequence[str], gold: Sequence[str]) -> float:
    """Return the share of cited passages that are gold; 0 without citations.

    >>> citation_accuracy(["a", "b"], ["b", "c"])
    0.5
    """
    wanted = set(gold)
    return sum(one in wanted for one in citations) / len(citations) if citations else 0.0


def attributed(citations: Sequence[str], gold: Sequence[str]) -> float:
    """Return 1 if a cited passage is gold, else 0.

    >>> attributed(["a", "b"], ["b", "c"])
    1.0
    """
    return float(not set(gold).isdisjoint(citations))


def _jaccard(one: set[str], other: set[str]) -> float:
    either = len(one | other)
    return len(one & other) / either if either else 0.0
