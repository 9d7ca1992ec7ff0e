"""Limits of evaluations: concurrency, timeout, rate and budget."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from steersman.errors import BackendUnavailableError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of evaluations.

    Args:
        queries_per_s: Maximum number of queries started per second, > 0; None: no limit.
        timeout_s: Timeout of one search in seconds, 0.001 to 3600.
        tries: Maximum number of tries of a search after a timeout or without one of its parts, 1 to
            20.
        pause_s: Pause between two tries in seconds, 0 to 600.
        hanging: Maximum number of searches still running after their timeout, 1 to 1000; at this
            number, no search is started.
        workers: Number of concurrent queries, 1 to 64.
        running: Number of concurrent evaluations, 1 to 64.
        waiting: Maximum number of waiting evaluations, 0 to 1000; further ones are rejected.
        max_cost_usd: Budget of one evaluation (episode) in USD, ≥ 0; None: no limit. Answers cost,
            searches do not.
        max_calls: Maximum number of model calls in one evaluation, ≥ 0; None: no limit.

    Raises:
        InputError: A limit is out of range.

    >>> Limits(workers=0)
    Traceback (most recent call last):
    steersman.errors.InputError: workers is 0; allowed: 1 to 64
    """

    queries_per_s: float | None = None
    timeout_s: float = 10.0
    tries: int = 3
    pause_s: float = 0.5
    hanging: int = 16
    workers: int = 4
    running: int = 1
    waiting: int = 8
    max_cost_usd: float | None = None
    max_calls: int | None = None

    def __post_init__(self) -> None:
        ranges = {
            "timeout_s": (0.001, 3600),
            "tries": (1, 20),
            "pause_s": (0, 600),
            "hanging": (1, 1000),
            "workers": (1, 64),
            "running": (1, 64),
            "waiting": (0, 1000),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name} is {value!r}; allowed: {low} to {high}")
        if self.queries_per_s is not None and not 0.0 < self.queries_per_s < inf:
            message = (
                f"queries_per_s is {self.queries_per_s!r}; allowed: above 0, or none for no limit"
            )
            raise InputError(message)
        for name in ("max_cost_usd", "max_calls"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < inf:
                raise InputError(f"{name} is {value!r}; allowed: 0 or more, or none for no limit")


class EvaluationQueue:
    """Queue of evaluations with a maximum length.

    Args:
        running: Maximum number of concurrent evaluations, ≥ 1.
        waiting: Maximum number of waiting evaluations, ≥ 0.

    >>> line = EvaluationQueue(running=1, waiting=0)
    >>> with line.turn(), line.turn():
    ...     pass
    Traceback (most recent call last):
    steersman.errors.BackendUnavailableError: 1 evaluations run and 0 wait, which is all ...
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._running, self._waiting = running, waiting
        self._inside = 0
        self._guard = threading.Lock()
        self._turns = threading.BoundedSemaphore(running)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and hold it within the context.

        Raises:
            BackendUnavailableError: Too many wait already.
        """
        with self._guard:
            if self._inside >= self._running + self._waiting:
                raise BackendUnavailableError(
                    f"{self._running} evaluations run and {self._waiting} wait, which is all that "
                    "may; try again later, or raise running or waiting",
                    asked=False,
                )
            self._inside += 1
        try:
            with self._turns:
                yield
        finally:
            with self._guard:
                self._inside -= 1
