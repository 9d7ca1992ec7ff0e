"""Comparison of configurations by judged answers, for ``POST /tuner/evaluate``.

Questions run in rounds: a few questions under every configuration, then the next few. When a budget
ends, all configurations have the same questions. Paid results are cached, so a repeated request
continues.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import DataError
from steersman.wire import Refused
from steersman_systems.rag_tuner.comparison import compared
from steersman_systems.rag_tuner.evaluator import LiveEvaluator
from steersman_systems.rag_tuner.limits import Limits
from steersman_systems.rag_tuner.reward import pooled
from steersman_systems.rag_tuner.service.evaluation import is_served

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.db.judge_cache import JudgeCache
    from steersman.providers.detectors.answer_review import FlaggedAnswer
    from steersman.providers.judges.relevancy import TextEmbedder
    from steersman.retrieval.corpora_reader import OpenCorpus
    from steersman.retrieval.embedders import Embedders
    from steersman_systems.rag_tuner.comparison import Comparison
    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.evaluator import EvaluationResult
    from steersman_systems.rag_tuner.judged_answers import Answers
    from steersman_systems.rag_tuner.judged_collections import Question
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.service.daily_budget import Purse
    from steersman_systems.rag_tuner.service.fair_queue import Share
    from steersman_systems.rag_tuner.service.messages import AskedAnswers
    from steersman_systems.rag_tuner.service.models import Models

_log = logging.getLogger(__name__)
_ROUND = 8
_WORKERS = 4
_EMBEDDER_S = 10.0


class JudgedOf(NamedTuple):
    """Result of one configuration.

    Attributes:
        compared: comparison with the first configuration; None: no evidence.
        unjudged: number of excluded questions by reason.
        degraded: number of questions excluded because a part of the search did not respond.
    """

    compared: Comparison | None
    unjudged: dict[str, int]
    degraded: int


class Judgement(NamedTuple):
    """Results of all configurations.

    Attributes:
        each: results in order.
        flagged: findings of detectors.
        cost_usd: cost of this request in US dollars.
        calls: model calls of this request.
        paid_before: number of questions from the cache.
        by: answering model, judging model, and embedder for relevancy.
        unstored: number of answers and judgements that did not fit into the cache.
        today: message if the daily limit leaves too little; "": enough is left.
    """

    each: list[JudgedOf]
    flagged: list[FlaggedAnswer]
    cost_usd: float
    calls: int
    paid_before: int
    by: tuple[str, str, str]
    unstored: int = 0
    today: str = ""


def judged(
    models: Models,
    tenant: UUID,
    opened: OpenCorpus,
    embedders: Embedders,
    asked: AskedAnswers,
    share: Share,
    questions: Sequence[Question],
    configurations: Sequence[Configuration],
    tuned: PolicyConfig,
) -> Judgement:
    """Evaluate configurations by judged answers.

    Args:
        share: share of a core, held for searches, detectors and embeddings, but not during model
            calls.

    Raises:
        Refused: no model, no embedder, unusable or deleted cache, or daily limit reached.
        InputError: invalid configuration.
        DataError: a detector is not installed, or the evaluation was stopped.
    """
    asked_for = models.budget(asked)
    name, embedder = embedder_of(opened, embedders)
    if not is_served(opened):
        embedder = _InTurns(embedder, share)
    kept = models.kept(tenant, opened)
    cost_ref_usd = tuned.thresholds.cost_ref_usd
    with models.daily.purse(tenant, *asked_for) as purse:
        answers = models.answers(asked, embedder, kept, cost_ref_usd=cost_ref_usd)
        evaluator = _evaluator(tenant, opened, answers, questions, kept, share, purse)
        rounds = _rounds(evaluator, configurations, len(questions), kept, models, purse)
    every = [one for found in rounds for one in found]
    today = _today(purse, every)
    return Judgement(
        _compared(rounds, tuned),
        _flagged(evaluator, every, tenant),
        sum(one.cost_usd for one in every),
        sum(one.calls for one in every),
        sum(one.paid_before for one in every),
        # A URL belongs to the operator; tenants must not see it.
        (*models.names, "served" if "://" in name else name),
        kept.unstored,
        today,
    )


def _evaluator(
    tenant: UUID,
    opened: OpenCorpus,
    answers: Answers,
    questions: Sequence[Question],
    kept: JudgeCache,
    share: Share,
    purse: Purse,
) -> LiveEvaluator:
    """Return the evaluator with the spending limit of the request."""
    place = opened.loaded.place
    return LiveEvaluator(
        opened.searcher,
        questions,
        revision=f"{tenant}/{place.corpus.name}@{place.revision}",
        answers=answers,
        kept=kept,
        limits=Limits(workers=_WORKERS, tries=2, max_cost_usd=purse.usd, max_calls=purse.calls),
        stopped=share.stop.is_set,
        core=share.turn,
        served=is_served(opened),
    )


def _flagged(
    evaluator: LiveEvaluator, every: Sequence[EvaluationResult], tenant: UUID
) -> list[FlaggedAnswer]:
    """Return the findings of detectors, without the tenant: the list belongs to the tenant."""
    found = [it for one in every for it in evaluator.flagged(one)]
    return [replace(it, subject=it.subject.replace(f"{tenant}/", "")) for it in found]


def _today(purse: Purse, every: Sequence[EvaluationResult]) -> str:
    """Return a message if the daily limit leaves too little; refuse if it left nothing."""
    ended = purse.ended
    if ended is None or not any("budget" in one.unjudged for one in every):
        return ""
    if not any(one.batch for one in every):
        raise ended
    return ended.problem.detail or ""


def _rounds(
    evaluator: LiveEvaluator,
    configurations: Sequence[Configuration],
    questions: int,
    kept: JudgeCache,
    models: Models,
    purse: Purse,
) -> list[list[EvaluationResult]]:
    """Return the results of each round under every configuration."""
    episode = evaluator.episode()
    rounds: list[list[EvaluationResult]] = [[] for _ in configurations]
    try:
        for begin in range(0, questions, _ROUND):
            some = np.arange(begin, min(begin + _ROUND, questions))
            for found, one in zip(rounds, configurations, strict=True):
                found.append(evaluator.measure(one, some, episode=episode))
                if episode is not None:
                    purse.spent_calls, purse.spent_usd = episode.calls, episode.cost_usd
                    models.daily.save(purse)
    except DataError as error:
        if str(kept.file) not in str(error):
            raise
        # For the server's log only; the file was most likely deleted after an erasure.
        _log.warning("%s", error)
        detail = "the cached answers were erased or cannot be read; try again"
        raise Refused.of("unavailable", detail, retry_after_s=1.0) from None
    finally:
        if episode is not None:
            purse.spent_calls, purse.spent_usd = episode.calls, episode.cost_usd
            models.spent(episode.calls, episode.cost_usd)
    return rounds


class _InTurns:
    """Local embedder that waits for its turn on the core."""

    def __init__(self, embedder: TextEmbedder, share: Share) -> None:
        self._embedder, self._share = embedder, share
        # The name is part of the storage key of judgements.
        self.name = getattr(embedder, "name", type(embedder).__qualname__)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._share.turn():
            return self._embedder.encode(texts)


def _compared(rounds: Sequence[Sequence[EvaluationResult]], tuned: PolicyConfig) -> list[JudgedOf]:
    batches = [[one.batch for one in found if one.batch is not None] for found in rounds]
    first = pooled(batches[0]) if batches[0] else None
    each = []
    for number, (found, some) in enumerate(zip(rounds, batches, strict=True)):
        degraded = sum(len(one.degraded) for one in found)
        unjudged: Counter[str] = Counter()
        for one in found:
            unjudged.update(one.unjudged)
        worth = (
            compared(
                *(pooled(some), tuned),
                degraded=degraded,
                first=first if number else None,
                family=len(rounds) - 1,
            )
            if some
            else None
        )
        each.append(JudgedOf(worth, dict(unjudged), degraded))
    return each


def embedder_of(opened: OpenCorpus, embedders: Embedders) -> tuple[str, TextEmbedder]:
    """Return the corpus's embedder, which measures relevancy, with its name.

    Raises:
        Refused: the corpus has no embedder.
        DataError: the embedder is still loading.
        BackendError: its server does not respond.
    """
    name = opened.loaded.place.corpus.embedder
    if not name:
        detail = (
            "judging answers needs a corpus with an embedder, and this corpus has none; create "
            "one with --embedder minilm, or leave answers out"
        )
        raise Refused.of("not_allowed", detail, field="answers")
    return name, embedders.get(name, wait_s=_EMBEDDER_S)
