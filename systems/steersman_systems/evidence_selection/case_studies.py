"""Case studies: single questions with picked and missed passages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.policies.sequence import EXPAND, STOP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman_systems.evidence_selection.environment import Selection
    from steersman_systems.evidence_selection.evaluation import Evaluation, Row
    from steersman_systems.evidence_selection.pool import Candidate

_EXCERPT = 220


@dataclass(frozen=True, slots=True)
class PickedPassage:
    """Passage that a policy picked.

    Attributes:
        title: title of the passage.
        excerpt: its beginning.
        gold: whether the answer needs it.
        brought: whether it was found by following a link.
        why: features that favoured it; "" if unknown.
    """

    title: str
    excerpt: str
    gold: bool
    brought: bool
    why: str


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """Result of one policy on a question.

    Attributes:
        policy: policy name.
        picked: passages in order.
        missed: titles of gold passages that it did not pick, and whether they were in reach.
        stopped: why it ended.
        answer: answer of the model; "" without a model.
    """

    policy: str
    picked: tuple[PickedPassage, ...]
    missed: tuple[str, ...]
    stopped: str
    answer: str


@dataclass(frozen=True, slots=True)
class CaseStudy:
    """Question with the results of several policies.

    Attributes:
        question: question text.
        answers: correct answers.
        kind: outcome: ``gained``, ``lost``, ``both missed`` or ``both found``.
        sides: one result per policy.
        searched: query text; "" if it is the question.
    """

    question: str
    answers: tuple[str, ...]
    kind: str
    sides: tuple[PolicyOutcome, ...]
    searched: str = ""


def case_studies(
    evaluation: Evaluation, baseline: str, policy: str, *, each: int = 2, seed: int = 0
) -> list[CaseStudy]:
    """Return random questions of every kind, losses included.

    Args:
        each: maximum number per kind, ≥ 1.

    Returns:
        At most 4 × `each`; () if no question has gold.
    """
    before, after = (evaluation.column(one, "all_gold") for one in (baseline, policy))
    kinds = {
        "gained": (before == 0) & (after == 1),
        "lost": (before == 1) & (after == 0),
        "both missed": (before == 0) & (after == 0),
        "both found": (before == 1) & (after == 1),
    }
    rng = np.random.default_rng([seed, 19])
    return [
        case_of(evaluation, int(place), (baseline, policy), kind)
        for kind, which in kinds.items()
        for place in np.sort(rng.permutation(np.flatnonzero(which))[:each])
    ]


def case_of(
    evaluation: Evaluation, place: int, policies: Sequence[str], kind: str = ""
) -> CaseStudy:
    """Return one question with the results of policies."""
    pool = evaluation.pools[place]
    question, query = pool.question, pool.query.text
    sides = tuple(_side(evaluation, place, evaluation.rows[one][place]) for one in policies)
    searched = query if query != question.text else ""
    return CaseStudy(question.text, question.answers, kind, sides, searched)


def reasons_of_picks(selection: Selection) -> list[Mapping[str, float]]:
    """Return the reasons of each pick, without those of expand and stop.

    >>> from steersman.policies.sequence import Step
    >>> from steersman_systems.evidence_selection.environment import Selection
    >>> steps = [Step((name, "stop"), name, 1.0) for name in ("a", "expand", "b", "stop")]
    >>> why = ({"fused": 0.9}, {"linked": 0.8}, {"fused": 0.7}, {})
    >>> reasons_of_picks(Selection(("a", "b"), tuple(steps), 1.0, why))
    [{'fused': 0.9}, {'fused': 0.7}]
    """
    if not selection.steps:
        return [*selection.why]
    told = zip(selection.steps, selection.why, strict=False)
    return [reasons for step, reasons in told if step.action not in (EXPAND, STOP)]


def _side(evaluation: Evaluation, place: int, row: Row) -> PolicyOutcome:
    pool = evaluation.pools[place]
    gold, there = set(pool.question.gold), {one.id for one in pool.candidates}
    brought, known = set(row.selection.brought), pool.collection.place_of
    why = [*reasons_of_picks(row.selection), *[{}] * len(row.picked)]
    missed = []
    for one in pool.question.gold:
        if one not in row.selection.picked:
            where = "among the candidates" if one in there else "not retrieved"
            title = pool.collection.candidates[known[one]].title if one in known else one
            missed.append(f"{title or one} ({where})")
    return PolicyOutcome(
        row.policy,
        tuple(
            PickedPassage(
                one.title, _excerpt(one), one.id in gold, one.id in brought, _told(reasons)
            )
            for one, reasons in zip(row.picked, why, strict=False)
        ),
        tuple(missed), row.selection.stopped, row.answered.text if row.answered else "",
    )  # fmt: skip


def _excerpt(one: Candidate) -> str:
    text = " ".join(one.text.split())
    return text if len(text) <= _EXCERPT else text[: text.rfind(" ", 0, _EXCERPT)] + " …"


def _told(reasons: object) -> str:
    named = reasons.items() if isinstance(reasons, dict) else ()
    return ", ".join(f"{name.replace('_', ' ')} {value:+.2f}" for name, value in named)
