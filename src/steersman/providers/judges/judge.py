"""Judge: backend calls with cache, budget, rate limit and retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import BackendUnavailableError, InputError
from steersman.providers.backend import Completion, MeteredBackend
from steersman.providers.judges.cache import key_of
from steersman.providers.rate_limit import Rate
from steersman.providers.single_flight import Turns
from steersman.providers.spending_limit import Budget

if TYPE_CHECKING:
    from steersman.providers.backend import Backend
    from steersman.providers.judges.cache import JudgeCache
    from steersman.providers.judges.scores import Tally


@dataclass(frozen=True, slots=True)
class Retry:
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

    def pause_s(self, tries: int) -> float:
        """Return the pause in seconds after some attempts, if the server sends none.

        Args:
            tries: number of attempts so far, ≥ 1.
        """
        return min(self.first_s * 2.0 ** (tries - 1), self.longest_s)


class Judge:
    """Backend with cache, budget, rate limit and retries, for judging many answers.

    Thread-safe: concurrent identical requests of threads are sent once (two processes may both
    pay; the first answer counts for both). After a Retry-After, all threads wait.

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
            said = self._complete(prompt, max_tokens)
            cost = self.budget.prices.cost(said, estimate)
        except BackendUnavailableError as error:
            # A server that sends Retry-After did no work, nor did one without a request.
            asked = error.asked
            cost = estimate if asked and error.retry_after_s is None else 0.0
            raise
        except InputError:  # the backend rejected the prompt and sent no request
            cost, asked = 0.0, False
            raise
        finally:
            tally.calls += asked
            self.budget.settle(estimate, cost, asked=asked)
        return said.text

    def _complete(self, prompt: str, max_tokens: int) -> Completion:
        timeout_s = self._timeout_s
        if isinstance(self._backend, MeteredBackend):
            return self._backend.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
        said = self._backend.complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
        return Completion(said)
