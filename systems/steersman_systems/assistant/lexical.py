"""Signed hash vectors of texts, from words, word pairs and letter n-grams.

CRC-32 of the UTF-8 bytes gives slot and sign, so a text has the same vector on every machine.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["hashed_counts", "hashed_vector", "ngrams"]

_WORD = re.compile(r"\w+")


def ngrams(text: str) -> list[str]:
    """Return the words of a text, pairs of neighbouring words, and runs of 3 and 4 letters.

    >>> ngrams("Hi Al")
    ['w hi', 'w al', 'p ^ hi', 'p hi al', 'p al $', ' hi', 'hi ', 'i a', ' al', 'al ', ' hi ', \
'hi a', 'i al', ' al ']
    """
    words = _WORD.findall(text.casefold())
    if not words:
        return []
    pairs = zip(["^", *words], [*words, "$"], strict=True)
    line = f" {' '.join(words)} "
    return [
        *[f"w {word}" for word in words],
        *[f"p {left} {right}" for left, right in pairs],
        *[line[start : start + 3] for start in range(len(line) - 2)],
        *[line[start : start + 4] for start in range(len(line) - 3)],
    ]


def hashed_counts(texts: Sequence[str], dim: int) -> sparse.csr_array:
    """Return one row per text: the signed number of its *distinct* n-grams in each slot.

    Args:
        dim: number of slots, >= 2.

    Returns:
        Sparse matrix, shape (len(texts), dim), float64. Because of the signs, collisions in a slot
        cancel on average.

    >>> hashed_counts(["play jazz", "play jazz", "weather"], 64).sum(axis=1)
    array([-4., -4.,  0.])
    """
    hashes, ends = [], [0]
    for text in texts:
        hashes += [zlib.crc32(gram.encode()) for gram in dict.fromkeys(ngrams(text))]
        ends.append(len(hashes))
    hashed = np.array(hashes, np.int64)
    signs = np.where(hashed >> 31, 1.0, -1.0)
    counts = sparse.csr_array((signs, hashed % dim, ends), shape=(len(texts), dim))
    counts.sum_duplicates()
    return counts


def hashed_vector(text: str, dim: int) -> NDArray[np.float32]:
    """Return one text as a dense unit vector; all zeros for a text without words.

    Args:
        dim: number of slots, >= 2.

    Returns:
        Shape (dim,), float32, norm 1 or 0.

    >>> one, other = hashed_vector("play jazz", 256), hashed_vector("play some jazz", 256)
    >>> round(float(one @ other), 3)
    0.728
    """
    hashes = np.fromiter((zlib.crc32(g.encode()) for g in dict.fromkeys(ngrams(text))), np.int64)
    signs = np.where(hashes >> 31, 1.0, -1.0)
    vector = np.bincount(hashes % dim, weights=signs, minlength=dim).astype(np.float32)
    norm = np.linalg.norm(vector)
    return vector / norm if norm else vector
