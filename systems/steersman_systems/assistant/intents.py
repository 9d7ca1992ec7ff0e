"""Intent classifier of the assistant: small, deterministic, on the core dependencies.

Texts become tf-idf weighted signed hashes of words, word pairs and letter n-grams (4,096 slots).
The labelled examples vote. The weight of a vote is a power of the cosine to the request, relative
to the nearest example. The classifier needs no training loop, no seed and no model file.

The requests of the assistant have no intent labels, so its intents are families of tools.
:func:`tool_families` clusters the texts of the tools, and the classifier is fitted on these texts
with the families as labels. It is not fitted on requests.

``python -m benchmarks.intents`` checks the class on clinc150 (150 intents, and questions outside
all of them): accuracy .874 [.864, .883] in scope, beside .911 of a linear SVM and .823 of centroids
in the same run. With a confidence threshold, .898 of the out-of-scope questions are rejected, and
.766 of the in-scope ones are kept and right. On the catalogue, .69 of the requests get the family
of the tool that they need (40 families; always the most common: .23). Ridge regression on the same
slots is 1.5 points better on clinc150 and 23 points worse on the catalogue, which has short
requests and long descriptions.

Source: Weinberger et al. (2009), Feature Hashing for Large Scale Multitask Learning; Dudani
(1976), The Distance-Weighted k-Nearest-Neighbor Rule; Dhillon and Modha (2001), Concept
Decompositions (spherical k-means).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import sparse

from steersman.errors import InputError, StateError
from steersman_systems.assistant.lexical import hashed_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["IntentClassifier", "tool_families"]

_FORMAT = "intents-1"


@dataclass(frozen=True, slots=True, eq=False)
class IntentClassifier:
    """Intent classifier with voting labelled examples; create it with :meth:`fit`.

    Args:
        intents: the known intents, sorted.
        labels: index into ``intents`` of each example, shape (n,), int64.
        idf: weight of each slot, shape (dim,), float64.
        examples: unit vectors of the examples as columns, shape (dim, n), float64.
        power: exponent of the relative cosine, > 0; a large value uses the nearest example alone.
    """

    intents: tuple[str, ...]
    labels: NDArray[np.int64]
    idf: NDArray[np.float64]
    examples: sparse.csr_array
    power: float

    @classmethod
    def fit(
        cls, texts: Sequence[str], labels: Sequence[str], *, dim: int = 4096, power: float = 6.0
    ) -> Self:
        """Return a classifier with these examples.

        Args:
            texts: n >= 1 texts.
            dim: number of hash slots, 16 to 65,536.
            power: exponent of the relative cosine, > 0; 6 is best on the validation split of
                clinc150.

        Raises:
            InputError: no texts, unequal lengths, or a number outside its range.
        """
        if not texts or len(texts) != len(labels):
            message = f"{len(texts)} texts and {len(labels)} labels; allowed: equal, 1 or more."
            raise InputError(message)
        if not (16 <= dim <= 65_536 and power > 0):
            message = f"dim {dim}, power {power}; allowed: dim 16 to 65536, power above 0."
            raise InputError(message)
        intents = sorted(set(labels))
        place = {intent: index for index, intent in enumerate(intents)}
        counts = hashed_counts(texts, dim)
        idf = _inverse_document_frequency(counts)
        target = np.array([place[label] for label in labels], dtype=np.int64)
        return cls(tuple(intents), target, idf, _unit_rows(counts, idf).T.tocsr(), float(power))

    def predict(self, text: str) -> tuple[str, float]:
        """Return the intent of a text and the confidence in it.

        Args:
            text: any text; a text unlike all examples gets the first intent with confidence 0.

        Returns:
            The intent with most votes, and its confidence in [0, 1]: its share of the votes times
            the cosine to the nearest example. The confidence is not a probability.

        >>> texts = ["play some jazz", "play a song", "is it raining", "weather in Oslo"]
        >>> model = IntentClassifier.fit(texts, ["music", "music", "weather", "weather"])
        >>> intent, confidence = model.predict("play the new song please")
        >>> intent, round(confidence, 2)
        ('music', 0.3)
        >>> model.predict("???")
        ('music', 0.0)
        """
        ((best,), (confidence,)) = self.predict_many([text])
        return best, float(confidence)

    def predict_many(self, texts: Sequence[str]) -> tuple[list[str], NDArray[np.float64]]:
        """Return the intents and confidences of some texts, see :meth:`predict`.

        Args:
            texts: n >= 1 texts; memory is n times the number of examples, in float64.

        Returns:
            n intents, and confidences, shape (n,), float64.
        """
        rows = _unit_rows(hashed_counts(texts, len(self.idf)), self.idf)
        cosines = np.maximum((rows @ self.examples).toarray(), 0.0)
        nearest = cosines.max(axis=1, keepdims=True, initial=0.0)
        votes = (cosines / np.maximum(nearest, 1e-12)) ** self.power
        k = len(self.intents)
        shares = np.array([np.bincount(self.labels, row, minlength=k) for row in votes])
        best = np.argmax(shares, axis=1)
        won = shares[np.arange(len(texts)), best] / np.maximum(shares.sum(axis=1), 1e-12)
        return [self.intents[index] for index in best], np.minimum(won * nearest[:, 0], 1.0)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state for :meth:`from_state`, as arrays."""
        meta = {"format": _FORMAT, "intents": self.intents, "power": self.power}
        return {
            "meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
            "labels": self.labels.copy(),
            "idf": self.idf.copy(),
            "values": self.examples.data.copy(),
            "columns": self.examples.indices.astype(np.int64),
            "ends": self.examples.indptr.astype(np.int64),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the classifier of a state.

        Raises:
            StateError: parts are missing, have another format, or do not match.
        """
        try:
            meta = json.loads(np.asarray(state["meta"], dtype=np.uint8).tobytes())
            labels = np.array(state["labels"], dtype=np.int64)
            idf = np.array(state["idf"], dtype=np.float64)
            parts = (np.array(state["values"], dtype=np.float64), state["columns"], state["ends"])
            examples = sparse.csr_array(parts, shape=(len(idf), len(labels)))
            examples.check_format()
            _check_parts(meta, labels, idf, examples)
            return cls(tuple(meta["intents"]), labels, idf, examples, float(meta["power"]))
        except (KeyError, TypeError, ValueError) as wrong:
            message = (
                f"invalid state of an intent classifier: {wrong!r}; pass the result of state()."
            )
            raise StateError(message) from wrong


def _check_parts(
    meta: Mapping[str, Any],
    labels: NDArray[np.int64],
    idf: NDArray[np.float64],
    examples: sparse.csr_array,
) -> None:
    if meta["format"] != _FORMAT:
        message = f"format {meta['format']!r}; allowed: {_FORMAT!r}"
        raise ValueError(message)
    if not (len(labels) and 0 <= labels.min() <= labels.max() < len(meta["intents"])):
        message = f"labels must be 0 to {len(meta['intents']) - 1}, at least one"
        raise ValueError(message)
    if not (np.isfinite(idf).all() and np.isfinite(examples.data).all() and meta["power"] > 0):
        raise ValueError("idf and values must be finite, power above 0")


def tool_families(
    names: Sequence[str],
    texts: Sequence[str],
    n_families: int,
    rng: np.random.Generator,
    *,
    dim: int = 4096,
    rounds: int = 50,
) -> list[str]:
    """Return the family of each tool, from spherical k-means on the tools' texts.

    Args:
        n_families: number of families, 1 to n.

    Returns:
        n names of families. Identical texts get the same family; empty families are dropped.

    Raises:
        InputError: unequal lengths, or ``n_families`` outside its range.

    >>> names = ["play", "song", "rain", "storm"]
    >>> texts = ["play music", "play music song", "weather rain", "weather storm rain"]
    >>> len(set(tool_families(names, texts, 2, np.random.default_rng(0))))
    2
    """
    if len(names) != len(texts) or not 1 <= n_families <= len(names):
        message = (
            f"{len(names)} names, {len(texts)} texts, n_families {n_families}; allowed: as many "
            "names as texts, and 1 up to that many families."
        )
        raise InputError(message)
    counts = hashed_counts(texts, dim)
    rows = _unit_rows(counts, _inverse_document_frequency(counts)).toarray()
    centres = _starting_centres(rows, n_families, rng)
    family = np.full(len(rows), -1)
    for _ in range(rounds):
        moved = np.argmax(rows @ centres.T, axis=1)
        if np.array_equal(moved, family):
            break
        family = moved
        for k in np.unique(family):
            centre = rows[family == k].sum(axis=0)
            centres[k] = centre / max(float(np.linalg.norm(centre)), 1e-12)
    called = {}
    for k in np.unique(family):
        members = np.flatnonzero(family == k)
        called[k] = names[members[np.argmax(rows[members] @ centres[k])]]
    return [called[k] for k in family]


def _inverse_document_frequency(counts: sparse.csr_array) -> NDArray[np.float64]:
    n, dim = counts.shape
    present = np.bincount(counts.indices[counts.data != 0], minlength=dim)
    return np.asarray(1.0 + np.log((n + 1.0) / (present + 1.0)), dtype=np.float64)


def _unit_rows(counts: sparse.csr_array, idf: NDArray[np.float64]) -> sparse.csr_array:
    weighted = (counts * idf).tocsr()
    norms = np.sqrt(weighted.power(2).sum(axis=1))
    return (weighted * (1.0 / np.maximum(norms, 1e-12))[:, None]).tocsr()


def _starting_centres(
    rows: NDArray[np.float64], k: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return k rows, drawn in proportion to the distance from the earlier ones (k-means++)."""
    chosen = [int(rng.integers(len(rows)))]
    distance = np.maximum(1.0 - rows @ rows[chosen[0]], 0.0)
    while len(chosen) < k:
        total = distance.sum()
        shares = distance / total if total > 1e-9 else np.full(len(rows), 1.0 / len(rows))
        chosen.append(int(rng.choice(len(rows), p=shares)))
        distance = np.minimum(distance, np.maximum(1.0 - rows @ rows[chosen[-1]], 0.0))
    return rows[chosen].copy()
