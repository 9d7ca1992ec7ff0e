"""Result of an evaluation: one row per policy and question, with figures over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.evidence_selection.paired import mean_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.answer_model import ModelAnswer
    from steersman_systems.evidence_selection.environment import Selection
    from steersman_systems.evidence_selection.paired import Estimate
    from steersman_systems.evidence_selection.pool import Candidate, Pool

    Floats = NDArray[np.float64]

MEASURES = (
    "recall", "ndcg", "all_gold", "holds_answer", "redundancy", "repetition", "passages",
    "tokens", "latency_ms", "calls", "cost", "em", "f1", "answer_contained", "citation_accuracy",
    "attributed", "faithful", "unanswered",
)  # fmt: skip
"""recall, ndcg, all_gold: of the gold passages among those picked. holds_answer: whether a picked
passage holds a right answer. redundancy: how near each passage is to the nearest before it;
repetition: share of its runs of words said before. tokens: of the context. latency_ms: of selecting
alone. calls: searches and expansions; cost: calls × tokens. em, f1, answer_contained: of the answer
that a model gave from them. citation_accuracy: share of the passages it can be traced to that are
gold; attributed: whether any is. faithful: whether what was shown bears it out: by a judge, or,
without one, whether it stands there word for word. unanswered: whether the model was not asked, or
was away; such a question has no value of the answer, and no pair of it counts. NaN where a question
has none of it: no passage holds a yes or a no, and none can be traced."""


COUNTED = frozenset({"redundancy", "passages", "tokens", "latency_ms", "calls", "cost"})
"""Measures that are not shares: cosines, counts and times."""


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one question.

    Attributes:
        policy: its name.
        question: id of the question.
        group: its conversation, or the question's own id.
        fold: in which it was held out.
        selection: what was picked, with its steps.
        values: measure -> value; NaN where it has none.
        picked: the passages, in order.
        answered: what a model answered; None: it was not asked.
    """

    policy: str
    question: str
    group: str
    fold: int
    selection: Selection
    values: Mapping[str, float]
    picked: tuple[Candidate, ...] = field(repr=False)
    answered: ModelAnswer | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Evaluation:
    """All rows of one set.

    Attributes:
        name: of the set.
        pools: as they were retrieved, in the order of the questions.
        rows: policy -> one row a question, in that order.
        absent: policy -> why it did not take part.
        seed: of folds and draws.
    """

    name: str
    pools: tuple[Pool, ...] = field(repr=False)
    rows: Mapping[str, tuple[Row, ...]] = field(repr=False)
    absent: Mapping[str, str]
    seed: int

    def column(self, policy: str, measure: str) -> Floats:
        """Return (n,) a measure of a policy, question by question; NaN where it has none."""
        return np.array([row.values.get(measure, nan) for row in self.rows[policy]])

    def mean(self, policy: str, measure: str) -> Estimate:
        """Return a measure's mean with its interval."""
        column, within = self.column(policy, measure), _range_of(measure)
        return mean_of(column, self._groups(policy), within=within, seed=self.seed)

    def difference(self, policy: str, other: str, measure: str, *, family: int = 1) -> Estimate:
        """Return the mean of one policy less another's on the same questions, with its interval."""
        paired = self.column(policy, measure) - self.column(other, measure)
        within = None if (known := _range_of(measure)) is None else (-known[1], known[1])
        groups = self._groups(policy)
        return mean_of(paired, groups, family=family, within=within, seed=self.seed)

    def ceiling(self) -> tuple[float, int]:
        """Return the share of gold that is in the pools as retrieved, and how often some is not.

        What is not there cannot be picked without expanding.
        """
        shares = [
            len({*pool.question.gold} & {one.id for one in pool.candidates})
            / len(pool.question.gold)
            for pool in self.pools
            if pool.question.gold
        ]
        return (float(np.mean(shares)) if shares else nan, sum(one < 1.0 for one in shares))

    def _groups(self, policy: str) -> list[str]:
        return [row.group for row in self.rows[policy]]


def _range_of(measure: str) -> tuple[float, float] | None:
    return None if measure in COUNTED else (0.0, 1.0)
