"""Report of an evaluation: figures with intervals, ablations, case studies and gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman_systems.evidence_selection.baselines import ceiling
from steersman_systems.evidence_selection.case_studies import case_studies
from steersman_systems.evidence_selection.contenders import BASELINE, CLONE
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.evaluation import MEASURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman_systems.evidence_selection.ablations import AblationResult
    from steersman_systems.evidence_selection.case_studies import CaseStudy
    from steersman_systems.evidence_selection.evaluation import Evaluation
    from steersman_systems.evidence_selection.form_trial import FormComparison
    from steersman_systems.evidence_selection.paired import Estimate

LESS_IS_BETTER = frozenset(
    {"redundancy", "repetition", "tokens", "latency_ms", "calls", "cost", "unanswered"}
)
NEUTRAL = frozenset({"passages"})
"""Measures without a better direction."""

PUBLISHED = {
    "hotpotqa": {"HippoRAG 2": (83.5, 96.3), "NV-Embed-v2": (84.1, 94.5), "BM25": (57.3, 74.8)},
    "musique": {"HippoRAG 2": (56.1, 74.7), "NV-Embed-v2": (52.7, 69.7), "BM25": (32.4, 43.5)},
}
"""Set -> system -> recall@2 and recall@5, per cent.

Source: Gutiérrez et al., From RAG to Memory: Non-Parametric Continual Learning for Large Language
Models (HippoRAG 2, 2025), passage recall; recall@2 from Bai et al., AutoSchemaKG (2025)."""
DIFFERENCES = (
    "The published figures use 1,000 questions over 9,811 (HotpotQA) and 11,656 (MuSiQue) "
    "passages with models of 7 to 70 billion parameters. Here: up to 300 questions of the "
    "same sets, a third of them from the training part, over about 7,400 and 7,300 passages. Fewer "
    "distractors make the search easier, so the figures are not directly comparable."
)

ABOUT_MEASURES = {
    "recall": "share of the gold passages that are picked",
    "ndcg": "the same, with more weight on early picks",
    "all_gold": "1 if all gold passages are picked",
    "holds_answer": "1 if a picked passage contains a right answer, word for word",
    "redundancy": "mean similarity of each passage to the nearest earlier one",
    "repetition": "share of repeated four-word sequences in the context",
    "passages": "number of picked passages",
    "tokens": "tokens of the context",
    "latency_ms": "time of the selection, without retrieval",
    "calls": "number of searches and link expansions",
    "cost": "calls × tokens",
    "em": "1 if the model's answer is a right one",
    "f1": "word overlap (F1) with the nearest right answer",
    "answer_contained": "1 if the answer contains a right one",
    "citation_accuracy": "share of gold passages among those that support the answer",
    "attributed": "1 if a gold passage supports the answer",
    "faithful": "1 if the context supports the answer",
    "unanswered": "no answer from the model; not part of the figures on answers",
}
"""Description of each measure."""
ABOUT_POLICIES = (
    "top-k: the best by one ranking. MMR: relevance minus redundancy, with weight λ. pointwise: "
    "trees trained on gold passages of other questions, which score each candidate separately. "
    "+BC: trees that imitate an expert with the gold passages of other questions (behaviour "
    "cloning). +RAFT, +PPO: the previous policy, improved with feedback only (is an answer in the "
    "passages?). oracle: picks the gold passages first (upper bound)."
)


@dataclass(frozen=True)
class SetReport:
    """Report of one set.

    Attributes:
        evaluation: rows of the evaluation.
        measures: measures with a value, in order.
        means: policy -> measure -> figure.
        ahead: policy -> measure -> paired difference to the baseline; these comparisons are one
            family with simultaneous intervals.
        retrieval: recall@2 and recall@5 of the ranked candidates.
        ceiling: share of the gold among the candidates, and number of questions that miss some.
        ceilings: share of questions whose gold can all be picked, without and with links; NaN
            without gold.
        left_out: passages of the collection that were not searched.
        note: further limits of the figures; "" for none.
        cases: case studies.
        ablated: ablations; () for none.
        forms: comparison of query forms; None without conversations.
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
    cases: tuple[CaseStudy, ...] = ()
    ablated: tuple[AblationResult, ...] = field(default=())
    forms: FormComparison | None = None


def set_report(
    evaluation: Evaluation,
    *,
    left_out: int = 0,
    note: str = "",
    ablated: Sequence[AblationResult] = (),
    forms: FormComparison | None = None,
    shown: str = CLONE,
) -> SetReport:
    """Return the report of a set.

    Args:
        shown: policy of the case studies; default: the last.
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
    """Return recall@2 and recall@5 of the candidates in retrieved order.

    Returns:
        Name -> share; {} if no question has gold.
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
    """Return the shares of questions whose gold can all be picked, without and with links.

    With links, passages count that are at most as many links away as the longest selection can
    follow. The pick limit applies to both.

    Returns:
        Two shares of the questions with gold; NaN without any.
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
    """Return every figure by a unique name."""
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
    """Return the contents of the page as JSON data; unknown values are None, with a reason."""
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
