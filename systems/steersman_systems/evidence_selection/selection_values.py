"""Values of a selection: measures of its passages, and the model's answer from them."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from steersman.policies.sequence import EXPAND
from steersman.providers.judges.scores import Case
from steersman_systems.evidence_selection import answers, measures
from steersman_systems.evidence_selection.evaluation import Row
from steersman_systems.rag_tuner.ranking_metrics import all_gold_at, ndcg_at, recall_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.providers.judges.judge import Measure
    from steersman_systems.evidence_selection.answer_model import Answerer, ModelAnswer
    from steersman_systems.evidence_selection.environment import Selection
    from steersman_systems.evidence_selection.pool import Candidate, Pool


@dataclass(frozen=True, slots=True)
class SelectionMeasures:
    """Measures the picked passages and the model's answer from them.

    Args:
        answerer: answers questions from the picked passages; None: no answers.
        judge: faithfulness of an answer; None: whether the passages contain it.
    """

    answerer: Answerer | None
    judge: Measure | None

    def row(
        self, policy: str, pool: Pool, selection: Selection, took_ms: float, group: str, fold: int
    ) -> Row:
        """Return the row of one selection.

        Raises:
            DataError: the cache of answers is damaged.
        """
        picked = tuple(_candidate(pool, one) for one in selection.picked)
        values = _selected(pool, selection, picked) | {"latency_ms": took_ms}
        answered = None
        if self.answerer is not None:
            answered = self.answerer(pool.asked, picked)
            values |= _answered(pool, answered, self.judge)
        return Row(
            policy, pool.question.id, group, fold, selection, values,
            picked=picked, answered=answered,
        )  # fmt: skip


def _candidate(pool: Pool, name: str) -> Candidate:
    return pool.collection.candidates[pool.collection.place_of[name]]


def _selected(pool: Pool, selection: Selection, picked: Sequence[Candidate]) -> dict[str, float]:
    question = pool.question
    positions = [one.position for one in picked]
    vectors = pool.collection.vectors
    texts = [f"{one.title} {one.text}" for one in picked]
    tokens = float(pool.collection.tokens[positions].sum()) if positions else 0.0
    expansions = sum(step.action == EXPAND for step in selection.steps)
    # Without the action expand, every followed pick counts as an expansion.
    calls = 1.0 + (expansions or len(picked) * bool(selection.brought))
    found = {
        "redundancy": (
            measures.word_redundancy(texts)
            if vectors is None
            else measures.redundancy(vectors[positions])
        ),
        "repetition": measures.repetition(texts),
        "passages": float(len(picked)),
        "tokens": tokens,
        "calls": calls,
        "cost": calls * tokens,
    }
    if held := answers.in_words(question.answers):
        found["holds_answer"] = float(any(answers.contains(text, held) for text in texts))
    return found | _gold(selection.picked, question.gold)


def _gold(picked: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    if not gold:
        return {}
    gains, places = dict.fromkeys(gold, 1.0), max(len(picked), 1)
    return {
        "recall": recall_at(picked, gains, places),
        "ndcg": ndcg_at(picked, gains, max(places, len(gold))),
        "all_gold": all_gold_at(picked, gains, places),
    }


def _answered(pool: Pool, answered: ModelAnswer, judge: Measure | None) -> dict[str, float]:
    if answered.missing:
        return {"unanswered": 1.0}
    question, text = pool.question, answered.text
    citations = measures.cited(text, dict(answered.shown))
    found = {"unanswered": 0.0}
    traceable = not question.answers or bool(answers.in_words(question.answers))
    if traceable or judge is not None:
        found["faithful"] = _faithful(pool.asked, answered, citations, judge)
    if question.gold and traceable:
        found["citation_accuracy"] = measures.citation_accuracy(citations, question.gold)
        found["attributed"] = measures.attributed(citations, question.gold)
    if question.answers:
        found["em"] = answers.exact_match(text, question.answers)
        found["f1"] = answers.f1(text, question.answers)
        found["answer_contained"] = float(answers.contains(text, question.answers))
    return found


def _faithful(
    question: str, answered: ModelAnswer, citations: Iterable[str], judge: Measure | None
) -> float:
    if judge is None:
        return float(any(True for _ in citations))
    value = judge(Case(question, answered.text, tuple(text for _, text in answered.shown))).value
    return nan if value is None else value
