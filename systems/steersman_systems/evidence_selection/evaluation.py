"""Result of an evaluation: one row per policy and question, with statistics."""

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
"""Measures of a selection; NaN if undefined.

recall, ndcg, all_gold: of gold among the picks. holds_answer: a pick contains a correct answer;
undefined for yes and no. redundancy: mean cosine with the nearest earlier pick. repetition: share
of repeated word runs. tokens: of the context. latency_ms: of selection only. calls: searches and
expansions. cost: calls × tokens. em, f1, answer_contained: of the model's answer.
citation_accuracy: share of gold among the passages that contain the answer. attributed: any of them
is gold. faithful: by a judge, or without one, a passage contains the answer word for word.
unanswered: the model was not called or not available; the question then has no answer measures and
is left out of pairs."""


COUNTED = frozenset({"redundancy", "passages", "tokens", "latency_ms", "calls", "cost"})
"""Measures other than shares: cosines, counts and times."""


@dataclass(frozen=True, slots=True)
class Row:
    """Result of one policy on one question.

    Attributes:
        policy: policy name.
        question: question id.
        group: its conversation, or the question's id.
        fold: fold in which it was held out.
        selection: picked passages and steps.
        values: measure -> value; NaN if undefined.
        picked: passages in order.
        answered: answer of the model; None without a model.
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
        name: name of the set.
        pools: retrieved candidates, in the order of the questions.
        rows: policy -> one row per question, in that order.
        absent: policy -> why it did not take part.
        seed: random seed of folds and draws.
    """

    name: str
    pools: tuple[Pool, ...] = field(repr=False)
    rows: Mapping[str, tuple[Row, ...]] = field(repr=False)
    absent: Mapping[str, str]
    seed: int

    def column(self, policy: str, measure: str) -> Floats:
        """Return (n,) a measure of a policy per question; NaN if undefined."""
        return np.array([row.values.get(measure, nan) for row in self.rows[policy]])

    def mean(self, policy: str, measure: str) -> Estimate:
        """Return the mean of a measure with its interval."""
        column, within = self.column(policy, measure), _range_of(measure)
        return mean_of(column, self._groups(policy), within=within, seed=self.seed)

    def difference(self, policy: str, other: str, measure: str, *, family: int = 1) -> Estimate:
        """Return the paired difference of two policies' means, with its interval."""
        paired = self.column(policy, measure) - self.column(other, measure)
        within = None if (known := _range_of(measure)) is None else (-known[1], known[1])
        groups = self._groups(policy)
        return mean_of(paired, groups, family=family, within=within, seed=self.seed)

    def ceiling(self) -> tuple[float, int]:
        """Return the share of gold among the retrieved candidates, and how often some is missing.

        A selector can pick missing gold only by expansion.
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
