"""Answers to questions from retrieved passages, with the verdicts of a judge."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from steersman.errors import (
    BackendAnswerError,
    BackendError,
    BackendUnavailableError,
    BudgetError,
    InputError,
)
from steersman.providers.backend import MAX_PROMPT_CHARACTERS, Completion, MeteredBackend
from steersman.providers.judges.judge import Judge
from steersman.providers.judges.scores import Case, Tally
from steersman.providers.prompts import is_readable
from steersman.providers.spending_limit import Budget, Prices, Rate
from steersman_systems.rag_tuner.search_call import PASSING, QueryResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from steersman.db.judge_cache import JudgeCache
    from steersman.providers.backend import Backend
    from steersman.providers.detectors.answer_review import Instability
    from steersman.providers.detectors.flags import Detector, Flag
    from steersman.providers.judges.judge import Measure, Retry
    from steersman_systems.rag_tuner.search_call import JudgedSearch

PROMPTS: Mapping[str, str] = {
    "plain": (
        "Answer the question from the passages alone, in one to three sentences. If they do not "
        "answer it, say so.\n\nPASSAGES\n{passages}\n\nQUESTION\n{question}\n\nANSWER\n"
    ),
    "cited": (
        "Answer the question from the passages alone, in one to three sentences, and put the "
        "number of the passage behind every statement, such as [2]. If they do not answer it, say "
        "so.\n\nPASSAGES\n{passages}\n\nQUESTION\n{question}\n\nANSWER\n"
    ),
}
"""Prompt templates by id."""
_log = logging.getLogger(__name__)
_VERSION = "answer/1"
_PLACE = re.compile(r"\{(passages|question)\}")


class AnswerResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer to one question.

    Attributes:
        text: Text of the answer; None: no answer.
        latency_ms: Latency of all tries in milliseconds, without the wait in the queue.
        cost_usd: Cost of all tries in USD.
        why: Reason why the answer is missing.
    """

    text: str | None
    latency_ms: float = 0.0
    cost_usd: float = 0.0
    why: str = ""


class Answers:
    """A model that answers, and the judge of its answers.

    Args:
        backend: Answering model.
        measures: Returns the two measures of a judge: faithfulness and relevancy. The ``name`` and
            ``version`` of a measure are part of the storage key.
        judge_backend: Judging model; None: the answering model.
        cache: Cache of judgements; None: no cache.
        prices: Prices of both models; None: free.
        rate: Rate limit for calls of both models; None: no limit.
        retry: Retry policy for a busy server; None: five tries.
        timeout_s: Timeout of one call in seconds.
        max_tokens: Maximum length of an answer in tokens, ≥ 1.
        prompts: Templates by id, with ``{passages}`` and ``{question}``.
        detectors: Detectors of forbidden content; a finding makes the answer a violation.
        instability: Detector of answers that differ too much; None: one answer per question.
        repeats: Number of answers per question with `instability`, 2 to 10. Verdict, latency and
            cost are those of the first.
        cost_ref_usd: Unit of cost in USD per query, > 0.
        clock: Monotonic clock in seconds.

    Raises:
        InputError: Other than two measures, `cost_ref_usd` is not above 0, or `repeats` is out of
            range.
    """

    def __init__(
        self,
        backend: Backend,
        measures: Callable[[Judge], Sequence[Measure]],
        *,
        judge_backend: Backend | None = None,
        cache: JudgeCache | None = None,
        prices: Prices | None = None,
        rate: Rate | None = None,
        retry: Retry | None = None,
        timeout_s: float = 60.0,
        max_tokens: int = 256,
        prompts: Mapping[str, str] = PROMPTS,
        detectors: Sequence[Detector] = (),
        instability: Instability | None = None,
        repeats: int = 3,
        cost_ref_usd: float = 1.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend, self._judge_backend = backend, judge_backend or backend
        self.measures, self.cache = measures, cache
        self.prices, self.rate, self.retry = prices or Prices(), rate, retry
        self.timeout_s, self.max_tokens, self.prompts = timeout_s, max_tokens, prompts
        self.cost_ref_usd, self.clock = cost_ref_usd, clock
        self.detectors, self.instability = tuple(detectors), instability
        self.repeats = 1 if instability is None else repeats
        if instability is not None and not 2 <= repeats <= 10:
            raise InputError(f"repeats is {repeats!r}; allowed: 2 to 10")
        if not cost_ref_usd > 0.0:
            raise InputError(f"cost_ref_usd is {cost_ref_usd!r}; allowed: above 0")
        named = list(measures(Judge(self._judge_backend)))
        if len(named) != 2:
            raise InputError(f"{len(named)} measures; expected two")
        self._measured = [(one.name, str(getattr(one, "version", ""))) for one in named]

    @property
    def name(self) -> str:
        """Answering model with prices, and judge with measures: part of the storage key."""
        parts = [
            self._backend.name,
            self._judge_backend.name,
            self.max_tokens,
            _VERSION,
            sorted(self.prompts.items()),
            self._measured,
            [self.prices.prompt_usd, self.prices.answer_usd, self.prices.call_usd],
            *([self.repeats] if self.repeats > 1 else []),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def writer(self) -> str:
        """Answering model with prices: part of the storage key of answers."""
        prices = [self.prices.prompt_usd, self.prices.answer_usd, self.prices.call_usd]
        parts = [self._backend.name, self.max_tokens, _VERSION, prices]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def valued(self, told: QueryResult) -> QueryResult:
        """Return a result with its cost and the detectors' current findings."""
        flags = self.flags(told)
        differs = "" if self.instability is None else self.instability.name
        return msgspec.structs.replace(
            told,
            cost=told.cost_usd / self.cost_ref_usd,
            violation=any(one[0].detector != differs for one in flags),
            unstable=any(one[0].detector == differs for one in flags),
        )

    def flags(self, told: QueryResult) -> list[tuple[Flag, ...]]:
        """Return the findings in the answers to a query, one tuple per detector."""
        found = [
            tuple(flag for answer in told.said for flag in one.detect(answer))
            for one in self.detectors
        ]
        if self.instability is not None and len(told.said) > 1:
            found.append(self.instability.detect_among(told.said))
        return [one for one in found if one]

    def episode(self, *, max_cost_usd: float | None, max_calls: int | None) -> Episode:
        """Return an answerer and judge with a separate budget.

        Args:
            max_cost_usd: Spending limit in USD; None: no limit.
            max_calls: Limit of model calls; None: no limit.

        Raises:
            InputError: A spending limit is given without prices.
        """
        budget = Budget(max_cost_usd=max_cost_usd, max_calls=max_calls, prices=self.prices)
        meter = _Meter(self._backend, self.prices, self.clock)
        rate = self.rate or Rate()
        writer, judge = (
            Judge(
                backend,
                cache=cache,
                budget=budget,
                rate=own,
                retry=self.retry,
                timeout_s=self.timeout_s,
            )
            for backend, cache, own in (
                (meter, None, _Pauses(rate, meter)),
                (self._judge_backend, self.cache, rate),
            )
        )
        return Episode(self, writer, judge, meter)


class Episode:
    """Answerer and judge with a shared budget; thread-safe.

    Args:
        answers: Settings.
        writer: Calls the answering model.
        judge: Calls the judging model.
        meter: Measures the writer's calls.
    """

    def __init__(self, answers: Answers, writer: Judge, judge: Judge, meter: _Meter) -> None:
        self._answers, self._writer, self._meter = answers, writer, meter
        self._budget = judge.budget
        self._measures = list(answers.measures(judge))
        self._over, self._is_told = threading.Event(), False

    @property
    def cost_usd(self) -> float:
        """Cost so far in USD."""
        return self._budget.cost_usd

    @property
    def calls(self) -> int:
        """Number of model calls so far."""
        return self._budget.calls

    @property
    def is_over(self) -> bool:
        """Whether the budget has refused a call."""
        return self._over.is_set()

    def answer(self, question: str, passages: Sequence[str], prompt: str) -> AnswerResult:
        """Return the answer to a question.

        Returns:
            The answer, or why it is missing: ``budget``; ``model``, unavailable or with an invalid
            answer; ``unreadable``, half a character in the question or a passage; or the
            model's error for this prompt: refused or timeout.

        Raises:
            InputError: Unknown template, or a setting that the model does not support.
        """
        template = self._answers.prompts.get(prompt)
        if template is None:
            known = ", ".join(self._answers.prompts)
            raise InputError(f"prompt is {prompt!r}; allowed: {known}; declare the template")
        listed = "\n\n".join(f"[{n}] {text}" for n, text in enumerate(passages, 1))
        given = {"passages": listed, "question": question}
        # In one pass, so that placeholders inside a passage or a question are not replaced.
        text = _PLACE.sub(lambda place: given[place[1]], template)
        if not is_readable(text):
            return AnswerResult(None, why="unreadable")
        self._meter.begin()
        limit = self._answers.max_tokens
        try:
            said = self._writer.ask(text, max_tokens=limit, version=_VERSION, tally=Tally())
        except BudgetError:
            self._over.set()
            return AnswerResult(None, why="budget")
        except InputError as error:
            if len(text) <= MAX_PROMPT_CHARACTERS:  # the model would refuse every prompt
                raise
            return AnswerResult(None, why=f"{type(error).__name__}: {error}")
        except BackendError as error:
            # An outage of the shared model must not count against one configuration.
            why = "model" if self._is_away(error) else f"{type(error).__name__}: {error}"
            return AnswerResult(None, 1e3 * self._meter.seconds, self._meter.cost_usd, why)
        return AnswerResult(said, 1e3 * self._meter.seconds, self._meter.cost_usd)

    def _is_away(self, error: BackendError) -> bool:
        """Return whether the model was unavailable for any prompt; logs the first reason."""
        if self._meter.away and not self._is_told:
            self._is_told = True
            _log.warning("the model that answers is away: %s", error)
        return self._meter.away

    def judged(
        self,
        question: str,
        found: JudgedSearch,
        answered: AnswerResult,
        others: Sequence[AnswerResult] = (),
    ) -> QueryResult:
        """Return the result of a query, judged by its answer; `Answers.valued` adds its value."""
        took = found.told.latency_ms + answered.latency_ms
        paid = answered.cost_usd
        if answered.text is None:
            failed = answered.why not in {*PASSING, "unreadable"}
            quality = (0.0, 0.0) if failed else (None, None)
            return QueryResult(quality, took, failed=failed, why=answered.why, cost_usd=paid)
        case = Case(question, answered.text, tuple(found.passages))
        first, second = (measure(case) for measure in self._measures)
        reasons = first.reason, second.reason
        why = next((one for one in reasons if one in PASSING), "") or first.reason or second.reason
        if why == "budget":
            self._over.set()
        values = first.value, second.value
        again = tuple(one.text for one in others if one.text is not None)
        if not why:  # instability is found later
            why = next((one.why for one in others if one.why in PASSING), "")
        return QueryResult(
            values,
            took,
            why=why,
            cost_usd=paid,
            answer=answered.text,
            others=again,
            contexts=found.told.contexts,
        )


class _Meter:
    """Backend that records, per thread, the duration of all tries of an answer."""

    def __init__(self, backend: Backend, prices: Prices, clock: Callable[[], float]) -> None:
        self._backend, self._prices, self._clock = backend, prices, clock
        self._of_thread = threading.local()

    @property
    def name(self) -> str:
        return self._backend.name

    def begin(self) -> None:
        self._of_thread.cost_usd = self._of_thread.seconds = 0.0
        self._of_thread.away = False

    @property
    def away(self) -> bool:
        """Whether the last error is independent of the prompt (not: too long, refused)."""
        return bool(self._of_thread.away)

    @property
    def cost_usd(self) -> float:
        return float(self._of_thread.cost_usd)

    @property
    def seconds(self) -> float:
        """Duration of all calls and the pauses between them, because the user waits for both.

        Waiting in a queue is not part of the latency.
        """
        return float(self._of_thread.seconds)

    def add(self, seconds: float) -> None:
        self._of_thread.seconds += seconds

    def complete(self, prompt: str, *, max_tokens: int, timeout_s: float) -> str:
        return self.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s).text

    def completion(self, prompt: str, *, max_tokens: int, timeout_s: float) -> Completion:
        estimate = self._prices.estimate(prompt, max_tokens=max_tokens)
        cost, begun = estimate, self._clock()
        self._of_thread.away = False
        try:
            if isinstance(self._backend, MeteredBackend):
                said = self._backend.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
            else:
                text = self._backend.complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
                said = Completion(text)
            cost = self._prices.cost(said, estimate)
        except BackendUnavailableError as error:
            # As in the budget: a server that names a retry time did no work; nor did one
            # without a call.
            cost = estimate if error.asked and error.retry_after_s is None else 0.0
            self._of_thread.away = not error.asked or self._clock() - begun < timeout_s
            raise
        except BackendError as error:
            of_prompt = isinstance(error, BackendAnswerError) and error.of_prompt
            self._of_thread.away = not of_prompt
            raise
        except InputError:  # no call
            cost = 0.0
            raise
        finally:
            self.add(self._clock() - begun)
            self._of_thread.cost_usd += cost
        return said


class _Pauses(Rate):
    """Rate limit that reports the pauses between two tries to a meter."""

    def __init__(self, rate: Rate, meter: _Meter) -> None:
        super().__init__()
        self._rate, self._meter = rate, meter

    def now(self) -> float:
        return self._rate.now()

    def wait(self) -> None:
        self._rate.wait()

    def hold(self, seconds: float) -> None:
        self._rate.hold(seconds)

    def pause(self, seconds: float) -> None:
        self._meter.add(seconds)
        self._rate.pause(seconds)
