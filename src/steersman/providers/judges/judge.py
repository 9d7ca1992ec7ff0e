"""Judge: backend calls with cache, budget, rate limit and retries."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.db.judge_cache import key_of
from steersman.errors import BackendUnavailableError, InputError
from steersman.platform.retry import Backoff
from steersman.providers.backend import Completion, MeteredBackend
from steersman.providers.judges.scores import column, coverage
from steersman.providers.spending_limit import Budget, Rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.db.judge_cache import JudgeCache
    from steersman.providers.backend import Backend
    from steersman.providers.judges.scores import Case, Coverage, Score, Tally


class Measure(Protocol):
    """Measure of one answer: `Faithfulness`, `Relevancy`, or your own."""

    @property
    def name(self) -> str:
        """Column name."""

    def __call__(self, case: Case) -> Score:
        """Return the score of an answer; must be thread-safe."""


@dataclass(frozen=True)
class JudgedBatch:
    """Result of batch judging.

    Attributes:
        judge: name of the judging model.
        scores: scores by measure, in the order of the cases.
        calls: number of requests, retries included.
        cached: number of answers found in the cache.
        cost_usd: total cost of the judge's budget at the end, in US dollars; estimated where
            token counts are missing.
    """

    judge: str
    scores: Mapping[str, tuple[Score, ...]] = field(repr=False)
    calls: int
    cached: int
    cost_usd: float

    @property
    def coverage(self) -> dict[str, Coverage]:
        """Coverage by measure: number of defined scores, and reasons for the others."""
        return {name: coverage(scores) for name, scores in self.scores.items()}

    @property
    def quality(self) -> NDArray[np.float64]:
        """(cases, measures) float64 in [0, 1], NaN where undefined; report `coverage` with it."""
        return np.stack([column(scores) for scores in self.scores.values()], axis=1)


def judge_all(
    judge: Judge, measures: Sequence[Measure], cases: Sequence[Case], *, workers: int = 4
) -> JudgedBatch:
    """Return the scores of all measures for all cases.

    When the budget is used up, the remaining scores are undefined with that reason. With a cache,
    the same call with a larger budget continues and pays nothing twice. On an exception, such as
    Ctrl-C, it sends no more requests and ends after those in flight.

    Args:
        workers: number of threads, 1 to 64; default 4.

    Raises:
        InputError: `workers` is out of range, no measures, or duplicate names.
        DataError: the judge cache is damaged.
    """
    names = [measure.name for measure in measures]
    if not names or len(set(names)) < len(names):
        raise InputError(f"measures are {names}; pass one or more with distinct names")
    if not 1 <= workers <= 64:
        raise InputError(f"workers is {workers!r}; allowed: 1 to 64")
    rows = _judged(judge, measures, cases, workers)
    scores = {name: tuple(row[place] for row in rows) for place, name in enumerate(names)}
    every = [score for row in rows for score in row]
    calls, cached = sum(s.calls for s in every), sum(s.cached for s in every)
    return JudgedBatch(judge.name, scores, calls, cached, judge.budget.cost_usd)


def _judged(
    judge: Judge, measures: Sequence[Measure], cases: Sequence[Case], workers: int
) -> list[list[Score]]:
    # No `with`: it would wait for all queued work before it raises.
    pool = ThreadPoolExecutor(workers, thread_name_prefix="steersman-judge")
    try:
        waiting = [pool.submit(_scores, measures, case) for case in cases]
        return [future.result() for future in waiting]
    except BaseException:
        judge.budget.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _scores(measures: Sequence[Measure], case: Case) -> list[Score]:
    return [measure(case) for measure in measures]


class Turns:
    """Locks by key; unused keys are removed.

    >>> turns = Turns()
    >>> with turns.alone(b"one"), turns.alone(b"another"):
    ...     len(turns)
    2
    >>> len(turns)
    0
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[bytes, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    @contextmanager
    def alone(self, key: bytes) -> Iterator[None]:
        """Hold the lock of a key; not reentrant."""
        with self._guard:
            turn = self._turns.setdefault(key, _Turn())
            turn.wanted += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._guard:
                turn.wanted -= 1
                if not turn.wanted:
                    del self._turns[key]


class _Turn:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Backoff):
    """Retry policy for a busy server.

    Args:
        tries: maximum attempts per call, 1 to 20; default 5. Calls that the backend did not send
            do not count. All pauses and waits together last at most `tries` × `longest_s`.
        first_s: first pause in seconds, doubled each time, unless the server sends one; > 0.
        longest_s: longest pause in seconds, ≥ `first_s`; if the server asks for a longer pause,
            the call fails.

    Raises:
        InputError: an argument is out of range.

    >>> [Retry(first_s=1.0, longest_s=3.0).pause_s(after) for after in (1, 2, 3)]
    [1.0, 2.0, 3.0]
    """

    tries: int = 5
    first_s: float = 0.5
    longest_s: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.tries <= 20:
            raise InputError(f"tries is {self.tries!r}; allowed: 1 to 20")
        if not 0.0 < self.first_s <= self.longest_s <= 3600.0:
            pauses = f"first_s {self.first_s!r}, longest_s {self.longest_s!r}"
            raise InputError(f"{pauses}; allowed: 0 < first_s ≤ longest_s ≤ 3600")


class Judge:
    """Backend with cache, budget, rate limit and retries, for judging many answers.

    Thread-safe: identical concurrent requests are sent once. Two processes may both pay; the first
    answer counts for both. After a Retry-After, all threads wait.

    Args:
        backend: model that judges.
        cache: answer cache; None: no cache.
        budget: limit of calls and money; None: no limit.
        rate: rate limit; None: no limit.
        retry: retry policy for a busy or failing server.
        timeout_s: timeout per call in seconds, > 0.
        max_characters: maximum prompt length, 1,000 to 200,000; longer prompts are not judged and
            never truncated. Set it to the context size of the model.

    Raises:
        InputError: an argument is out of range.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        cache: JudgeCache | None = None,
        budget: Budget | None = None,
        rate: Rate | None = None,
        retry: Retry | None = None,
        timeout_s: float = 60.0,
        max_characters: int = 60_000,
    ) -> None:
        if not 0.001 <= timeout_s <= 3600:
            raise InputError(f"timeout_s is {timeout_s!r}; allowed: 0.001 to 3600 seconds")
        if not 1000 <= max_characters <= 200_000:
            raise InputError(f"max_characters is {max_characters!r}; allowed: 1000 to 200000")
        self.budget = budget or Budget()
        self.max_characters = max_characters
        self._backend = backend
        self._cache = cache
        self._rate = rate or Rate()
        self._retry = retry or Retry()
        self._timeout_s = timeout_s
        self._turns = Turns()

    @property
    def name(self) -> str:
        """Name of the backend, to report with every score."""
        return self._backend.name

    def ask(self, prompt: str, *, max_tokens: int, version: str, tally: Tally) -> str:
        """Return the model's answer, from the cache if possible.

        Raises:
            BudgetError: the budget is used up.
            BackendUnavailableError: all attempts failed.
            BackendAnswerError: the server refused the request.
            InputError: the backend does not accept the prompt.
            DataError: the cache is damaged.
        """
        if self._cache is None:
            return self._ask_patiently(prompt, max_tokens, tally)
        key = key_of(self.name, prompt, max_tokens, version)
        with self._turns.alone(key):
            found = self._cache.get(key)
            if found is not None:
                tally.cached += 1
                return found
            return self._cache.put(key, self._ask_patiently(prompt, max_tokens, tally))

    def _ask_patiently(self, prompt: str, max_tokens: int, tally: Tally) -> str:
        tries, left_s = 0, self._retry.tries * self._retry.longest_s
        while True:
            estimate = self._begun(prompt, max_tokens)
            begun_at = self._rate.now()
            try:
                return self._ended(prompt, max_tokens, estimate, tally)
            except BackendUnavailableError as error:
                # While another thread probes the server, this one waits.
                tries += error.asked
                named_s = error.retry_after_s
                pause_s = self._retry.pause_s(max(tries, 1)) if named_s is None else named_s
                left_s -= pause_s + (0.0 if error.asked else self._rate.now() - begun_at)
                if tries >= self._retry.tries or pause_s > self._retry.longest_s or left_s < 0.0:
                    raise
                if named_s is None:
                    self._rate.pause(pause_s)
                else:
                    self._rate.hold(pause_s)

    def _begun(self, prompt: str, max_tokens: int) -> float:
        """Wait for the turn of a call, and return its cost estimate."""
        estimate = self.budget.reserve(prompt, max_tokens=max_tokens)
        try:
            self._rate.wait()
            self.budget.check_open()
        except BaseException:
            self.budget.settle(estimate, 0.0, asked=False)
            raise
        return estimate

    def _ended(self, prompt: str, max_tokens: int, estimate: float, tally: Tally) -> str:
        """Send a call, and settle its cost."""
        cost, asked = estimate, True
        try:
            completion = self._complete(prompt, max_tokens)
            cost = self.budget.prices.cost(completion, estimate)
        except BackendUnavailableError as error:
            # No work was done if the server sent Retry-After, or no request was sent.
            asked = error.asked
            cost = estimate if asked and error.retry_after_s is None else 0.0
            raise
        except InputError:  # the backend rejected the prompt and sent no request
            cost, asked = 0.0, False
            raise
        finally:
            tally.calls += asked
            self.budget.settle(estimate, cost, asked=asked)
        return completion.text

    def _complete(self, prompt: str, max_tokens: int) -> Completion:
        timeout_s = self._timeout_s
        if isinstance(self._backend, MeteredBackend):
            return self._backend.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
        text = self._backend.complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
        return Completion(text)
