"""Credit assignment: from the passage with the answer to the passage that leads to it.

Feedback shows at best which passages contain an answer. Some contain its words by accident, and a
needed supporting passage contains none of them. A model learns both from the relations between
passages. The needed passages form a pair: a passage with the answer, and its support. The model
scores all pairs of a question; a pair is right if its first passage contains an answer. Feedback on
many questions teaches which words, links and similarities make a pair likely. So it also finds the
support, although feedback never names it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy

from steersman_systems.evidence_selection import features
from steersman_systems.evidence_selection.environment import State
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.pool import NAMES, SHARES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.pool import Pool
    from steersman_systems.evidence_selection.tasks import EvidenceTask

    Floats = NDArray[np.float64]
    Credits = dict[str, dict[str, float]]

_log = logging.getLogger(__name__)

ALONE = (
    "lexical", "dense", "fused", "lexical_rank", "dense_rank", "fused_rank", "length", "topic",
    "title_overlap", "title_asked", "coverage", "named_by_leading", "names_leading",
)  # fmt: skip
"""Columns of `features` for either passage, before any pick."""
TOGETHER = (
    "covered", "covered_twice", "named", "named_alone", "names", "shares", "near", "beyond",
    "named_by_score", "names_by_score", "linked_covered",
)  # fmt: skip
"""Features of both passages: share of the question's terms that either has, and that both have;
whether the support names the answer's passage, and that divided by all it names; whether it is
named by it; whether both share a rare name; their cosine; the answer's cosine with the question
beyond that; the two links times the support's fused score and the answer's; and the first where
there is any link."""
_TURNS = 1000
"""Iteration cap; the fit converges in some tens, so the cap does not decide."""
_COLUMNS = [FEATURES.index(name) for name in ALONE]


@dataclass(frozen=True, slots=True)
class Chains:
    """Passes credit along pairs of passages (see `training.raft`).

    Args:
        ridges: penalties of successive fits, falling, each > 0; each fit starts at the previous
            result. The likelihood has several maxima; this order always leads to the same one.
        least: minimum probability that a passage contains an answer, in (0, 1), to fit the model to
            its question. For other questions, such as those answered by yes, the model alone
            predicts what is needed.
        most: maximum passages per question, ≥ 2: those ranked highest and those that may contain
            the answer.
        fitted: maximum questions for the fit, ≥ 1, evenly spaced, to bound memory. The model has
            some forty weights.

    Source: maximum marginal likelihood over hidden pairs, as Min et al., A Discrete Hard EM
    Approach for Weakly Supervised Question Answering (2019); evidence of several hops from the
    answer alone: Zhao et al., Distantly-Supervised Evidence Retrieval Enables Question Answering
    without Evidence Annotation (2021).
    """

    ridges: tuple[float, ...] = (1.0, 0.1)
    least: float = 0.3
    most: int = 70
    fitted: int = 1_000

    def __call__(self, tasks: Sequence[EvidenceTask], causes: Credits) -> Credits:
        """Return each passage's probability of being one of the two needed."""
        asked = [task for task in tasks if task.id in causes]
        telling = [task for task in asked if _tells(task.pool, causes[task.id], self.least)]
        if not telling:
            return {}
        places = np.linspace(0, len(telling) - 1, min(self.fitted, len(telling))).round()
        chosen = {telling[place].id: telling[place] for place in places.astype(int).tolist()}
        pairs = {name: _pairs(task.pool, causes[name], self.most) for name, task in chosen.items()}
        model = _fitted(list(pairs.values()), self.ridges)
        needed = {}
        for task in asked:  # unfitted questions one by one, to bound memory
            own = pairs.get(task.id) or _pairs(task.pool, causes[task.id], self.most)
            needed[task.id] = own.needed(model, self.least)
        return needed


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """All ordered pairs of a question's passages: answer and support.

    A pair's row has features of the first, of the second, and of both. Only the last are stored per
    pair.
    """

    names: Sequence[str]
    alone: Floats
    together: Floats
    answers: NDArray[np.intp]
    supports: NDArray[np.intp]
    holds: Floats

    @property
    def rows(self) -> Floats:
        """(pairs, columns) features; computed each time to save memory."""
        alone = self.alone
        return np.concatenate([alone[self.answers], alone[self.supports], self.together], axis=1)

    def needed(self, model: _Model, least: float) -> dict[str, float]:
        """Return each passage's probability of being in the pair, by name."""
        if not len(self.holds):  # a pair needs two passages
            return {}
        told = self.holds.max() >= least  # without a success, `holds` has no information
        right = model.prior(self.rows) * (self.holds if told else 1.0)
        chances = right / right.sum()
        count = len(self.names)
        found = np.bincount(self.answers, chances, count)
        found += np.bincount(self.supports, chances, count)
        return dict(zip(self.names, np.minimum(found, 1.0).tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """Log-linear model of the needed pair of a question."""

    mean: Floats
    scale: Floats
    weights: Floats

    def prior(self, rows: Floats) -> Floats:
        return _softmax(((rows - self.mean) / self.scale) @ self.weights)


def _softmax(scores: Floats) -> Floats:
    masses = np.exp(scores - scores.max())
    shares: Floats = masses / masses.sum()
    return shares


def _fitted(pairs: Sequence[_Pairs], ridges: Sequence[float]) -> _Model:
    mean = np.mean([one.rows.mean(axis=0) for one in pairs], axis=0)
    spread = np.mean([((one.rows - mean) ** 2).mean(axis=0) for one in pairs], axis=0) ** 0.5
    scale = np.where(spread > 1e-9, spread, np.inf)  # a constant column has no information
    weights = np.zeros(len(mean))
    for ridge in ridges:
        found = scipy.optimize.minimize(
            _loss, weights, (pairs, mean, scale, ridge), jac=True, method="L-BFGS-B",
            options={"maxiter": _TURNS},
        )  # fmt: skip
        weights = found.x
        if not found.success:
            _log.warning("the fit of pairs did not settle (ridge %g): %s", ridge, found.message)
    return _Model(mean, scale, weights)


def _loss(
    weights: Floats, pairs: Sequence[_Pairs], mean: Floats, scale: Floats, ridge: float
) -> tuple[float, Floats]:
    """Return −mean ln P(the first passage contains an answer) + ridge/2 |w|², and its gradient."""
    loss, slope = 0.5 * ridge * float(weights @ weights), ridge * weights
    for one in pairs:
        rows = (one.rows - mean) / scale
        prior = _softmax(rows @ weights)
        right = prior * one.holds
        total = max(float(right.sum()), 1e-300)
        loss -= np.log(total) / len(pairs)
        slope = slope - (right / total - prior) @ rows / len(pairs)
    return loss, slope


# -- features of a pair ---------------------------------------------------------------------------


def _tells(pool: Pool, causes: Mapping[str, float], least: float) -> bool:
    """Return whether a question has a pair, and a passage with a probable enough answer."""
    known = [sure for name, sure in causes.items() if name in pool.collection.place_of]
    return len(known) > 1 and max(known) >= least


def _pairs(pool: Pool, causes: Mapping[str, float], most: int) -> _Pairs:
    place_of = pool.collection.place_of
    names = sorted(name for name in causes if name in place_of)
    wide = pool.including(np.array([place_of[name] for name in names], np.intp))
    at = {one.id: place for place, one in enumerate(wide.candidates)}
    places = np.array([at[name] for name in names], np.intp)
    holds = np.array([causes[name] for name in names], np.float64)
    kept = np.sort(np.argsort(-(wide.fused[places] + 2.0 * holds), kind="stable")[:most])
    names, places, holds = [names[one] for one in kept.tolist()], places[kept], holds[kept]
    alone = features.rows(State(wide))[places][:, _COLUMNS]
    answers, supports = np.nonzero(~np.eye(len(places), dtype=np.bool_))
    together = _together(wide, places)[answers, supports]
    return _Pairs(names, alone, together, answers, supports, holds[answers])


def _together(pool: Pool, places: NDArray[np.intp]) -> Floats:
    """Return (m, m, len(TOGETHER)) features; axis 0 is the answer's passage, axis 1 its support."""
    found = np.zeros((len(places), len(places), len(TOGETHER)))
    columns = dict(zip(TOGETHER, np.moveaxis(found, 2, 0), strict=True))
    terms, total = pool.covered[places], max(float(pool.rarity.sum()), 1e-9)
    columns["covered"][:] = (terms[:, None] | terms[None]) @ pool.rarity / total
    columns["covered_twice"][:] = (terms[:, None] & terms[None]) @ pool.rarity / total
    led = pool.led[np.ix_(places, places)]
    names = (led & NAMES).astype(np.float64)
    alone = names / np.maximum(names.sum(axis=1, keepdims=True), 1.0)
    columns["named"][:], columns["named_alone"][:], columns["names"][:] = names.T, alone.T, names
    columns["shares"][:] = (led & SHARES) > 0
    dense, fused, vectors = pool.dense[places], pool.fused[places], pool.vectors
    if vectors is not None:
        columns["near"][:] = vectors[places] @ vectors[places].T
    columns["beyond"][:] = dense[:, None] - columns["near"] * dense
    columns["named_by_score"][:] = names.T * fused
    columns["names_by_score"][:] = names * fused
    linked = np.maximum(np.maximum(names, names.T), columns["shares"])
    columns["linked_covered"][:] = linked * columns["covered"]
    return found
