"""The work behind ``POST /tuner/evaluate``: questions asked, configurations compared, gaps told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.retrieval import Question
from steersman.service.tuner_messages import (
    AskedConfiguration,
    EvaluatedConfiguration,
    EvaluateRequest,
    Evaluation,
    ShownEstimate,
)
from steersman.systems.rag_tuner import Configuration, Tuned, compare, load_policy_config
from steersman.wire import Refused

if TYPE_CHECKING:
    import threading

    from steersman.retrieval import Opened
    from steersman.systems.rag_tuner import Compared
    from steersman.systems.rag_tuner.comparing import Estimate

_LISTED = 100


def evaluation(asked: EvaluateRequest, opened: Opened, stop: threading.Event) -> Evaluation:
    """Return what configurations are worth on a corpus.

    Args:
        asked: by whom waits.
        opened: the corpus.
        stop: set it to begin no further question.

    Returns:
        The answer.

    Raises:
        Refused: no question can be answered from the corpus.
        InputError: a question or configuration that the searcher does not take.
        DataError: a part of the search was away for every question, or it was stopped.

    No doctest: it needs a corpus; ``tests/service/test_tuning.py`` shows it.
    """
    questions = _sliced(asked)
    known = {passage.doc_id for passage in opened.searcher.passages}
    missing = sorted({gold for one in questions for gold in one.gains} - known)
    findable = [one for one in questions if not known.isdisjoint(one.gains)]
    notes = _notes(asked.corpus, questions, findable, missing)
    if not findable:
        raise Refused.of("invalid", notes[0] + "; name documents of the corpus", field="questions")
    wanted = [_configuration(one) for one in asked.configurations]
    found = compare(opened.searcher, findable, wanted, _tuned(asked), stopped=stop.is_set)
    if any(one.degraded for one in found):
        notes.append(
            "for some questions a part of the search was away; they do not count for the "
            "configurations that need it"
        )
    notes.append("F and R are recall and nDCG of gold documents: no answer was written or judged")
    return Evaluation(
        asked.corpus,
        opened.loaded.place.revision,
        list(found[0].batch.measures),
        [_shown(one, told) for one, told in zip(asked.configurations, found, strict=True)],
        len(findable),
        missing[:_LISTED],
        notes,
    )


def _tuned(asked: EvaluateRequest) -> Tuned:
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
            f"{without} of {len(asked)} questions have no gold document in {corpus!r} and are left "
            "out: nothing could find it"
        )
    if missing:
        shown = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
        notes.append(
            f"{len(missing)} gold ids are no documents of {corpus!r} ({shown:.300}); where a "
            "question has others, they count as missed"
        )
    return notes


def _configuration(asked: AskedConfiguration) -> Configuration:
    parts = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return Configuration.of(parts).canonical()


def _shown(asked: AskedConfiguration, found: Compared) -> EvaluatedConfiguration:
    took = found.batch.latency_ms
    return EvaluatedConfiguration(
        configuration=asked,
        faithfulness_proxy=_estimate(found.quality[0]),
        relevancy_proxy=_estimate(found.quality[1]),
        latency=found.reward.latency,
        cost=found.reward.cost,
        penalty=found.reward.penalty,
        reward=_estimate(found.worth),
        breaches=list(found.reward.breaches),
        latency_p50_ms=float(np.quantile(took, 0.5)),
        latency_p95_ms=float(np.quantile(took, 0.95)),
        questions=len(found.batch),
        degraded=found.degraded,
        ahead_of_first=None if found.ahead is None else _estimate(found.ahead),
    )


def _estimate(found: Estimate) -> ShownEstimate:
    if found.interval is None:
        return ShownEstimate(found.value)
    return ShownEstimate(found.value, found.interval.low, found.interval.high)
