"""Answers to questions from the passages found, and what a judge says of them."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from steersman.errors import BackendError, BudgetError, InputError
from steersman.llm import Budget, Case, Completion, Judge, MeteredBackend, Prices
from steersman.llm.scored import Tally
from steersman.systems.rag_tuner.asking import PASSING, Told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from steersman.llm import Backend, JudgeCache, Measure, Rate, Retry
    from steersman.systems.rag_tuner.asking import Searched

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
"""Templates by id, as configurations name them."""
_VERSION = "answer/1"


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer to one question.

    Attributes:
        text: None: there was none.
        latency_ms: That it took.
        cost_usd: That it took.
        why: There was none.
    """

    text: str | None
    latency_ms: float = 0.0
    cost_usd: float = 0.0
    why: str = ""


class Answers:
    """A model that answers, and the judge of its answers.

    Args:
        backend: Answers.
        measures: Gives the two measures that judge by a judge: faithfulness and relevancy.
        judge_backend: Judges; None: the model that answers.
        cache: Of judgements; None: none are kept.
        prices: Of both; None: nothing costs.
        rate: Of calls of both; None: as fast as they go.
        retry: Of a server that is busy; None: five times.
        timeout_s: Of one call.
        max_tokens: Of one answer, ≥ 1.
        prompts: Templates by id, with ``{passages}`` and ``{question}``.
        violates: Says of an answer whether it holds what must not be in it; None: nothing does.
        cost_ref_usd: What one query may cost: the unit of cost, > 0.
        clock: Seconds that never run backwards.

    No doctest: it needs a model; ``tests/systems/rag_tuner/test_evaluating.py`` shows it.
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
        violates: Callable[[str], bool] | None = None,
        cost_ref_usd: float = 1.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend, self._judge_backend = backend, judge_backend or backend
        self.measures, self.cache = measures, cache
        self.prices, self.rate, self.retry = prices or Prices(), rate, retry
        self.timeout_s, self.max_tokens, self.prompts = timeout_s, max_tokens, prompts
        self.violates, self.cost_ref_usd, self.clock = violates, cost_ref_usd, clock

    @property
    def name(self) -> str:
        """Who answers and who judges, by which words."""
        words = hashlib.sha256(json.dumps(dict(self.prompts), sort_keys=True).encode())
        by = self._backend.name, self._judge_backend.name, str(self.max_tokens), _VERSION
        return "|".join((*by, words.hexdigest()[:16]))

    def episode(self, *, max_cost_usd: float | None, max_calls: int | None) -> Episode:
        """Return what answers and judges within a budget of its own.

        Args:
            max_cost_usd: The most money; None: any sum.
            max_calls: The most calls; None: any number.

        Raises:
            InputError: A cap on money without a price.
        """
        budget = Budget(max_cost_usd=max_cost_usd, max_calls=max_calls, prices=self.prices)
        meter = _Meter(self._backend, self.prices)
        writer, judge = (
            Judge(
                backend,
                cache=cache,
                budget=budget,
                rate=self.rate,
                retry=self.retry,
                timeout_s=self.timeout_s,
            )
            for backend, cache in ((meter, None), (self._judge_backend, self.cache))
        )
        return Episode(self, writer, judge, meter)


class Episode:
    """Answers and judges within one budget; may be used by several threads.

    Args:
        answers: How.
        writer: Asks the model that answers.
        judge: Asks the model that judges.
        meter: Between the writer and its model.

    No doctest: `Answers.episode` makes it.
    """

    def __init__(self, answers: Answers, writer: Judge, judge: Judge, meter: _Meter) -> None:
        self._answers, self._writer, self._meter = answers, writer, meter
        self._budget = judge.budget
        self._measures = list(answers.measures(judge))
        if len(self._measures) != 2:
            raise InputError(f"{len(self._measures)} measures; a batch of the tuner has two")

    @property
    def cost_usd(self) -> float:
        """What was spent so far."""
        return self._budget.cost_usd

    def answer(self, question: str, passages: Sequence[str], prompt: str) -> Answered:
        """Return the answer to a question.

        Args:
            question: What is asked.
            passages: It is answered from.
            prompt: Id of a template.

        Returns:
            The answer, or why there is none: the budget, or the model.

        Raises:
            InputError: There is no such template.
        """
        template = self._answers.prompts.get(prompt)
        if template is None:
            known = ", ".join(self._answers.prompts)
            raise InputError(f"prompt is {prompt!r}; allowed are {known}: declare the template")
        listed = "\n\n".join(f"[{n}] {text}" for n, text in enumerate(passages, 1))
        text = template.replace("{passages}", listed).replace("{question}", question)
        self._meter.begin()
        begun = self._answers.clock()
        limit = self._answers.max_tokens
        try:
            said = self._writer.ask(text, max_tokens=limit, version=_VERSION, tally=Tally())
        except BudgetError:
            return Answered(None, why="budget")
        except BackendError as error:
            took = 1e3 * (self._answers.clock() - begun)
            return Answered(None, took, self._meter.cost_usd, f"{type(error).__name__}: {error}")
        return Answered(said, 1e3 * self._meter.seconds, self._meter.cost_usd)

    def judged(self, question: str, found: Searched, answered: Answered) -> Told:
        """Return what a query gave, judged by its answer.

        Args:
            question: What was asked.
            found: By the search.
            answered: From it.

        Returns:
            A query whose model failed has failed; one that the budget ended before, or whose judge
            did not come to a verdict, has no quality.
        """
        took = found.told.latency_ms + answered.latency_ms
        cost = answered.cost_usd / self._answers.cost_ref_usd
        if answered.text is None:
            failed = answered.why != "budget"
            quality = (0.0, 0.0) if failed else (None, None)
            return Told(quality, took, cost, failed=failed, why=answered.why)
        case = Case(question, answered.text, tuple(found.passages))
        first, second = (measure(case) for measure in self._measures)
        reasons = first.reason, second.reason
        why = next((one for one in reasons if one in PASSING), "") or first.reason or second.reason
        violation = self._answers.violates is not None and self._answers.violates(answered.text)
        return Told(
            (first.value, second.value),
            took,
            cost,
            violation=violation,
            why=why,
            cost_usd=answered.cost_usd,
        )


class _Meter:
    """A backend that remembers, thread by thread, what the last answer took."""

    def __init__(self, backend: Backend, prices: Prices) -> None:
        self._backend, self._prices = backend, prices
        self._of_thread = threading.local()

    @property
    def name(self) -> str:
        return self._backend.name

    def begin(self) -> None:
        self._of_thread.cost_usd = self._of_thread.seconds = 0.0

    @property
    def cost_usd(self) -> float:
        return float(self._of_thread.cost_usd)

    @property
    def seconds(self) -> float:
        """Of the last call alone: waiting for a turn is no latency of the configuration."""
        return float(self._of_thread.seconds)

    def complete(self, prompt: str, *, max_tokens: int, timeout_s: float) -> str:
        return self.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s).text

    def completion(self, prompt: str, *, max_tokens: int, timeout_s: float) -> Completion:
        begun = time.perf_counter()
        if isinstance(self._backend, MeteredBackend):
            said = self._backend.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
        else:
            text = self._backend.complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
            said = Completion(text)
        self._of_thread.seconds = time.perf_counter() - begun
        estimate = self._prices.estimate(prompt, max_tokens=max_tokens)
        self._of_thread.cost_usd += self._prices.cost(said, estimate)
        return said
