"""BM25: keyword ranking of prose and of identifiers in code."""

from __future__ import annotations

import math
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import extra, how_to_install
from steersman.retrieval.ranking import Ranking, best

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_ENGLISH = re.compile(r"[a-z]{3,40}")


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """Return the stem of a word, by Snowball's English stemmer (Porter2).

    Args:
        word: lower-case word; returned unchanged unless it has 3 to 40 letters a to z.

    Raises:
        DataError: the extra ``rag`` is not installed.

    >>> [stem(word) for word in ("connections", "connected", "flies", "wing", "v2")]
    ['connect', 'connect', 'fli', 'wing', 'v2']
    """
    if not _ENGLISH.fullmatch(word):
        return word
    stemmed: str = _english().stemWord(word)
    return stemmed


@cache
def _english() -> Any:
    stemmer = extra("Stemmer", "rag").Stemmer("english")
    stemmer.maxCacheSize = 0  # the cache of `stem` is faster
    return stemmer


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Return lower-case words, with ``snake_case`` and ``camelCase`` names split.

    >>> words("Call getUserInfo or get_HTTPStatus (v2)")
    ['call', 'get', 'user', 'info', 'or', 'get', 'http', 'status', 'v2']
    """
    return _WORD.findall(_HUMP.sub(" ", text).lower())


class Bm25:
    """BM25 index of a fixed collection of documents.

    Args:
        documents: one or more texts.
        k1: saturation of term frequency, ≥ 0.
        b: strength of length normalisation, in [0, 1].
        stem: maps a word of a document to its index term; default: the word.
        query_terms: maps a query to its terms.
        split: tokenizer of documents; queries must use the same one.

    Raises:
        InputError: no documents, or a number is out of range.
        DataError: the extra ``rag`` is not installed.

    Source: Robertson & Zaragoza, The Probabilistic Relevance Framework (2009), eq. 3.15, in the
    variant of Lucene: idf = ln(1 + (N − df + .5)/(df + .5)) without the factor (k1 + 1), which does
    not affect the order. `bm25s` (Lù 2024) precomputes the scores; `tests/retrieval/test_bm25.py`
    compares them with the formula.
    """

    def __init__(
        self,
        documents: Sequence[str],
        *,
        k1: float = 1.5,
        b: float = 0.75,
        stem: Callable[[str], str] = str,
        query_terms: Callable[[str], list[str]] = words,
        split: Callable[[str], list[str]] = words,
    ) -> None:
        if not documents:
            raise InputError("documents is empty; BM25 needs at least one text to rank")
        # This form also refuses NaN.
        if not (0.0 <= k1 < math.inf and 0.0 <= b <= 1.0):
            raise InputError(f"k1 is {k1!r} and b is {b!r}; allowed: k1 ≥ 0 and finite, b 0 to 1")
        try:
            import bm25s  # noqa: PLC0415 - an extra: the core must import without it
        except ImportError as missing:
            message = "BM25 needs the package bm25s; install it with: "
            raise DataError(message + how_to_install("rag")) from missing
        self._size = len(documents)
        self._query_terms = query_terms
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene")
        self._index.index(_numbered(documents, stem, split), show_progress=False)

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the scores of all documents.

        Returns:
            (documents,) float32, ≥ 0.
        """
        known = [word for word in self._query_terms(query) if word in self._index.vocab_dict]
        if not known:
            return np.zeros(self._size, np.float32)
        return np.asarray(self._index.get_scores(known), np.float32)

    def ranked(self, query: str, k: int) -> Ranking:
        """Return the best documents that share a word with the query.

        Args:
            k: maximum number of results, ≥ 1.

        Returns:
            Positions and scores > 0, best first; at most `k`.

        Raises:
            InputError: `k` is below 1.
        """
        found = best(self.scores(query), k)
        return found.first(int(np.count_nonzero(found.scores > 0)))


def _numbered(
    documents: Sequence[str], stem: Callable[[str], str], split: Callable[[str], list[str]]
) -> tuple[list[list[int]], dict[str, int]]:
    """Return the documents as term numbers, and the number of each stem."""
    numbers: dict[str, int] = {"": 0}
    known: dict[str, int] = {}
    rows = []
    for text in documents:
        found = split(text)
        for word in found:
            if word not in known:
                known[word] = numbers.setdefault(stem(word), len(numbers))
        rows.append([known[word] for word in found] or [0])
    return rows, numbers


_SPOKEN = """
a about after all also an and any are as at be been before between but by can could did do does
during for from had has have he her his how i if in into is it its may might more most no not
of on only or other our over she should so some such than that the their then there these they
this to under was we were what when where which who whom whose why will with would you your
"""
_FUNCTION_WORDS = frozenset(_SPOKEN.split())


def query_terms(text: str, split: Callable[[str], list[str]] = words) -> list[str]:
    """Return the search terms of a query: its stems without stop words.

    A query of stop words only keeps them, so that "To be or not to be" can be found.

    >>> query_terms("What lifts the wings?"), query_terms("Who?")
    (['lift', 'wing'], ['who'])
    """
    found = split(text)
    telling = [word for word in found if word not in _FUNCTION_WORDS]
    return [stem(word) for word in telling or found]
