"""Pool of candidates of a question; it grows along links.

A pool is immutable: `expanded` returns a new one. Its arrays follow the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steersman.retrieval.passage_links import TITLE
from steersman.retrieval.ranking import Ranking, best, convex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.collection import Collection
    from steersman_systems.evidence_selection.question import Question

    Floats = NDArray[np.float64]

_ENGINES = 100
NAMES, SHARES = 1, 2
"""Bits of `Pool.led`: the text names the other's title; both name something rare."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Passage that can be picked.

    Args:
        id: unique in its collection.
        title: "" without a title.
        text: text of the passage.
        position: position in its collection.
    """

    id: str
    title: str
    text: str
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class LexicalScores:
    """BM25 scores of the passages that share a word with a query; all others have 0.

    The representation is sparse because pools stay in memory for a whole evaluation.

    Args:
        positions: (m,) positions in the collection, rising.
        scores: (m,) > 0.

    >>> LexicalScores.of(np.array([0.0, 2.0, 0.0, 1.0], np.float32)).at(np.array([3, 0])).tolist()
    [1.0, 0.0]
    """

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def of(cls, scores: NDArray[np.float32]) -> Self:
        """Return the scores that are not 0.

        Args:
            scores: (collection,), ≥ 0.
        """
        positions = np.flatnonzero(scores)
        return cls(positions.astype(np.int32), scores[positions])

    @property
    def highest(self) -> float:
        """Highest score; 0 without any."""
        return float(self.scores.max(initial=0.0))

    def at(self, positions: NDArray[np.intp]) -> Floats:
        """Return (n,) scores at positions."""
        if not len(self.positions):
            return np.zeros(len(positions))
        slot = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
        there = self.positions[slot] == positions
        return np.where(there, self.scores[slot], 0.0).astype(np.float64)

    def best(self, count: int) -> Ranking:
        """Return the positions with the highest scores; ties are ordered by position."""
        found = best(self.scores, count)
        return Ranking(self.positions[found.positions].astype(np.intp), found.scores)


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """Query as input of both search engines.

    Args:
        text: query text.
        lexical: BM25 scores.
        vector: (size,) embedding; None without an embedder.
        nearest: positions of the nearest passages, nearest first.
        terms: (q,) numbers of the query's stems in the collection, rising.
    """

    text: str
    lexical: LexicalScores
    vector: NDArray[np.float32] | None
    nearest: tuple[int, ...]
    terms: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Candidates of a question.

    Args:
        question: question to select for.
        collection: source of the candidates and of expansions.
        query: query that retrieved them.
        candidates: n candidates.
        positions: (n,) positions in the collection.
        lexical: (n,) BM25 scores divided by the highest.
        dense: (n,) cosines with the query; 0 without vectors.
        fused: (n,) convex fusion of both, used for retrieval.
        ranks: (n, 3) ranks from 0 among the retrieved, by lexical, dense and fused score; an
            expanded candidate has the rank of its score.
        hops: (n,) links followed to reach it; 0 if retrieved.
        brought_by: (n,) index of the candidate that leads to it; −1 if retrieved.
        tokens: (n,) tokens per candidate.
        covered: (n, q) whether the text has each query term.
        in_title: (n, q) whether the title has each query term.
        scales: lowest and highest retrieved score of each engine: BM25, cosines.
        led: (n, n) links between candidates: bit 1, it names the other's title; bit 2, both name
            the same entity.
    """

    question: Question
    collection: Collection
    query: Query
    candidates: tuple[Candidate, ...]
    positions: NDArray[np.intp]
    lexical: Floats
    dense: Floats
    fused: Floats
    ranks: NDArray[np.int64]
    hops: NDArray[np.int64]
    brought_by: NDArray[np.int64]
    tokens: NDArray[np.int64]
    covered: NDArray[np.bool_]
    in_title: NDArray[np.bool_]
    led: NDArray[np.uint8]
    scales: tuple[tuple[float, float], ...] = ((0.0, 1.0), (0.0, 1.0))

    @classmethod
    def retrieved(cls, collection: Collection, question: Question, query: Query, size: int) -> Self:
        """Return the pool that both engines retrieve."""
        found = query.lexical.best(_ENGINES)
        scales = [_scale(found.scores), (0.0, 1.0)]
        if query.vector is not None and collection.vectors is not None:
            near = np.array(query.nearest, np.intp)
            meaning = Ranking(near, collection.vectors[near] @ query.vector)
            scales[1] = _scale(meaning.scores)
            found = convex(found, meaning)
        positions = found.first(size).positions
        pool = replace(cls._of(collection, question, query, positions), scales=tuple(scales))
        return pool.ranked() if len(positions) else pool

    @classmethod
    def _of(
        cls, collection: Collection, question: Question, query: Query, positions: NDArray[np.intp]
    ) -> Self:
        """Return a pool without fusion and ranks, which the caller sets."""
        lexical = query.lexical.at(positions)
        dense = np.zeros(len(positions))
        if query.vector is not None and collection.vectors is not None:
            dense = (collection.vectors[positions] @ query.vector).astype(np.float64)
        return cls(
            question=question,
            collection=collection,
            query=query,
            candidates=tuple(collection.candidates[position] for position in positions),
            positions=positions,
            lexical=lexical / max(query.lexical.highest, 1e-9),
            dense=dense,
            fused=np.zeros(len(positions)),
            ranks=np.zeros((len(positions), 3), np.int64),
            hops=np.zeros(len(positions), np.int64),
            brought_by=np.full(len(positions), -1, np.int64),
            tokens=collection.tokens[positions],
            covered=collection.terms.among(query.terms, positions),
            in_title=collection.title_terms.among(query.terms, positions),
            led=_led(collection, positions),
        )

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.candidates)

    @property
    def asked(self) -> str:
        """Stand-alone question text; in a conversation, the query."""
        return self.query.text if self.question.history else self.question.text

    @property
    def vectors(self) -> NDArray[np.float32] | None:
        """(n, size) unit vectors; None without an embedder."""
        rows = self.collection.vectors
        return None if rows is None else rows[self.positions]

    @property
    def title_sizes(self) -> NDArray[np.int64]:
        """(n,) number of stems per title, at least 1."""
        return self.collection.title_sizes[self.positions]

    @property
    def rarity(self) -> Floats:
        """(q,) rarity of each query term in the collection, > 0."""
        return self.collection.terms.rarity[self.query.terms]

    # -- growing ----------------------------------------------------------------------------------

    def neighbours(self, place: int) -> NDArray[np.intp]:
        """Return the positions that a candidate links to, title links first."""
        targets, kinds = self.collection.links.of(int(self.positions[place]))
        found = np.concatenate([targets[kinds == TITLE], targets[kinds != TITLE]])
        return np.array(list(dict.fromkeys(found.tolist())), np.intp)

    def leads_further(self, places: Iterable[int]) -> bool:
        """Return whether a candidate links to a passage outside the pool."""
        own = set(self.positions.tolist())
        return any(not own.issuperset(self.neighbours(place).tolist()) for place in places)

    def expanded(self, place: int, *, most: int = 20) -> Self:
        """Return the pool with the passages that one candidate links to."""
        own = set(self.positions.tolist())
        new = [one for one in self.neighbours(place).tolist() if one not in own]
        fresh = np.array(new[:most], np.intp)
        return self._grown(fresh, hops=int(self.hops[place]) + 1, brought_by=place)

    def including(self, positions: NDArray[np.intp]) -> Self:
        """Return the pool with added passages, each one link away from it."""
        fresh = positions[~np.isin(positions, self.positions)]
        return self._grown(fresh, hops=1, brought_by=-1)

    def _grown(self, fresh: NDArray[np.intp], *, hops: int, brought_by: int) -> Self:
        if not len(fresh):
            return self
        rows = self._of(self.collection, self.question, self.query, fresh)
        return self._with(
            replace(
                rows,
                hops=np.full(len(fresh), hops),
                brought_by=np.full(len(fresh), brought_by, np.int64),
            )
        )

    def _with(self, rows: Pool) -> Self:
        first = int(np.count_nonzero(self.hops == 0))
        fused = self._fuse(rows.lexical, rows.dense)
        ranks = np.stack(
            [
                np.searchsorted(np.sort(-own[:first]), -new)
                for own, new in zip(self._scores(), (rows.lexical, rows.dense, fused), strict=True)
            ],
            axis=1,
        )
        rows = replace(rows, fused=fused, ranks=ranks)
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(rows, name)])
            for name in (
                "positions", "lexical", "dense", "fused", "ranks", "hops", "brought_by",
                "tokens", "covered", "in_title",
            )
        }  # fmt: skip
        led = _led(self.collection, joined["positions"])
        return replace(self, candidates=self.candidates + rows.candidates, led=led, **joined)

    def _scores(self) -> tuple[Floats, Floats, Floats]:
        return self.lexical, self.dense, self.fused

    def _fuse(self, lexical: Floats, dense: Floats) -> Floats:
        """Return the convex fusion; a passage that an engine did not find has its lowest score."""
        best_word = max(self.query.lexical.highest, 1e-9)
        parts = [
            np.clip((scores - low) / max(high - low, 1e-9), 0.0, 1.0)
            for scores, (low, high) in zip((lexical * best_word, dense), self.scales, strict=True)
        ]
        fused: Floats = 0.5 * parts[0] + 0.5 * parts[1] * (self.query.vector is not None)
        return fused

    def ranked(self) -> Self:
        """Return the pool with fused scores and ranks, with all candidates as retrieved."""
        fused = self._fuse(self.lexical, self.dense)
        ranks = np.stack(
            [np.argsort(np.argsort(-one, kind="stable")) for one in (self.lexical, self.dense)]
            + [np.arange(len(self))],
            axis=1,
        )
        return replace(self, fused=fused, ranks=ranks)


def _scale(scores: NDArray[np.float32]) -> tuple[float, float]:
    return (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 1.0)


def _led(collection: Collection, positions: NDArray[np.intp]) -> NDArray[np.uint8]:
    """Return (n, n) link bits among passages."""
    links = collection.links
    starts, ends = links.starts[positions], links.starts[positions + 1]
    counts = ends - starts
    found = np.zeros((len(positions), len(positions)), np.uint8)
    if not counts.sum():
        return found
    owner = np.repeat(np.arange(len(positions)), counts)
    flat = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + starts[owner]
    order = np.argsort(positions)
    slot = np.minimum(np.searchsorted(positions, links.targets[flat], sorter=order), len(order) - 1)
    place = order[slot]
    hit = positions[place] == links.targets[flat]
    bits = np.where(links.kinds[flat] == TITLE, NAMES, SHARES).astype(np.uint8)
    np.bitwise_or.at(found, (owner[hit], place[hit]), bits[hit])
    return found
