"""Budget and prices of model calls."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import BudgetError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.providers.backend import Completion


class Rate:
    """Rate limit shared by threads: evenly spaced calls, and pauses for all.

    Args:
        per_s: maximum calls per second, > 0; None: no limit.
        clock: monotonic clock in seconds.
        sleep: function that waits for some seconds.

    Raises:
        InputError: `per_s` is not above 0.

    >>> waited = []
    >>> rate = Rate(2.0, clock=lambda: 0.0, sleep=waited.append)
    >>> for _ in range(3):
    ...     rate.wait()
    >>> waited
    [0.5, 1.0]
    """

    def __init__(
        self,
        per_s: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if per_s is not None and not 0.0 < per_s < math.inf:
            raise InputError(f"per_s is {per_s!r}; allowed: above 0, or None for no limit")
        self._gap_s = 0.0 if per_s is None else 1.0 / per_s
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next_at = self._held_until = -math.inf

    def now(self) -> float:
        """Return the time of its clock in seconds."""
        return self._clock()

    def wait(self) -> None:
        """Wait until the next call may begin."""
        while True:
            with self._lock:
                now = self._clock()
                begins_at = max(now, self._next_at)
                self._next_at = begins_at + self._gap_s
            if begins_at > now:
                self._sleep(begins_at - now)
            with self._lock:
                if begins_at >= self._held_until:
                    return

    def hold(self, seconds: float) -> None:
        """Block all calls for a while, waiting ones included.

        Args:
            seconds: duration from now, ≥ 0.
        """
        with self._lock:
            self._held_until = max(self._held_until, self._clock() + seconds)
            self._next_at = max(self._next_at, self._held_until)

    def pause(self, seconds: float) -> None:
        """Wait without blocking other callers.

        Args:
            seconds: duration, ≥ 0.
        """
        self._sleep(seconds)


_BYTES_OF_A_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a model, in US dollars.

    Args:
        prompt_usd: price of 1,000 prompt tokens, ≥ 0; default 0.
        answer_usd: price of 1,000 answer tokens, ≥ 0; default 0.
        call_usd: price of a call without token counts, or of every call if tokens have no price,
            ≥ 0; None: missing counts are estimated as one token per three bytes of the prompt, plus
            the maximum answer tokens.

    Raises:
        InputError: a price is negative or not a number.

    >>> Prices(0.15, 0.60).estimate("x" * 3000, max_tokens=500)
    0.45
    """

    prompt_usd: float = 0.0
    answer_usd: float = 0.0
    call_usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_usd", "answer_usd", "call_usd"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < math.inf:
                raise InputError(f"{name} is {value!r}; the minimum is 0")

    def estimate(self, prompt: str, *, max_tokens: int) -> float:
        """Return the estimated maximum cost of a call, in US dollars."""
        tokens = math.ceil(len(prompt.encode("utf-8", "surrogatepass")) / _BYTES_OF_A_TOKEN)
        by_tokens = (tokens * self.prompt_usd + max_tokens * self.answer_usd) / 1000
        return max(by_tokens, self.call_usd or 0.0)

    def cost(self, completion: Completion, estimate: float) -> float:
        """Return the cost of a call, in US dollars."""
        by_call = not (self.prompt_usd or self.answer_usd)
        if by_call or completion.prompt_tokens is None or completion.answer_tokens is None:
            return estimate if self.call_usd is None else self.call_usd
        tokens = (
            completion.prompt_tokens * self.prompt_usd + completion.answer_tokens * self.answer_usd
        )
        return tokens / 1000


class Budget:
    """Budget shared by threads: a call begins only if its maximum cost fits.

    The cost comes from the backend's token counts, so the limit holds if `Prices.estimate` is not
    too low. A failed call costs its estimate, unless the server sent Retry-After.

    Args:
        max_calls: maximum calls, retries included, ≥ 0; None: no limit.
        max_cost_usd: maximum cost in US dollars, ≥ 0; None: no limit.
        prices: prices of the backend.

    Raises:
        InputError: a limit is negative or not a number, or a cost limit has no prices.

    >>> budget = Budget(max_calls=1)
    >>> budget.settle(budget.reserve("a prompt", max_tokens=5), 0.0)
    >>> budget.calls
    1
    >>> budget.reserve("another", max_tokens=5)
    Traceback (most recent call last):
    steersman.errors.BudgetError: all 1 calls are used; raise max_calls to judge the rest
    """

    def __init__(
        self,
        *,
        max_calls: int | None = None,
        max_cost_usd: float | None = None,
        prices: Prices | None = None,
    ) -> None:
        if max_calls is not None and max_calls < 0:
            raise InputError(f"max_calls is {max_calls!r}; the minimum is 0")
        if max_cost_usd is not None and not 0.0 <= max_cost_usd < math.inf:
            raise InputError(f"max_cost_usd is {max_cost_usd!r}; the minimum is 0")
        self.prices = prices or Prices()
        if max_cost_usd is not None and not self.prices.estimate("x", max_tokens=1):
            raise InputError("max_cost_usd has no effect when all prices are 0; pass prices")
        self._max_calls, self._max_cost_usd = max_calls, max_cost_usd
        self._calls = 0
        self._cost_usd = self._reserved_usd = 0.0
        self._in_flight = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def calls(self) -> int:
        """Number of calls begun."""
        with self._changed:
            return self._calls

    @property
    def cost_usd(self) -> float:
        """Cost of the completed calls, estimated where token counts are missing."""
        with self._changed:
            return self._cost_usd

    def reserve(self, prompt: str, *, max_tokens: int) -> float:
        """Begin a call; wait for calls in flight if their cost decides whether it fits.

        Returns:
            The estimate in US dollars; pass it to `settle`.

        Raises:
            BudgetError: the call does not fit into the budget.
        """
        estimate = self.prices.estimate(prompt, max_tokens=max_tokens)
        with self._changed:
            while not self._fits(estimate):
                self._changed.wait()
            self._calls += 1
            self._in_flight += 1
            self._reserved_usd += estimate
        return estimate

    def settle(self, estimate: float, cost_usd: float, *, asked: bool = True) -> None:
        """End a call.

        Args:
            cost_usd: cost in US dollars, ≥ 0.
        """
        with self._changed:
            self._calls -= not asked
            self._in_flight -= 1
            self._reserved_usd = self._reserved_usd - estimate if self._in_flight else 0.0
            self._cost_usd += cost_usd
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse all further calls."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def check_open(self) -> None:
        """Raise if the budget was closed while a call waited.

        Raises:
            BudgetError: it was closed; settle the call as not asked.
        """
        with self._changed:
            self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise BudgetError("judging was stopped; start again with a new budget to continue")

    def _fits(self, estimate: float) -> bool:
        self._refuse_closed()
        if self._max_calls is not None and self._calls >= self._max_calls:
            # A call in flight may end without a request and free its estimate.
            if self._in_flight:
                return False
            message = f"all {self._max_calls} calls are used"
            raise BudgetError(f"{message}; raise max_calls to judge the rest")
        if self._max_cost_usd is None:
            return True
        if self._cost_usd + self._reserved_usd + estimate <= self._max_cost_usd:
            return True
        if self._in_flight:
            return False
        raise BudgetError(
            f"{self._cost_usd:.4f} of {self._max_cost_usd:.4f} USD are spent, and this call can "
            f"cost {estimate:.4f}; raise max_cost_usd to judge the rest"
        )
