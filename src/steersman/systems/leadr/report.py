"""Report of an evaluation: figures with intervals, ablations, case studies and gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.systems.leadr.baselines import ceiling
from steersman.systems.leadr.case_studies import case_studies
from steersman.systems.leadr.contenders import BASELINE, CLONE
from steersman.systems.leadr.environment import Environment, Limits
from steersman.systems.leadr.evaluation import MEASURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.systems.leadr.ablations import Ablated
    from steersman.systems.leadr.case_studies import Case
    from steersman.systems.leadr.evaluation import Evaluation
    from steersman.systems.leadr.form_trial import FormsCompared
    from steersman.systems.leadr.paired import Estimate

LESS_IS_BETTER = frozenset(
    {"redundancy", "repetition", "tokens", "latency_ms", "calls", "cost", "unanswered"}
)
NEUTRAL = frozenset({"passages"})
"""Neither more nor less of it is better."""

PUBLISHED = {
    "hotpotqa": {"HippoRAG 2": (83.5, 96.3), "NV-Embed-v2": (84.1, 94.5), "BM25": (57.3, 74.8)},
    "musique": {"HippoRAG 2": (56.1, 74.7), "NV-Embed-v2": (52.7, 69.7), "BM25": (32.4, 43.5)},
}
"""Set -> system -> recall@2 and recall@5, per cent.

Source: Gutiérrez et al., From RAG to Memory: Non-Parametric Continual Learning for Large Language
Models (HippoRAG 2, 2025), passage recall; recall@2 as Bai et al., AutoSchemaKG (2025), repeat it.
"""
DIFFERENCES = (
    "The published figures are of 1,000 questions over 9,811 (HotpotQA) and 11,656 (MuSiQue) "
    "passages with models of 7 to 70 billion parameters. Here up to 300 questions of the same "
    "sets, a third of them from the training part, are asked over some 7,400 and 7,300 passages: "
    "fewer distractors make finding easier, so the two do not compare as equals."
)

ABOUT_MEASURES = {
    "recall": "share of the gold passages that was picked",
    "ndcg": "the same, more for what is picked early",
    "all_gold": "whether all of them were",
    "holds_answer": "whether a picked passage holds a right answer, word for word",
    "redundancy": "how near each passage is to the nearest before it",
    "repetition": "share of the context's runs of four words that were said before in it",
    "passages": "that were picked",
    "tokens": "of the context",
    "latency_ms": "of selecting, without retrieving",
    "calls": "searches and followings of links",
    "cost": "calls × tokens",
    "em": "whether the model's answer is a right one",
    "f1": "words that the answer shares with the nearest right one",
    "answer_contained": "whether the answer holds a right one",
    "citation_accuracy": "share of the passages it can be traced to that are gold",
    "attributed": "whether any of them is",
    "faithful": "whether what was shown bears the answer out",
    "unanswered": "the model was not asked, or was away; counts in no figure of answers",
}
"""Measure -> what it is, for people."""
ABOUT_POLICIES = (
    "top-k: the best by one ranking. MMR: relevance against repetition, weighed by λ. pointwise: "
    "trees that know the gold of other questions and see each candidate by itself. +BC: trees that "
    "imitate, step by step, who knows the gold of other questions (behaviour cloning). +RAFT, "
    "+PPO: what learning from feedback alone, whether an answer is there, makes of the one before. "
    "oracle: knows the gold of this very question, and picks it first."
)


@dataclass(frozen=True)
class SetReport:
    """What is told of one set.

    Attributes:
        evaluation: its rows.
        measures: that have a value, in order.
        means: policy -> measure -> figure.
        ahead: policy -> measure -> figure less the baseline's, paired; as many as are compared with
            that one baseline are a family, whose intervals cover together.
        retrieval: recall@2 and recall@5 of the candidates as they were ranked.
        ceiling: share of the gold among the candidates, and questions that miss some.
        ceilings: share of the questions whose gold is all among the candidates, and with what
            links lead to from there, as far as it can all be picked; NaN where none has gold.
        left_out: passages of the collection that were not searched.
        note: what else must be known of the set to judge its figures; "" if nothing.
        cases: single questions.
        ablated: variants; () if none were tried.
        forms: of query; None for a set without conversations.
    """

    evaluation: Evaluation
    measures: tuple[str, ...]
    means: Mapping[str, Mapping[str, Estimate]]
    ahead: Mapping[str, Mapping[str, Estimate]]
    retrieval: Mapping[str, float]
    ceiling: tuple[float, int]
    ceilings: tuple[float, float] = (nan, nan)
    left_out: int = 0
    note: str = ""
    cases: tuple[Case, ...] = ()
    ablated: tuple[Ablated, ...] = field(default=())
    forms: FormsCompared | None = None


def set_report(
    evaluation: Evaluation,
    *,
    left_out: int = 0,
    note: str = "",
    ablated: Sequence[Ablated] = (),
    forms: FormsCompared | None = None,
    shown: str = CLONE,
) -> SetReport:
    """Return what is told of a set.

    Args:
        evaluation: its rows; the baseline is among them.
        left_out: passages that were not searched.
        note: as for `SetReport`.
        ablated: variants that were tried.
        forms: of query that were compared.
        shown: policy whose cases are told; the last that takes part, if it does not.
    """
    named = list(evaluation.rows)
    measures = tuple(
        one for one in MEASURES if any(np.isfinite(evaluation.column(p, one)).any() for p in named)
    )
    means = {p: {one: evaluation.mean(p, one) for one in measures} for p in named}
    compared = [p for p in named if p != BASELINE]
    ahead = {
        p: {one: evaluation.difference(p, BASELINE, one, family=len(compared)) for one in measures}
        for p in compared
    }
    other = shown if shown in evaluation.rows else named[-1]
    cases = case_studies(evaluation, BASELINE, other, seed=evaluation.seed)
    return SetReport(
        evaluation, measures, means, ahead, retrieved(evaluation), evaluation.ceiling(),
        ceilings(evaluation), left_out, note, tuple(cases), tuple(ablated), forms,
    )  # fmt: skip


def retrieved(evaluation: Evaluation) -> dict[str, float]:
    """Return recall@2 and recall@5 of the candidates in the order in which they were retrieved.

    Args:
        evaluation: any.

    Returns:
        Name -> share; none where no question has gold.
    """
    asked = [pool for pool in evaluation.pools if pool.question.gold]
    found = {}
    for count in (2, 5):
        shares = [
            len({one.id for one in pool.candidates[:count]} & {*pool.question.gold})
            / len(pool.question.gold)
            for pool in asked
        ]
        if shares:
            found[f"recall@{count}"] = float(np.mean(shares))
    return found


def ceilings(evaluation: Evaluation) -> tuple[float, float]:
    """Return for how many questions all gold could be picked, without links and with them.

    Without, what was retrieved can be picked; with them, also what is a few links from there, as
    many as the longest selection could follow. No more passages can be picked than that one has.

    Args:
        evaluation: any.

    Returns:
        Two shares of the questions with gold; NaN where there are none.
    """
    longest = max(len(row.picked) for rows in evaluation.rows.values() for row in rows)
    picks = min(max(longest, 1), 8)
    with_links = Environment(Limits(picks=picks, expanding="always"))
    without = Environment(Limits(picks=picks, expanding="never"))
    asked = [pool for pool in evaluation.pools if pool.question.gold]
    if not asked:
        return nan, nan
    whole = [[ceiling(pool, rules).reachable == 1.0 for pool in asked]
             for rules in (without, with_links)]  # fmt: skip
    return float(np.mean(whole[0])), float(np.mean(whole[1]))


def figures(reports: Sequence[SetReport]) -> dict[str, Estimate]:
    """Return every figure by a name of its own.

    Args:
        reports: of all sets.
    """
    found: dict[str, Estimate] = {}
    for report in reports:
        name = report.evaluation.name
        for policy, values in report.means.items():
            found |= {f"{name}/{policy}/{one}": value for one, value in values.items()}
        for policy, values in report.ahead.items():
            found |= {f"{name}/{policy} less {BASELINE}/{one}": v for one, v in values.items()}
        for one in report.ablated:
            if one.figure is not None:
                found[f"{name}/{one.part}: {one.variant}/all_gold"] = one.figure
            if one.ahead is not None:
                told = f"{name}/{one.part}: {one.variant} less {one.over}/all_gold"
                found[told] = one.ahead
        if report.forms is not None:
            forms = report.forms
            found |= {f"{name}/query form {form}/recall@5": v for form, v in forms.forms.items()}
            found[f"{name}/query form learned/recall@5"] = forms.learned
            found[f"{name}/query form learned less {forms.best}/recall@5"] = forms.ahead
    return found


def facts(reports: Sequence[SetReport]) -> dict[str, Any]:
    """Return what the page says, for programs; what is not known is None, with the reason.

    Args:
        reports: of all sets.
    """
    of_gold = {one.evaluation.name: _known(one.ceiling[0]) for one in reports}
    return {
        "figures": {name: _told(one) for name, one in figures(reports).items()},
        "retrieval": {one.evaluation.name: dict(one.retrieval) for one in reports},
        "ceiling": of_gold,
        "all_gold_retrieved": {one.evaluation.name: _known(one.ceilings[0]) for one in reports},
        "all_gold_in_reach": {one.evaluation.name: _known(one.ceilings[1]) for one in reports},
        "absent": {one.evaluation.name: dict(one.evaluation.absent) for one in reports},
        "passages_left_out": {one.evaluation.name: one.left_out for one in reports},
        "notes": {one.evaluation.name: one.note for one in reports if one.note},
        "unknown": {f"ceiling of {name}": "no question has gold passages"
                    for name, one in of_gold.items() if one is None},
    }  # fmt: skip


def _told(one: Estimate) -> dict[str, Any]:
    told: dict[str, Any] = {
        "value": _known(one.value), "low": _known(one.low), "high": _known(one.high),
        "questions": one.count, "family": one.family,
    }  # fmt: skip
    if not one.count:
        told["why"] = "no question has a value"
    elif told["low"] is None:
        told["why"] = "an interval takes two questions or conversations that have a value"
    return told


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
