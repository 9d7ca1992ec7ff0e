"""Evaluation behind ``POST /tuner/evaluate``: ask questions, compare configurations, report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from steersman.wire import Refused
from steersman_systems.rag_tuner.comparison import compare
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.judged_collections import Question
from steersman_systems.rag_tuner.policy_config import PolicyConfig, load_policy_config
from steersman_systems.rag_tuner.reward import GATED
from steersman_systems.rag_tuner.service.messages import (
    AskedConfiguration,
    EvaluatedConfiguration,
    EvaluateRequest,
    Evaluation,
    ShownEstimate,
    Spent,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from steersman.providers.detectors.answer_review import FlaggedAnswer
    from steersman.retrieval.corpora_reader import OpenCorpus
    from steersman_systems.rag_tuner.comparison import Comparison, Estimate
    from steersman_systems.rag_tuner.service.fair_queue import Share, Slices
    from steersman_systems.rag_tuner.service.judged_comparison import Judgement

    Judging: TypeAlias = Callable[
        [Share, Sequence[Question], Sequence[Configuration], PolicyConfig], Judgement
    ]

_LISTED = 100
_TOGETHER = (
    "{count} configurations are compared with the first; the ahead_of_first intervals "
    "hold jointly at 95 % and treat penalties as constant"
)
_AWAY = (
    "for some questions a part of the search did not respond; they do not count for the "
    "configurations that need it"
)


class Found(NamedTuple):
    """Result of an evaluation.

    Attributes:
        answer: answer message.
        flagged: items for the review list.
        took_ms: durations of the queries of each evaluated configuration, (n,) in milliseconds.
    """

    answer: Evaluation
    flagged: Sequence[FlaggedAnswer] = ()
    took_ms: Sequence[NDArray[np.float64]] = ()


def evaluation(
    asked: EvaluateRequest,
    opened: OpenCorpus,
    slices: Slices,
    stop: threading.Event,
    judging: Judging | None = None,
) -> Found:
    """Evaluate configurations on a corpus.

    Args:
        judging: judge of answers; None: only passages are judged.

    Raises:
        Refused: no question can be answered from the corpus, or answers cannot be judged here.
        InputError: invalid question or configuration.
        DataError: a part of the search did not respond for any question, or the evaluation was
            stopped.
    """
    questions = _sliced(asked)
    known = {passage.doc_id for passage in opened.searcher.passages}
    missing = sorted({gold for one in questions for gold in one.gains} - known)
    findable = [one for one in questions if not known.isdisjoint(one.gains)]
    notes = _notes(asked.corpus, questions, findable, missing)
    if not findable:
        raise Refused.of("invalid", notes[0] + "; use documents of the corpus", field="questions")
    wanted = [_configuration(one) for one in asked.configurations]
    tuned = _tuned(asked)
    answer = Evaluation(
        *(asked.corpus, opened.loaded.place.revision, [], [], len(findable), missing[:_LISTED]),
        notes,
    )
    if len(wanted) > 2:
        notes.append(_TOGETHER.format(count=len(wanted) - 1))
    if judging is not None:
        return _judged(answer, asked, judging(slices.share(stop), findable, wanted, tuned))
    with slices.share(stop).turn() as turn:

        def next_turn() -> bool:
            turn.again()
            return stop.is_set()

        # A server is awaited without blocking others: seconds a question, if it is slow.
        served = is_served(opened)
        found = compare(
            *(opened.searcher, findable, wanted, tuned),
            stopped=next_turn,
            beside=turn.left if served else None,
        )
    if any(one.degraded for one in found):
        notes.append(_AWAY)
    notes.append("F and R are recall and nDCG of gold documents; no answers were written or judged")
    answer.measures = list(found[0].batch.measures)
    answer.configurations = [
        _shown(one, told) for one, told in zip(asked.configurations, found, strict=True)
    ]
    return Found(answer, took_ms=[one.batch.latency_ms for one in found])


def is_served(opened: OpenCorpus) -> bool:
    """Return whether the embedder of a corpus is a remote server."""
    return "://" in (opened.loaded.place.corpus.embedder or "")


def _judged(answer: Evaluation, asked: EvaluateRequest, told: Judgement) -> Found:
    if any(one.degraded for one in told.each):
        answer.notes.append(_AWAY)
    reasons = sorted({why for one in told.each for why in one.unjudged})
    if reasons:
        kept = "" if told.unstored else "; results so far are cached and not paid again"
        answer.notes.append(
            f"some answers were not judged ({', '.join(reasons)}) and do not count; send the "
            f"request again to continue{kept}"
        )
    if told.today:
        answer.notes.append(f"today's budget is too small to judge the rest: {told.today}")
    if told.unstored:
        answer.notes.append(
            f"{told.unstored} answers and judgements were not cached because space is short: a "
            "repeated request pays for them again; the operator can free space"
        )
    answer.notes.append(
        "models wrote and judged the answers; F and R exclude answers that could not be judged"
    )
    answer.measures = list(GATED)
    for one, of in zip(asked.configurations, told.each, strict=True):
        shown = (
            EvaluatedConfiguration(
                configuration=one, breaches=[], questions=0, degraded=of.degraded
            )
            if of.compared is None
            else _shown(one, of.compared, judged=True)
        )
        shown.unjudged = of.unjudged
        answer.configurations.append(shown)
    answer.spent = Spent(
        *told.by,
        calls=told.calls,
        cost_usd=told.cost_usd,
        paid_before=told.paid_before,
        flagged=len(told.flagged),
        filed=0,
    )
    took_ms = [one.compared.batch.latency_ms for one in told.each if one.compared is not None]
    return Found(answer, told.flagged, took_ms)


def _tuned(asked: EvaluateRequest) -> PolicyConfig:
    shipped, weights = load_policy_config(), asked.weights
    given = {name: getattr(weights, name) for name in weights.__struct_fields__}
    changed = shipped.reward_weights.model_copy(update=given)
    return shipped.model_copy(update={"reward_weights": changed})


def _sliced(asked: EvaluateRequest) -> list[Question]:
    every = [
        Question(f"q{place}", one.text, dict.fromkeys(one.gold, 1.0))
        for place, one in enumerate(asked.questions)
    ]
    if asked.slice is None or asked.slice.size >= len(every):
        return every
    drawn = np.random.default_rng(asked.slice.seed).permutation(len(every))[: asked.slice.size]
    return [every[place] for place in sorted(drawn.tolist())]


def _notes(
    corpus: str, asked: list[Question], findable: list[Question], missing: list[str]
) -> list[str]:
    notes = []
    without = len(asked) - len(findable)
    if without:
        notes.append(
            f"{without} of {len(asked)} questions have no gold document in {corpus!r} and are "
            "excluded"
        )
    if missing:
        shown = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
        notes.append(
            f"{len(missing)} gold ids are not in {corpus!r} ({shown:.300}); for questions with "
            "other gold documents they count as missed"
        )
    return notes


def _configuration(asked: AskedConfiguration) -> Configuration:
    parts = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return Configuration.of(parts).canonical()


def _shown(
    asked: AskedConfiguration, found: Comparison, *, judged: bool = False
) -> EvaluatedConfiguration:
    batch, took = found.batch, found.batch.latency_ms
    names = GATED if judged else ("faithfulness_proxy", "relevancy_proxy")
    shown = EvaluatedConfiguration(
        configuration=asked,
        coverage=found.reward.coverage if judged else None,
        latency=found.reward.latency,
        cost=found.reward.cost,
        penalty=found.reward.penalty,
        reward=_estimate(found.worth),
        breaches=list(found.reward.breaches),
        latency_p50_ms=float(np.quantile(took, 0.5)),
        latency_p95_ms=float(np.quantile(took, 0.95)),
        questions=len(batch),
        degraded=found.degraded,
        failed=int(batch.failed.sum()),
        violations=int(batch.violations.sum()),
        unstable=int(batch.unstable.sum()),
        ahead_of_first=_estimate(found.ahead),
    )
    for name, one in zip(names, found.quality, strict=True):
        setattr(shown, name, _estimate(one))
    return shown


def _estimate(found: Estimate | None) -> ShownEstimate | None:
    if found is None:
        return None
    if found.interval is None:
        return ShownEstimate(found.value)
    return ShownEstimate(found.value, found.interval.low, found.interval.high)
