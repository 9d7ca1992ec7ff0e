"""Evaluation of configurations on a real corpus, with rate limit, timeout and budget.

Results are stored at once, under everything they depend on: configuration, question, revision of
the corpus, embedder and reranker, answering model with prices, judge and measures. An answer is
stored by configuration, question and passages, so a revision that leaves these unchanged does not
pay again. A killed evaluation continues without paying twice. The store has measurements: seconds,
dollars, texts. Rewards and gates are recomputed when they are read.

A search without one of its parts, or an answer without a verdict, is not counted: it is retried,
then marked and left out.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from steersman.errors import DataError, InputError
from steersman.providers.detectors.answer_review import FlaggedAnswer, flagged
from steersman.providers.detectors.national_ids import PersonalData
from steersman.providers.judges.judge import Turns
from steersman.providers.prompts import is_readable
from steersman.providers.spending_limit import Rate
from steersman_systems.rag_tuner.judged_answers import AnswerResult
from steersman_systems.rag_tuner.limits import EvaluationQueue, Limits
from steersman_systems.rag_tuner.recorded import COST_K, MEASURES
from steersman_systems.rag_tuner.reward import GATED
from steersman_systems.rag_tuner.search_call import (
    PASSING,
    JudgedSearch,
    QueryResult,
    SearchCall,
    batch_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from steersman.db.judge_cache import JudgeCache
    from steersman.retrieval.searcher import Searcher
    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.judged_answers import Answers, Episode
    from steersman_systems.rag_tuner.judged_collections import Question
    from steersman_systems.rag_tuner.reward import Batch

# Version of the stored results. They depend on the tokeniser, which changed with 4. Answers are
# stored by their passages and were paid for, so they stay valid.
_TOLD, _ANSWER = 4, 3


@dataclass(frozen=True)
class EvaluationResult:
    """Result of an evaluation.

    Args:
        configuration: Evaluated configuration.
        batch: Results of the queries that count as evidence; None: no query does.
        told: Results of all queries, by query index.
        paid_before: Number of queries that were already stored.
        cost_usd: Cost of this evaluation in USD.
        calls: Model calls of this evaluation.
    """

    configuration: Configuration
    batch: Batch | None
    told: dict[int, QueryResult] = field(repr=False)
    paid_before: int
    cost_usd: float
    calls: int

    @property
    def degraded(self) -> tuple[int, ...]:
        """Indexes of the queries with an incomplete search."""
        return tuple(place for place, one in self.told.items() if one.degraded)

    @property
    def unjudged(self) -> dict[str, int]:
        """Number of unjudged queries by reason; a retry may judge them."""
        return dict(Counter(one.why for one in self.told.values() if one.why in PASSING))


class LiveEvaluator:
    """`Evaluator` that calls a searcher and, if given, an answering model; thread-safe.

    Without answers the two measures are recall@k and nDCG@min(k, 10) by the judged passages, and
    the cost is k/16, as in a recording. With answers the measures are faithfulness and relevancy,
    and latency and cost include search and answer.

    Args:
        searcher: Searcher over one revision of a corpus.
        questions: Questions that query indexes refer to; their gains name documents.
        revision: Name of the corpus and its revision; part of the storage key.
        answers: Answering model and judge; None: only passages are judged.
        kept: Store of results; None: results are not stored.
        limits: Limits of evaluations.
        reranker: Reranker for "rerank: on".
        stopped: Called before every query; True stops the evaluation.
        core: Context for local work: searches and detectors.
        served: True if the embedder is remote; its calls run outside `core`.
        clock: Monotonic clock in seconds.
        sleep: Waits a number of seconds.

    Raises:
        InputError: No question.
    """

    def __init__(
        self,
        searcher: Searcher,
        questions: Sequence[Question],
        *,
        revision: str,
        answers: Answers | None = None,
        kept: JudgeCache | None = None,
        limits: Limits | None = None,
        reranker: str = "cosine",
        stopped: Callable[[], bool] = lambda: False,
        core: Callable[[], AbstractContextManager[object]] = nullcontext,
        served: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not questions:
            raise InputError("no questions; give questions with known relevant passages")
        self.limits = limits or Limits()
        self._questions, self._revision = questions, revision
        self._answers, self._kept, self._stopped = answers, kept, stopped
        self._core = core
        self._asking = SearchCall(searcher, reranker, self.limits, sleep, core=core, served=served)
        self._by = [revision, searcher.embedder, reranker, "" if answers is None else answers.name]
        self._turns = Turns()
        self._rate = Rate(self.limits.queries_per_s, clock=clock, sleep=sleep)
        self._line = EvaluationQueue(self.limits.running, self.limits.waiting)

    @property
    def measures(self) -> tuple[str, str]:
        """Names of the two measures."""
        return MEASURES if self._answers is None else GATED

    def evaluate(self, configuration: Configuration, queries: NDArray[np.intp]) -> Batch:
        """Return the batch of a configuration on some queries; all must count as evidence.

        Args:
            queries: (n,) question indexes, n ≥ 1.

        Raises:
            DataError: For some queries a part of the search was unavailable, the judge was
                unavailable or refused, or the budget ended. Finished results are stored;
                evaluate again to continue.
            BackendUnavailableError: Too many evaluations wait already.
            InputError: The searcher has not what the configuration asks for.
        """
        found = self.measure(configuration, queries)
        unjudged, count = found.unjudged, len(found.told)
        unpaid = unjudged.pop("budget", 0)
        if found.degraded:
            parts = sorted({part for one in found.told.values() for part in one.degraded})
            raise DataError(
                f"{', '.join(parts)} was not available for {len(found.degraded)} of {count} "
                f"queries, so {configuration} has no result; check it and evaluate again: finished "
                "queries are stored"
            )
        if unjudged:
            reasons = ", ".join(f"{why} {many}" for why, many in sorted(unjudged.items()))
            raise DataError(
                f"{sum(unjudged.values())} of {count} answers have no verdict ({reasons}), so "
                f"{configuration} has no result; check the servers and keys of the answering model "
                "and the judge, and the embedder; then evaluate again: finished queries are stored"
            )
        if unpaid or found.batch is None:
            raise DataError(
                f"the budget of the evaluation is used up; {unpaid} of {count} queries "
                "are left; evaluate again to continue, or increase max_cost_usd or max_calls: "
                "finished queries are stored"
            )
        return found.batch

    def measure(
        self,
        configuration: Configuration,
        queries: NDArray[np.intp],
        *,
        episode: Episode | None = None,
    ) -> EvaluationResult:
        """Return the results of a configuration on some queries, complete or not.

        Args:
            queries: (n,) question indexes, n ≥ 1.
            episode: Episode with a shared budget; None: a separate budget.

        Raises:
            BackendUnavailableError: Too many evaluations wait already.
            InputError: The searcher has not what the configuration asks for.
            DataError: The store of results is damaged.
        """
        one = configuration.canonical()
        with self._line.turn():
            places = [int(place) for place in queries]
            known = {place: self._known(one, place) for place in dict.fromkeys(places)}
            episode = episode or self.episode()
            before = (0.0, 0) if episode is None else (episode.cost_usd, episode.calls)
            found = self._all(one, [place for place, it in known.items() if it is None], episode)
        told = {place: found[place][0] if it is None else it for place, it in known.items()}
        told = {place: self._valued(it, one) for place, it in told.items()}
        paid_now = sum(now for _, now in found.values())
        after = (0.0, 0) if episode is None else (episode.cost_usd, episode.calls)
        evidence = [place for place in places if told[place].is_evidence]
        batch = batch_of(one, told, evidence, self.measures) if evidence else None
        return EvaluationResult(
            one, batch, told, len(told) - paid_now, after[0] - before[0], after[1] - before[1]
        )

    def flagged(self, found: EvaluationResult) -> list[FlaggedAnswer]:
        """Return the answers that detectors flag, for the review list; personal data are masked."""
        if self._answers is None:
            return []
        personal, listed = PersonalData(), []
        for place, told in found.told.items():
            text = self._questions[place].text
            with self._core():
                found_in = self._answers.flags(told)
            of = hashlib.sha256(json.dumps([text, told.said]).encode()).hexdigest()[:16]
            subject = f"tuner/{self._revision}/{found.configuration}/{of}"
            listed += [flagged(flags, subject, text, told.said, personal) for flags in found_in]
        return listed

    def episode(self) -> Episode | None:
        """Return the answerer with the budget of one evaluation; None without answers.

        Raises:
            InputError: A cost limit is given without prices.
        """
        if self._answers is None:
            return None
        return self._answers.episode(
            max_cost_usd=self.limits.max_cost_usd, max_calls=self.limits.max_calls
        )

    def _all(
        self, configuration: Configuration, places: Sequence[int], episode: Episode | None
    ) -> dict[int, tuple[QueryResult, bool]]:
        """Evaluate queries concurrently; after an abort no further query starts."""
        if not places:
            return {}
        pool = ThreadPoolExecutor(min(self.limits.workers, len(places)), "evaluating")
        try:
            begun = {
                place: pool.submit(self._one, configuration, place, episode) for place in places
            }
            return {place: future.result() for place, future in begun.items()}
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _one(
        self, configuration: Configuration, place: int, episode: Episode | None
    ) -> tuple[QueryResult, bool]:
        """Return the result of a query, and whether it is new; other threads may be first."""
        key = self._key(configuration, place)
        with self._turns.alone(key):
            known = self._known(configuration, place)
            if known is not None:
                return known, False
            if episode is not None and episode.is_over:
                # Skip the search: its passages could not be answered from.
                return QueryResult((None, None), 0.0, why="budget"), True
            if episode is not None and not is_readable(self._questions[place].text):
                return QueryResult((None, None), 0.0, why="unreadable"), True
            self._rate.wait()
            if self._stopped():
                raise DataError(
                    "stopped before all queries were finished; evaluate again to continue: "
                    "finished queries are stored"
                )
            found = self._asking.ask(self._questions[place], configuration)
            told = found.told
            if episode is not None and not told.degraded and not told.failed:
                told = self._answered(configuration, place, found, episode)
            if told.is_whole and self._has_all_answers(told):
                # Another process may have been first: then its result counts.
                told = msgspec.json.decode(self._keep(key, _text(told)), type=QueryResult)
            return told, True

    def _answered(
        self, configuration: Configuration, place: int, found: JudgedSearch, episode: Episode
    ) -> QueryResult:
        """Answer a question from the found passages, repeat if configured, and judge."""
        assert self._answers is not None  # noqa: S101 (an episode is of answers)
        answers: list[AnswerResult] = []
        for number in range(self._answers.repeats):
            answers.append(self._said(configuration, place, found, episode, number))
            if answers[-1].text is None:
                break
        question = self._questions[place].text
        return episode.judged(question, found, answers[0], answers[1:])

    def _has_all_answers(self, told: QueryResult) -> bool:
        """Return whether a question without failure has all its repeated answers."""
        if self._answers is None or told.answer is None:
            return True
        return len(told.said) == self._answers.repeats

    def _said(
        self,
        configuration: Configuration,
        place: int,
        found: JudgedSearch,
        episode: Episode,
        number: int,
    ) -> AnswerResult:
        """Return the stored answer, or a new one."""
        assert self._answers is not None  # noqa: S101 (an episode is of answers)
        question, prompt = self._questions[place].text, configuration.prompt
        # Without the revision and the gold documents: they would cause a second payment.
        template = self._answers.prompts.get(prompt)
        parts = [_ANSWER, "answer", number, self._answers.writer, template, question]
        of = json.dumps([*parts, str(configuration), found.passages])
        key = hashlib.sha256(of.encode()).digest()
        said = self._get(key)
        if said is None:
            answered = episode.answer(question, found.passages, prompt)
            if answered.text is None:
                return answered
            said = self._keep(key, _text(answered))
        return msgspec.json.decode(said, type=AnswerResult)

    def _valued(self, told: QueryResult, configuration: Configuration) -> QueryResult:
        """Return a result with its current value."""
        if self._answers is None:
            return msgspec.structs.replace(told, cost=configuration.k / COST_K)
        with self._core():
            return self._answers.valued(told)

    # -- store -----------------------------------------------------------------------------

    def _known(self, configuration: Configuration, place: int) -> QueryResult | None:
        text = self._get(self._key(configuration, place))
        return None if text is None else msgspec.json.decode(text, type=QueryResult)

    def _get(self, key: bytes) -> str | None:
        return None if self._kept is None else self._kept.get(key)

    def _keep(self, key: bytes, text: str) -> str:
        return text if self._kept is None else self._kept.put(key, text)

    def _key(self, configuration: Configuration, place: int) -> bytes:
        question = self._questions[place]
        # The gold documents are part of the key only where passages are judged.
        right = [] if self._answers is not None else sorted(question.gains.items())
        parts = [_TOLD, "told", configuration.parts(), question.text, right, self._by]
        return hashlib.sha256(json.dumps(parts).encode()).digest()


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
