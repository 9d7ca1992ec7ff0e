"""Cache tiers of the assistant, with the features known before a lookup.

====== ======== ============================================ =====================================
lookup tier     it hits when                                 a hit is right when
====== ======== ============================================ =====================================
l1     exact    this text (normalised) was answered before   that answer is this request's answer
l2     semantic the nearest stored text is within the        likewise: the same tool *and* the same
                threshold                                    parameters
l3     negative the cheap route failed not long ago on this  the cheap route fails on this request
                text, or on one within the threshold         too
bypass          never                                        --
====== ======== ============================================ =====================================

A hit of l1 or l2 serves the stored answer and ends the request. A hit of l3 means that the cheap
route fails, so the request escalates at once. A right hit saves a failed attempt; a wrong hit pays
for an unneeded escalation. A miss costs the lookup, and the router decides.

The policy chooses **only the lookup**. :meth:`CacheTiers.look_up` changes nothing, not even the
order of eviction. :meth:`CacheTiers.update` runs once for *every* request with the result of the
ordinary route, and writes all tiers. So the content of the tiers depends on the requests alone, and
the policies of two arms do not influence each other.

``python -m benchmarks.cache`` measures, on streams of the 1,311 requests of which .387 of the
arrivals are repeats: l1 hits .397 and is wrong in .015 of its hits (the same words, meant for
another tool). l2 at .9 adds .035 hits, and of its hits on requests new to the stream .80 are wrong:
near-duplicates with other parameters. The threshold worth most there is 1, where l2 finds no more
than l1. On labelled paraphrases of questions it is .83 to .95, so choose it on your own traffic.
l3 at .97 hits .163, wrong in .008. A semantic cache of tool calls is a loss unless it reads the
parameters; ``same_numbers`` does a little of that (wrong .97 where they differ, .68 where not).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from steersman.errors import InputError
from steersman.features import fold_text
from steersman_systems.assistant.lexical import hashed_vector
from steersman_systems.assistant.recent_texts import RecentTexts

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["LOOKUPS", "CacheTiers", "Lookup", "LookupKind", "choose_threshold", "normalise"]

LookupKind = Literal["l1", "l2", "l3", "bypass"]
LOOKUPS: tuple[LookupKind, ...] = get_args(LookupKind)

_LEXICAL_DIM = 256
_NUMBER = re.compile(r"\d+")


def normalise(text: str) -> str:
    r"""Return a text with normalised case, spacing and compatibility forms of letters.

    Punctuation stays: it separates "1.5" from "15".

    >>> normalise("  What's the\tWEATHER? ")
    "what's the weather?"
    """
    return " ".join(fold_text(text).split())


@dataclass(frozen=True, slots=True)
class Lookup:
    """Result of one lookup.

    Args:
        kind: the tier.
        hit: True if an entry is within the threshold of the tier.
        answer: the stored answer; None for a miss and for ``l3``, which stores none.
        similarity: cosine to the nearest entry; 1 for the same text, 0 without an entry.
        age_s: seconds since that entry was last written; None without an entry.
    """

    kind: LookupKind
    hit: bool
    answer: str | None = None
    similarity: float = 0.0
    age_s: float | None = None

    def right(self, answer: str, *, cheap_ok: bool) -> bool | None:
        """Return whether this hit is right; None for a miss.

        >>> Lookup("l2", hit=True, answer="get_weather(Oslo)").right(
        ...     "get_weather(Rome)", cheap_ok=True
        ... )
        False
        """
        if not self.hit:
            return None
        return not cheap_ok if self.kind == "l3" else self.answer == answer


class CacheTiers:
    """Recent answers and failures, with the lookups l1, l2 and l3.

    Args:
        clock: returns the time in seconds; never goes back.
        dim: length of the embeddings.
        threshold: cosine from which l2 hits, in (0, 1]. The default is cautious; fit it to your
            traffic with :func:`choose_threshold`.
        negative_threshold: the same for l3.
        capacity: maximum number of answers, and of failures, 1 to 1,000,000; the entry requested
            longest ago is evicted.
        ttl_s: seconds after which an answer expires, > 0.
        negative_ttl_s: seconds after which a failure expires, > 0.
        hashing: function from text and length to a vector; pass a cached one for repeated texts.

    Raises:
        InputError: a number outside its range.

    >>> now = [0.0]
    >>> tiers = CacheTiers(lambda: now[0], dim=2, threshold=0.9)
    >>> rome = np.array([1.0, 0.0])
    >>> tiers.update("weather in Rome", rome, answer="get_weather(Rome)", cheap_ok=True)
    >>> now[0] = 60.0
    >>> tiers.look_up("l1", "Weather in Rome", rome)
    Lookup(kind='l1', hit=True, answer='get_weather(Rome)', similarity=1.0, age_s=60.0)
    >>> tiers.look_up("l2", "weather in Oslo", np.array([0.8, 0.6])).hit
    False
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        dim: int,
        threshold: float = 0.97,
        negative_threshold: float = 0.97,
        capacity: int = 1024,
        ttl_s: float = 3600.0,
        negative_ttl_s: float = 900.0,
        hashing: Callable[[str, int], NDArray[np.float32]] = hashed_vector,
    ) -> None:
        for name, cosine in (("", threshold), ("negative_", negative_threshold)):
            if not 0.0 < cosine <= 1.0:
                message = f"{name}threshold is {cosine}; allowed: above 0, up to 1 (a cosine)."
                raise InputError(message)
        sizes = {"words": _LEXICAL_DIM, "meaning": dim}
        self._clock = clock
        self._dim = dim
        self._hashing = hashing
        self._threshold, self._negative_threshold = threshold, negative_threshold
        self._answers = RecentTexts(capacity=capacity, ttl_s=ttl_s, sizes=sizes)
        self._failures = RecentTexts(capacity=capacity, ttl_s=negative_ttl_s, sizes=sizes)
        self._hashed: tuple[str, NDArray[np.float32]] | None = None

    def features(self, text: str) -> dict[str, float]:
        """Return the features known before a lookup, without an embedding.

        An embedding takes about 10 ms, most of the cost of l2 and l3. So these features use the
        cosine of hashed words and letter n-grams, which takes about 0.2 ms.

        Returns:
            ``exact``, 1 if this very text is stored; ``similarity``, cosine to the nearest stored
            text, 0 to 1; ``same_numbers``, 1 if that text has the same numbers in the same order
            (near-duplicates with other parameters often differ in them); ``negative``, cosine to
            the nearest recent failure of the cheap route.
        """
        now_s = self._clock()
        key = normalise(text)
        words = self._words(key)
        similarity, slot = self._answers.nearest("words", words, now_s)
        stored = "" if slot is None else self._answers.text(slot)
        same = slot is not None and _NUMBER.findall(stored) == _NUMBER.findall(key)
        return {
            "exact": float(self._answers.find(key, now_s) is not None),
            "similarity": similarity,
            "same_numbers": float(same),
            "negative": self._failures.nearest("words", words, now_s)[0],
        }

    def look_up(
        self, kind: LookupKind, text: str, embedding: NDArray[np.floating] | None = None
    ) -> Lookup:
        """Return the result of one tier for a request; changes nothing.

        Args:
            embedding: its unit vector, shape (dim,); l2 and l3 need it.

        Raises:
            InputError: another kind, or an embedding that is missing, of another length, or not
                finite.
        """
        if kind not in LOOKUPS:
            message = f"lookup {kind!r} is unknown; allowed: {', '.join(LOOKUPS)}."
            raise InputError(message)
        if kind == "bypass":
            return Lookup(kind, hit=False)
        now_s = self._clock()
        store = self._failures if kind == "l3" else self._answers
        similarity, slot = 1.0, store.find(normalise(text), now_s)
        if slot is None and kind != "l1":
            similarity, slot = store.nearest("meaning", self._checked(embedding), now_s)
        if slot is None:
            return Lookup(kind, hit=False)
        needed = {"l1": 1.0, "l2": self._threshold, "l3": self._negative_threshold}[kind]
        hit = similarity >= needed
        answer = store.value(slot) if hit else None
        return Lookup(kind, hit, answer, similarity, store.age_s(slot, now_s))

    def update(
        self, text: str, embedding: NDArray[np.floating], *, answer: str | None, cheap_ok: bool
    ) -> None:
        """Write one finished request into all tiers.

        Call it once per request, after any lookup, with the result of the ordinary route (not of
        the cache).

        Args:
            embedding: its unit vector, shape (dim,).
            answer: the confirmed answer; None removes the stored answer of this text.

        Raises:
            InputError: an embedding of another length or not finite; nothing was written.
        """
        now_s = self._clock()
        key = normalise(text)
        vectors = {"words": self._words(key), "meaning": self._checked(embedding)}
        if answer is None:
            self._answers.drop(key)
        else:
            self._answers.write(key, answer, vectors, now_s)
        if cheap_ok:
            self._failures.drop(key)
        else:
            self._failures.write(key, None, vectors, now_s)

    def _words(self, key: str) -> NDArray[np.float32]:
        """Return the hashed words of a text, cached: a request is looked up, then written."""
        hashed = self._hashed
        if hashed is None or hashed[0] != key:
            hashed = self._hashed = key, self._hashing(key, _LEXICAL_DIM)
        return hashed[1]

    def _checked(self, embedding: NDArray[np.floating] | None) -> NDArray[np.float32]:
        vector = np.asarray([] if embedding is None else embedding, dtype=np.float32)
        if vector.shape != (self._dim,) or not np.isfinite(vector).all():
            seen = "none" if embedding is None else f"of shape {vector.shape}"
            message = f"embedding is {seen}; allowed: shape ({self._dim},), all finite."
            raise InputError(message)
        return vector


def choose_threshold(
    similarity: NDArray[np.floating],
    same: NDArray[np.bool_],
    *,
    wrong_cost: float,
) -> float:
    """Return the similarity threshold with the highest value on labelled pairs.

    A right hit is worth 1 and a wrong hit costs ``wrong_cost``. A hit pays if its probability of
    being right is above wrong_cost / (1 + wrong_cost). The pairs must be drawn from the traffic:
    the share of equal pairs moves the threshold. The value at the chosen threshold is optimistic;
    measure it on held-out pairs.

    Args:
        similarity: one similarity per pair, shape (n,), at most 1.
        same: True if the pair has the same answer, shape (n,), bool.
        wrong_cost: cost of a wrong hit, in right hits, >= 0.

    Returns:
        A threshold t among the observed similarities; a hit is similarity >= t. If no threshold
        has a positive value, the next float above the largest similarity: no hits.

    Raises:
        InputError: no pairs, unequal shapes, values not finite, or a negative cost.

    >>> near = np.array([0.95, 0.9, 0.85, 0.8])
    >>> choose_threshold(near, np.array([True, True, False, True]), wrong_cost=2.0)
    0.9
    """
    similarity = np.asarray(similarity, dtype=np.float64)
    same = np.asarray(same, dtype=bool)
    if similarity.ndim != 1 or similarity.shape != same.shape or len(same) == 0:
        message = f"shapes {similarity.shape} and {same.shape}; allowed: two equal rows, n >= 1."
        raise InputError(message)
    if not np.isfinite(similarity).all() or not 0.0 <= wrong_cost < np.inf:
        message = f"wrong_cost is {wrong_cost}; allowed: 0 or more, and finite similarities."
        raise InputError(message)
    levels, level = np.unique(similarity, return_inverse=True)
    gains = np.bincount(level, weights=np.where(same, 1.0, -wrong_cost))
    worth = np.cumsum(gains[::-1])[::-1]
    best = int(np.argmax(worth))
    return float(levels[best]) if worth[best] > 0 else float(np.nextafter(levels[-1], np.inf))
