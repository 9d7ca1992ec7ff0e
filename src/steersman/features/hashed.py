"""Hashed fields: texts, categories and vectors.

Each value becomes a vector of norm 1 over the hashed slots, or zero if it is empty. So a long text
has the same weight as a short one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from math import fsum, sqrt
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.features.text_normal_form import folded_words
from steersman.features.values import as_category, as_text, as_vector, refuse_missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from steersman.spec.context import CategoryField, TextField, VectorField

Placed = tuple["NDArray[np.intp]", "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True)
class SignedHash:
    """Places tokens in the slots 0 to ``size - 1``.

    Attributes:
        seed: 0 to 2³² - 1; another seed gives other collisions.
        size: number of slots, at least 1.
    """

    seed: int
    size: int

    def place(self, namespace: str, tokens: Iterable[str]) -> Placed:
        """Return the slots, shape (n,), and the signs (±1.0), shape (n,), of n tokens.

        Args:
            namespace: keeps equal tokens of different fields apart.
            tokens: any text, unpaired surrogates included.

        >>> slots, signs = SignedHash(seed=0, size=50).place("intent", ["weather", "music"])
        >>> slots.tolist(), signs.tolist()
        ([11, 37], [1.0, -1.0])
        """
        salt = self.seed.to_bytes(8, "little")
        primed = blake2b(f"{namespace}\x1f".encode(), digest_size=8, salt=salt)
        digests = []
        for token in tokens:
            hashed = primed.copy()
            hashed.update(token.encode("utf-8", "surrogatepass"))
            digests.append(hashed.digest())
        codes = np.frombuffer(b"".join(digests), dtype="<u8")
        slots = ((codes >> np.uint64(1)) % np.uint64(self.size)).astype(np.intp)
        return slots, np.where(codes & np.uint64(1), 1.0, -1.0)


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``vector`` scaled to Euclidean norm 1; a zero vector stays unchanged.

    Correctly rounded sums make the result bit-identical on every machine.
    """
    largest = float(np.max(np.abs(vector), initial=0.0))
    if largest == 0.0:
        return vector
    scaled = vector / largest
    return scaled / sqrt(fsum((scaled * scaled).tolist()))


_REMEMBERED_WORDS = 16_384
_REMEMBERED_CHARS = 40


class HashedField(Protocol):
    """A field of the hashed region."""

    weight: float

    def add(self, region: NDArray[np.float64], value: object, share: float) -> None:
        """Add the value as a vector of norm ``share`` to ``region`` in place; None is missing."""
        ...


class HashedText:
    """Text field: hashed words and character n-grams within words.

    A word has weight √(number of occurrences). Its n-grams, with ``<`` and ``>`` at the word's
    ends, together have the same weight as the word. Words are runs of letters with their marks,
    digits and ``_`` after NFKC and case folding, so punctuation alone is an empty text.
    """

    def __init__(self, name: str, field: TextField, place: SignedHash) -> None:
        self.weight = field.weight
        self._name, self._field, self._hash = name, field, place
        self._remembered: dict[str, Placed] = {}

    def add(self, region: NDArray[np.float64], value: object, share: float) -> None:
        """Add the text to the hashed region."""
        counts = Counter(folded_words(self._taken(value)))
        if not counts:
            return
        parts = [self._word(word) for word in counts]
        slots = np.concatenate([part[0] for part in parts])
        weights = np.concatenate(
            [
                part[1] if times == 1 else part[1] * sqrt(times)
                for part, times in zip(parts, counts.values(), strict=True)
            ]
        )
        region += share * unit(_added(slots, weights, self._hash.size))

    def _taken(self, value: object) -> str:
        field = self._field
        if value is None:
            if field.missing == "refuse":
                raise refuse_missing(self._name)
            return ""
        truncate = field.too_long == "truncate"
        return as_text(self._name, value, field.max_chars, truncate=truncate)

    def _word(self, word: str) -> Placed:
        known = self._remembered.get(word)
        if known is not None:
            return known
        placed = self._place(word)
        if len(word) <= _REMEMBERED_CHARS:
            if len(self._remembered) >= _REMEMBERED_WORDS:
                self._remembered.clear()
            self._remembered[word] = placed
        return placed

    def _place(self, word: str) -> Placed:
        # Words and n-grams never contain "=", so a word differs from its own n-gram.
        whole = [f"={word}"] if self._field.words else []
        grams = _ngrams(word, self._field.ngrams)
        slots, weights = self._hash.place(f"{self._name}\x1ftext", whole + grams)
        if grams:
            weights[len(whole) :] /= sqrt(len(grams))
        return slots, weights


class HashedCategory:
    """Category field: one slot per category, and a separate category for a missing value."""

    def __init__(self, name: str, field: CategoryField, place: SignedHash) -> None:
        self.weight = field.weight
        self._name, self._field, self._hash = name, field, place
        self._remembered: dict[str | None, tuple[int, float]] = {}

    def add(self, region: NDArray[np.float64], value: object, share: float) -> None:
        """Add the category to the hashed region."""
        token = None if value is None else as_category(self._name, value)
        slot, sign = self._remembered.get(token) or self._place(token)
        region[slot] += share * sign

    def _place(self, token: str | None) -> tuple[int, float]:
        if token is None and self._field.missing == "refuse":
            raise refuse_missing(self._name)
        namespace = "missing" if token is None else "category"
        slots, signs = self._hash.place(f"{self._name}\x1f{namespace}", [token or ""])
        placed = int(slots[0]), float(signs[0])
        if token is None or len(token) <= _REMEMBERED_CHARS:
            if len(self._remembered) >= _REMEMBERED_WORDS:
                self._remembered.clear()
            self._remembered[token] = placed
        return placed


class HashedVector:
    """Vector field by count sketch: every entry is added with a sign to one slot.

    The inner product of two sketches is unbiased. For unit vectors its standard error is at most
    √(2 / slots); raise ``dim`` to lower it.

    Source: Charikar, Chen, Farach-Colton, Finding Frequent Items in Data Streams, 2002.
    """

    def __init__(self, name: str, field: VectorField, place: SignedHash) -> None:
        self.weight = field.weight
        self._name, self._field, self._size = name, field, place.size
        entries = map(str, range(field.size))
        self._slots, self._signs = place.place(f"{name}\x1fvector", entries)

    def add(self, region: NDArray[np.float64], value: object, share: float) -> None:
        """Add the vector's direction to the hashed region."""
        if value is None:
            if self._field.missing == "refuse":
                raise refuse_missing(self._name)
            return
        vector = unit(as_vector(self._name, value, self._field.size))
        region += share * unit(_added(self._slots, vector * self._signs, self._size))


def _added(slots: NDArray[np.intp], weights: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    # Added one after the other, in the order given: the same to the bit everywhere.
    return np.bincount(slots, weights=weights, minlength=size).astype(np.float64, copy=False)


def _ngrams(word: str, lengths: tuple[int, ...]) -> list[str]:
    marked = f"<{word}>"
    return [
        marked[start : start + length]
        for length in lengths
        for start in range(len(marked) - length + 1)
    ]
