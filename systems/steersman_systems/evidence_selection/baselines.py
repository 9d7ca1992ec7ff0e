"""Baseline selectors: rankings, MMR, a pointwise model, and the oracle (upper bound)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from steersman.errors import InputError
from steersman_systems.evidence_selection import features
from steersman_systems.evidence_selection.environment import EXPAND_ACTION, Environment, Selection
from steersman_systems.evidence_selection.experts import GoldExpert
from steersman_systems.evidence_selection.tasks import EvidenceTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.environment import State
    from steersman_systems.evidence_selection.pool import Pool

    Floats = NDArray[np.float64]

Ranking = Literal["lexical", "dense", "fused"]
LAMBDAS = (0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, slots=True)
class TopK:
    """Top of one ranking, in its order.

    Args:
        ranking: ``lexical`` (BM25), ``dense`` (cosine) or ``fused`` (both).
        environment: gives the limits; without expansion.

    Raises:
        InputError: unknown ranking.
    """

    ranking: Ranking = "fused"
    environment: Environment = field(default_factory=Environment)

    def __post_init__(self) -> None:
        if self.ranking not in {"lexical", "dense", "fused"}:
            raise InputError(f"ranking is {self.ranking!r}; allowed: lexical, dense, fused")

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"top-k, {self.ranking}"

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return the highest-ranked passages within the limits."""
        scores = {"lexical": pool.lexical, "dense": pool.dense, "fused": pool.fused}[self.ranking]
        return greedily(pool, self.environment, lambda _: (scores, self.ranking))


@dataclass(frozen=True, slots=True)
class Mmr:
    """Maximal marginal relevance: λ relevance − (1 − λ) largest cosine with a pick.

    Args:
        weight: λ, in [0, 1].
        environment: gives the limits; without expansion.

    Raises:
        InputError: λ is out of range.

    Source: Carbonell & Goldstein, The Use of MMR, Diversity-Based Reranking (1998).
    """

    weight: float = 0.6
    environment: Environment = field(default_factory=Environment)

    def __post_init__(self) -> None:
        # This form also refuses NaN.
        if not 0.0 <= self.weight <= 1.0:
            raise InputError(f"λ is {self.weight!r}; allowed: 0 to 1")

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"MMR, λ {self.weight:g}"

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return a selection."""
        return greedily(pool, self.environment, self._scores)

    def _scores(self, state: State) -> tuple[Floats, str]:
        pool, vectors = state.pool, state.pool.vectors
        if vectors is None or not state.picked:
            return pool.fused, "fused"
        near = (vectors @ vectors[list(state.picked)].T).max(axis=1)
        return self.weight * pool.fused - (1.0 - self.weight) * near, "marginal relevance"


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise:
    """Top by a scorer that scores all candidates once, in the first state.

    Args:
        scorer: scores rows of `features`.
        environment: gives the limits; without expansion.
        name: name in reports.
    """

    scorer: Scorer
    environment: Environment = field(default_factory=Environment)
    name: str = "pointwise"

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return the highest-scored passages within the limits."""
        if not len(pool):
            return Selection((), stopped="stop")
        rows = features.rows(self.environment.start(pool))[: len(pool)]
        scores = self.scorer.scores(rows)
        return greedily(pool, self.environment, lambda _: (scores, "score"))


@dataclass(frozen=True, slots=True)
class Oracle:
    """Greedy picks of gold passages, in the pool or linked from a gold pick.

    It never picks a bridge that is not gold, so other policies can do better; `ceiling` gives the
    upper bound.

    Args:
        environment: rules; the oracle expands if they allow it.
        name: name in reports.
    """

    environment: Environment = field(default_factory=Environment)
    name: str = "oracle"

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return a selection, completed by the highest fused scores."""
        task, expert = EvidenceTask(pool, self.environment), GoldExpert()
        standing, why = task.begin(), []
        while (options := task.options(standing)) is not None:
            labels = expert.labels(task, standing, options)
            places = standing.places
            if not labels.any():  # no gold is left: fill up by rank
                labels = np.where(places >= 0, standing.state.pool.fused[places], -1.0)
            place = int(labels.argmax())
            if places[place] != EXPAND_ACTION:
                why.append({"gold": float(labels[place])})
            standing = task.take(standing, place)
        state = standing.state
        ended = self.environment.legal(state).ended
        return Selection(
            tuple(state.pool.candidates[place].id for place in state.picked),
            why=tuple(why), stopped="stop" if standing.stopped or ended is None else ended,
            brought=tuple(one.id for one in state.pool.candidates[len(pool) :]),
        )  # fmt: skip


def greedily(
    pool: Pool, environment: Environment, scores: Callable[[State], tuple[Floats, str]]
) -> Selection:
    """Return the selection with the highest score at each step, without expansion."""
    rules = replace(environment, limits=replace(environment.limits, expanding="never"))
    state, why = rules.start(pool), []
    while (legal := rules.legal(state)).ended is None:
        values, called = scores(state)
        place = int(np.where(legal.picks, values, -np.inf).argmax())
        why.append({called: float(values[place])})
        state = rules.step(state, place)
    return Selection(
        tuple(pool.candidates[place].id for place in state.picked),
        why=tuple(why),
        stopped=legal.ended,
    )


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Upper bound on the gold that can be picked.

    Args:
        retrieved: share of the gold among the candidates.
        reachable: maximum share that any selector can pick: candidates, and passages few enough
            links away to follow within the picks.
        unknown: gold ids that are not in the collection.
    """

    retrieved: float
    reachable: float
    unknown: tuple[str, ...] = ()


def ceiling(pool: Pool, environment: Environment | None = None) -> Ceiling:
    """Return the share of a question's gold that can be picked from a pool.

    Raises:
        InputError: the question has no gold.
    """
    gold = set(pool.question.gold)
    if not gold:
        raise InputError(
            f"question {pool.question.id!r} has no gold passages, so it has no upper bound"
        )
    rules = environment or Environment()
    places = pool.collection.place_of
    wanted = {places[one] for one in gold if one in places}
    here = set(pool.positions.tolist())
    follows = 0 if rules.limits.expanding == "never" else rules.limits.picks - 1
    found = len(wanted & _within(pool, follows))
    return Ceiling(
        len(wanted & here) / len(gold), min(found, rules.limits.picks) / len(gold),
        tuple(sorted(gold - places.keys())),
    )  # fmt: skip


def _within(pool: Pool, links: int) -> set[int]:
    """Return the positions within a number of links."""
    found = set(pool.positions.tolist())
    edge = found
    for _ in range(links):
        edge = {
            int(one)
            for position in edge
            for one in pool.collection.links.of(position)[0]
        } - found  # fmt: skip
        found = found | edge
    return found
