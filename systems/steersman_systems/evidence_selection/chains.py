"""Credit assignment: from the passage with the answer to the passage that leads to it.

Feedback shows at best which passages contain an answer. Some contain its words by accident, and a
needed supporting passage contains none of them. Both follow from the relations between the passages
of all questions. The needed passages form a pair: a passage with the answer, and its support. A
model scores all pairs of a question; it is right as far as the first passage of its pair contains
an answer. Feedback on many questions teaches which words, links and similarities make a pair
likely. So the support of each answer is learned, although feedback never names it.
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
"""Columns of `features` that are looked at of either passage, as they stand before any pick."""
TOGETHER = (
    "covered", "covered_twice", "named", "named_alone", "names", "shares", "near", "beyond",
    "named_by_score", "names_by_score", "linked_covered",
)  # fmt: skip
"""What is looked at of both: the share of the question's terms that either has, and that both have;
whether the support names the answer's passage, and over how many it names; whether it is named by
it; whether both share a rare name; their cosine; what the answer's cosine with the question has
beyond that; the two links by the support's fused score and the answer's own; and the first where
there is any link."""
_TURNS = 1000
"""Of the fit at most, which settles after some tens: where it stops must not be what decides."""
_COLUMNS = [FEATURES.index(name) for name in ALONE]


@dataclass(frozen=True, slots=True)
class Chains:
    """Passes credit on along pairs of passages (see `training.raft`).

    Args:
        ridges: of the fit, falling, each > 0: a fit starts where the one before it ended. A
            likelihood of what is hidden has more than one top; coming from the strongest ridge
            leads to the same one every time.
        least: how surely a passage of a question must hold an answer for the model to be fitted to
            it, in (0, 1). For a question of which none does, such as one whose answer is yes, the
            model says by itself what is needed.
        most: passages of a question that are looked at, ≥ 2; those that rank highest, and those
            that may hold the answer.
        fitted: questions that the model is fitted to at most, ≥ 1, which bounds what is held in
            memory: of more, as many, evenly from first to last. It has some forty weights.

    Source: maximum marginal likelihood over what feedback leaves open, as Min et al., A Discrete
    Hard EM Approach for Weakly Supervised Question Answering (2019); finding the evidence of
    several hops by the answer alone: Zhao et al., Distantly-Supervised Evidence Retrieval Enables
    Question Answering without Evidence Annotation (2021).
    """

    ridges: tuple[float, ...] = (1.0, 0.1)
    least: float = 0.3
    most: int = 70
    fitted: int = 1_000

    def __call__(self, tasks: Sequence[EvidenceTask], causes: Credits) -> Credits:
        """Return how surely each passage is one of the two that its question needs."""
        asked = [task for task in tasks if task.id in causes]
        telling = [task for task in asked if _tells(task.pool, causes[task.id], self.least)]
        if not telling:
            return {}
        places = np.linspace(0, len(telling) - 1, min(self.fitted, len(telling))).round()
        chosen = {telling[place].id: telling[place] for place in places.astype(int).tolist()}
        pairs = {name: _pairs(task.pool, causes[name], self.most) for name, task in chosen.items()}
        model = _fitted(list(pairs.values()), self.ridges)
        needed = {}
        for task in asked:  # those that nothing was fitted to one by one, so that none is kept
            own = pairs.get(task.id) or _pairs(task.pool, causes[task.id], self.most)
            needed[task.id] = own.needed(model, self.least)
        return needed


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """All ordered pairs of a question's passages: one with the answer, and its support.

    A pair's row is what is seen of the first, of the second, and of both; only the last differs
    from pair to pair, so it alone is held for each.
    """

    names: Sequence[str]
    alone: Floats
    together: Floats
    answers: NDArray[np.intp]
    supports: NDArray[np.intp]
    holds: Floats

    @property
    def rows(self) -> Floats:
        """One for each pair; made again each time, as all of them would fill the memory."""
        alone = self.alone
        return np.concatenate([alone[self.answers], alone[self.supports], self.together], axis=1)

    def needed(self, model: _Model, least: float) -> dict[str, float]:
        """Return each passage's probability of being in the pair, by its name."""
        if not len(self.holds):  # a pair needs two passages
            return {}
        told = self.holds.max() >= least  # what never came out right says nothing of who holds
        right = model.prior(self.rows) * (self.holds if told else 1.0)
        chances = right / right.sum()
        count = len(self.names)
        found = np.bincount(self.answers, chances, count)
        found += np.bincount(self.supports, chances, count)
        return dict(zip(self.names, np.minimum(found, 1.0).tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """A log-linear model of which pair of a question is the one."""

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
    scale = np.where(spread > 1e-9, spread, np.inf)  # what never differs says nothing
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
    """Return −mean ln P(the pair's answer holds one) + ridge/2 |w|², and its gradient."""
    loss, slope = 0.5 * ridge * float(weights @ weights), ridge * weights
    for one in pairs:
        rows = (one.rows - mean) / scale
        prior = _softmax(rows @ weights)
        right = prior * one.holds
        total = max(float(right.sum()), 1e-300)
        loss -= np.log(total) / len(pairs)
        slope = slope - (right / total - prior) @ rows / len(pairs)
    return loss, slope


# -- what is seen of a pair -----------------------------------------------------------------------


def _tells(pool: Pool, causes: Mapping[str, float], least: float) -> bool:
    """Return whether a question has a pair, and a passage that is sure enough to hold an answer."""
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
    """Return (m, m, len(TOGETHER)): the first is the answer's passage, the second its support."""
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
