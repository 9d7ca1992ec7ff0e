"""Features of each action in a state: one row for every candidate, expand and stop.

All features are known before the answer: scores and ranks, position, new question words covered,
novelty, and links from picked passages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.evidence_selection.pool import NAMES, SHARES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.environment import State
    from steersman_systems.evidence_selection.pool import Pool

    Floats = NDArray[np.float64]

FEATURES = (
    "lexical", "dense", "fused", "lexical_rank", "dense_rank", "fused_rank", "position", "length",
    "topic", "title_overlap", "title_asked", "coverage", "hop", "named_by_leading",
    "names_leading", "fresh_coverage", "novelty", "near_last", "beyond", "named_by_selected",
    "named_by_last", "shares_name", "names_selected", "named_alone", "gap", "selected",
    "uncovered", "unfollowed", "is_expand", "is_stop",
)  # fmt: skip
"""Column names.

lexical, dense, fused: scores (BM25 over the highest, cosine, their fusion). lexical_rank,
dense_rank, fused_rank: ln(1 + rank). position: ln(1 + place in its document). length: ln(1 +
tokens). topic: cosine with the centroid of the top ten. title_overlap: share of the question's
terms in its title, by rarity. title_asked: share of its title in the question. coverage: as
title_overlap, for the whole passage. hop: links followed to it. named_by_leading: how many of the
top five name its title; names_leading: how many of the top ten it names. fresh_coverage: coverage
of terms that no pick has. novelty: 1 − the largest cosine with a pick. near_last: cosine with the
last pick. beyond: cosine with the question that the picks do not explain. named_by_selected,
shares_name, names_selected: number of picks that name it, share a rare name with it, are named by
it. named_by_last: whether the last pick names it. named_alone: one over the number of passages that
its namer names. gap: fused score below the best remaining. selected: number of picks. uncovered:
share of the question's terms that no pick has. unfollowed: picks that were not expanded. is_expand,
is_stop: the two actions without a passage."""
_PLACE = {name: place for place, name in enumerate(FEATURES)}
_STATE = ("selected", "uncovered", "unfollowed")
_LEADING, _TOPIC = 5, 10


def rows(state: State) -> Floats:
    """Return rows for all candidates of the state's pool, then expand and stop.

    Returns:
        (n + 2, len(FEATURES)) float64, all finite.
    """
    pool, picked = state.pool, list(state.picked)
    count = len(pool)
    found = np.zeros((count + 2, len(FEATURES)))
    columns = dict(zip(FEATURES, found[:count].T, strict=True))
    _alone(pool, columns)
    _words(pool, picked, columns)
    _meaning(pool, picked, columns)
    _links(pool, picked, columns)
    left = np.delete(pool.fused, picked)
    columns["gap"][:] = (left.max() if len(left) else 0.0) - pool.fused
    found[:, _PLACE["selected"]] = len(picked)
    found[:, _PLACE["unfollowed"]] = len(picked) - state.followed
    weights = pool.rarity
    nothing = np.logical_not(np.logical_or.reduce(pool.covered[picked], axis=0))[None]
    found[:, _PLACE["uncovered"]] = _share(nothing, weights)[0]
    found[count, _PLACE["is_expand"]] = found[count + 1, _PLACE["is_stop"]] = 1.0
    found[count:, _PLACE["gap"]] = left.max() if len(left) else 0.0
    return found


def _alone(pool: Pool, columns: dict[str, Floats]) -> None:
    """Return the features that are equal in every state."""
    for name, values in (("lexical", pool.lexical), ("dense", pool.dense), ("fused", pool.fused)):
        columns[name][:] = values
    for name, ranks in zip(("lexical_rank", "dense_rank", "fused_rank"), pool.ranks.T, strict=True):
        columns[name][:] = np.log1p(ranks)
    columns["position"][:] = np.log1p(pool.collection.places_in_document[pool.positions])
    columns["length"][:] = np.log1p(pool.tokens)
    columns["hop"][:] = pool.hops
    names = pool.led & NAMES
    columns["named_by_leading"][:] = names[:_LEADING].sum(axis=0)
    columns["names_leading"][:] = names[:, :_TOPIC].sum(axis=1)


def _words(pool: Pool, picked: list[int], columns: dict[str, Floats]) -> None:
    weights = pool.rarity
    columns["title_overlap"][:] = _share(pool.in_title, weights)
    columns["title_asked"][:] = pool.in_title.sum(axis=1) / pool.title_sizes
    columns["coverage"][:] = _share(pool.covered, weights)
    fresh = pool.covered & ~pool.covered[picked].any(axis=0)
    columns["fresh_coverage"][:] = _share(fresh, weights)


def _meaning(pool: Pool, picked: list[int], columns: dict[str, Floats]) -> None:
    vectors = pool.vectors
    columns["novelty"][:] = 1.0
    if vectors is None or not len(vectors):
        return
    centre = vectors[:_TOPIC].mean(axis=0)
    columns["topic"][:] = vectors @ (centre / max(float(np.linalg.norm(centre)), 1e-9))
    columns["beyond"][:] = pool.dense
    if picked:
        near = vectors @ vectors[picked].T
        columns["novelty"][:] = 1.0 - near.max(axis=1)
        columns["near_last"][:] = near[:, -1]
        columns["beyond"][:] = pool.dense - (near * pool.dense[picked]).max(axis=1)


def _links(pool: Pool, picked: list[int], columns: dict[str, Floats]) -> None:
    if not picked:
        return
    names = (pool.led & NAMES)[picked]
    columns["named_by_selected"][:] = names.sum(axis=0)
    columns["named_by_last"][:] = names[-1]
    columns["shares_name"][:] = (pool.led[picked] & SHARES).astype(np.bool_).sum(axis=0)
    columns["names_selected"][:] = (pool.led[:, picked] & NAMES).sum(axis=1)
    among = np.maximum(names.sum(axis=1, keepdims=True), 1)
    columns["named_alone"][:] = (names / among).max(axis=0)


def _share(which: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return (n,) the weighted share of terms; 0 if the collection has no term of the question."""
    total = float(weights.sum())
    shares: Floats = which @ weights / total if total > 0.0 else np.zeros(len(which))
    return shares
