"""Deduplication of passages: exact and near duplicates.

MinHash over shingles of three words finds candidates. The exact Jaccard similarity of the shingles
then decides, so every dropped passage reaches the threshold. Only misses are possible: at most one
pair in a thousand at the threshold, over random hash functions, and fewer above it.

Source: Broder, On the resemblance and containment of documents (1997); banding as in Leskovec,
Rajaraman & Ullman, Mining of Massive Datasets, section 3.4. `tests/retrieval/documents/
test_duplicates.py` measures the share of misses.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError
from steersman.features import folded_words
from steersman.retrieval.documents.passage import passage_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from steersman.retrieval.documents.passage import Passage

_HASHES = 128
_SHINGLE = 3
_MISS = 1e-3
_LEAST = 0.3
# Fixed seed: results must not differ between runs.
_RNG = np.random.default_rng(20_261_121)
_FACTORS = _RNG.integers(1, 1 << 63, (_HASHES, 1), np.uint64) * np.uint64(2) + np.uint64(1)
_SHIFTS = _RNG.integers(0, 1 << 63, (_HASHES, 1), np.uint64)


class Repeat(NamedTuple):
    """Dropped duplicate.

    Attributes:
        passage: id of the dropped passage.
        repeats: id of the kept passage.
        similarity: similarity of both, in [`near`, 1]; 1.0 for the same words.
    """

    passage: str
    repeats: str
    similarity: float


@dataclass(frozen=True, slots=True)
class UniquePassages:
    """Result of deduplication.

    Attributes:
        kept: kept passages, in order.
        dropped: dropped duplicates, in order.
    """

    kept: tuple[Passage, ...]
    dropped: tuple[Repeat, ...]


def unique(passages: Iterable[Passage], *, near: float | None = 0.9) -> UniquePassages:
    """Return the passages without duplicates of earlier ones.

    It compares words of letters and digits, ignoring case, width and the encoding of accents.
    Titles and headings count only if a text has no words. The cost grows with the number of pairs
    that share a band of hashes: passages from one template, slightly below `near`, are all compared
    with each other.

    Args:
        near: minimum Jaccard similarity of the shingles (three consecutive words) for a duplicate,
            0.3 to 1; None: only the same words in the same order.

    Raises:
        InputError: `near` is out of range, or an id occurs twice.

    >>> from steersman.retrieval.documents.document import Document
    >>> from steersman.retrieval.documents.chunks import cut
    >>> texts = ["Pumps hum when they are cold.", "Valves stick.", "pumps HUM when they are cold"]
    >>> found = unique(cut(Document(str(i), text))[0] for i, text in enumerate(texts))
    >>> [passage.id for passage in found.kept], found.dropped
    (['0#0', '1#0'], (Repeat(passage='2#0', repeats='0#0', similarity=1.0),))
    """
    if near is not None and not _LEAST <= near <= 1:
        raise InputError(f"near is {near}; allowed: {_LEAST} to 1, or None")
    same: dict[bytes, tuple[str, float]] = {}
    index = None if near is None else _MinHashIndex(near)
    kept: list[Passage] = []
    dropped: list[Repeat] = []
    for passage in _without_repeated_ids(passages):
        words = _compared_words(passage)
        key = hashlib.sha256(" ".join(words).encode()).digest()
        found = same.get(key) or (index and index.find(words, passage.id))
        if found:
            dropped.append(Repeat(passage.id, *found))
        else:
            kept.append(passage)
        same.setdefault(key, found or (passage.id, 1.0))
    return UniquePassages(tuple(kept), tuple(dropped))


def _without_repeated_ids(passages: Iterable[Passage]) -> Iterator[Passage]:
    seen: set[str] = set()
    for passage in passages:
        if passage.id in seen:
            raise InputError(f"duplicate passage id {passage.id}; give each document a unique id")
        seen.add(passage.id)
        yield passage


def _compared_words(passage: Passage) -> list[str]:
    for text in (passage.text, passage_text(passage)):
        found = folded_words(text.replace("_", " "))
        if found:
            return found
    # Only signs: compare them as they are.
    return [passage.text.strip()]


class _MinHashIndex:
    """Index of kept passages by the bands of their signatures."""

    def __init__(self, near: float) -> None:
        self._near = near
        self._rows = _rows(near)
        self._bands: dict[bytes, list[int]] = {}
        self._shingles: list[NDArray[np.uint64]] = []
        self._ids: list[str] = []

    def find(self, words: list[str], name: str) -> tuple[str, float] | None:
        """Return id and similarity of the first near duplicate; without one, add the passage."""
        shingles = _shingles(words)
        bands = list(_bands(shingles, self._rows))
        candidates = {place for band in bands for place in self._bands.get(band, ())}
        for place in sorted(candidates):
            similarity = _jaccard(shingles, self._shingles[place])
            if similarity >= self._near:
                return self._ids[place], similarity
        for band in bands:
            self._bands.setdefault(band, []).append(len(self._ids))
        self._shingles.append(shingles)
        self._ids.append(name)
        return None


def _rows(near: float) -> int:
    """Return the largest band size within the miss rate: it gives the fewest candidates."""
    powers = (1, 2, 4, 8, 16, 32)
    return max(rows for rows in powers if (1 - near**rows) ** (_HASHES // rows) <= _MISS)


def _bands(shingles: NDArray[np.uint64], rows: int) -> Iterator[bytes]:
    hashed = (shingles * _FACTORS + _SHIFTS) >> np.uint64(32)
    signature = hashed.min(axis=1).astype("<u4").reshape(-1, rows)
    for number, band in enumerate(signature):
        yield number.to_bytes(1, "little") + band.tobytes()


def _shingles(words: list[str]) -> NDArray[np.uint64]:
    """Return sorted unique 64-bit hashes of the shingles; one shingle for fewer words."""
    hashes = np.array([_hash_word(word) for word in words], np.uint64)
    count = max(len(words) - _SHINGLE + 1, 1)
    mixed = np.zeros(count, np.uint64)
    for shift in range(min(_SHINGLE, len(words))):
        mixed = _mix(mixed ^ hashes[shift : shift + count])
    return np.unique(mixed)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The finaliser of SplitMix64: each input bit flips about half of the output bits.
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@lru_cache(maxsize=65_536)
def _hash_word(word: str) -> int:
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _jaccard(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> float:
    both = len(np.intersect1d(one, other, assume_unique=True))
    return both / (len(one) + len(other) - both)
