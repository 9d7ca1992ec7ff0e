"""Scheduling of evaluations: one queue per tenant, and a shared core between questions.

An evaluation may have thousands of questions and would block everybody for a minute. Each tenant
runs one evaluation at a time. The evaluation that used the core least runs the next question, so
each of n tenants gets an equal share of time.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from steersman.errors import DataError
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

T = TypeVar("T")
MOST_OF_TENANT = 4
"""Maximum number of running and waiting evaluations per tenant."""
MOST = 32
"""Maximum number of running and waiting evaluations of all tenants."""
_FIRST_S = 5.0
_LONGEST_S = 60.0
_KNOWN = 1_000  # maximum number of tenants with stored durations
_LOOK_S = 0.1


class Full(Refused):
    """The queue of evaluations is full."""


class Line:
    """Queue of evaluations, used by one event loop.

    Args:
        of_tenant: maximum number of running and waiting evaluations per tenant.
        most: maximum number for all tenants.
        on_waited: callback with the seconds that an evaluation waited.
    """

    def __init__(
        self,
        of_tenant: int = MOST_OF_TENANT,
        most: int = MOST,
        on_waited: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._of_tenant, self._most = of_tenant, most
        self._on_waited = on_waited
        self._waiting = 0
        self._inside: dict[UUID, int] = {}
        self._turns: dict[UUID, asyncio.Lock] = {}
        self._took_s: dict[UUID, float] = {}  # recent durations of each tenant
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="tuner")

    def close(self) -> None:
        """Start no further evaluation."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def place(self, tenant: UUID) -> Iterator[None]:
        """Hold a place in the queue within the context.

        Raises:
            Full: the queue is full; the answer says when to retry.
        """
        own, every = self._inside.get(tenant, 0), sum(self._inside.values())
        if own >= self._of_tenant or every >= self._most:
            # Estimated from its own runs: a tenant must not infer the times of others.
            who, ahead = ("of this tenant ", own) if own >= self._of_tenant else ("", 1)
            count = own if who else every
            took_s = self._took_s.get(tenant, _FIRST_S) if who else _FIRST_S
            again_s = min(_LONGEST_S, max(1.0, ahead * took_s))
            detail = f"{count} evaluations {who}are already running or waiting, the maximum; "
            raise Full.of("unavailable", f"{detail}try again later", retry_after_s=again_s)
        self._inside[tenant] = own + 1
        try:
            yield
        finally:
            self._inside[tenant] -= 1
            if not self._inside[tenant]:
                del self._inside[tenant]
                self._forget(tenant)

    async def run(self, tenant: UUID, work: Callable[[], T], stop: threading.Event) -> T:
        """Run work in a thread when it is this tenant's turn, and return its result.

        The caller may leave; the turn ends when the thread ends.

        Raises:
            Exception: the exception of the work.
        """
        turn = self._turns.setdefault(tenant, asyncio.Lock())
        loop = asyncio.get_running_loop()
        await self._wait(turn, loop.time)
        begun = loop.time()
        future = loop.run_in_executor(self._pool, work)

        def ended(done: asyncio.Future[T]) -> None:
            if not done.cancelled():
                done.exception()  # the waiting caller has it, or left
            before = self._took_s.pop(tenant, _FIRST_S)
            self._took_s[tenant] = before + (loop.time() - begun - before) / 4
            if len(self._took_s) > _KNOWN:
                del self._took_s[next(iter(self._took_s))]
            turn.release()
            self._forget(tenant)

        future.add_done_callback(ended)
        try:
            return await asyncio.shield(future)
        finally:
            stop.set()

    def states(self) -> dict[tuple[str], int]:
        """Return the number of running and waiting evaluations."""
        running = sum(turn.locked() for turn in self._turns.values())
        return {("running",): running, ("waiting",): self._waiting}

    async def _wait(self, turn: asyncio.Lock, clock: Callable[[], float]) -> None:
        begun = clock()
        self._waiting += 1
        try:
            await turn.acquire()
        finally:
            self._waiting -= 1
            self._on_waited(clock() - begun)

    def _forget(self, tenant: UUID) -> None:
        turn = self._turns.get(tenant)
        if tenant not in self._inside and turn is not None and not turn.locked():
            del self._turns[tenant]


class Slices:
    """Core shared by time: the evaluation that used it least runs next.

    Turns last from a millisecond to a second, so their durations are weighed. An evaluation that
    waits for a model gains no credit: it resumes at the level of the others.

    Args:
        clock: monotonic clock in seconds.

    >>> slices, stop = Slices(), threading.Event()
    >>> with slices.share(stop).turn() as turn, turn.left():
    ...     pass

    Source: Goyal, Vin & Cheng, Start-time Fair Queueing (1996), section 2.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._waiting: dict[Share, deque[threading.Event]] = {}
        self._busy = False
        self._reached = 0.0

    def share(self, stop: threading.Event) -> Share:
        """Return the share of an evaluation; its threads take turns."""
        return Share(self, stop)

    def take(self, share: Share) -> float:
        """Wait for the core, and return the start time of the turn.

        Raises:
            DataError: the evaluation was stopped; the core is not held.
        """
        with self._guard:
            share.reached = max(self._reached, share.reached)
            if not self._busy:
                self._busy, self._reached = True, share.reached
                return self._clock()
            mine = threading.Event()
            self._waiting.setdefault(share, deque()).append(mine)
        while not mine.wait(_LOOK_S):
            with self._guard:
                # The core may have been handed over at the same moment.
                if share.stop.is_set() and not mine.is_set():
                    self._leave(share, mine)
                    raise DataError(
                        "the evaluation was stopped while it waited; send fewer at once"
                    )
        return self._clock()

    def pass_on(self, share: Share, began: float) -> float:
        """End a turn, wait for the next one of the same share, and return its start time.

        Raises:
            DataError: the evaluation was stopped; the core is not held.
        """
        with self._guard:
            now = self._clock()
            least = min((one.reached for one in self._waiting), default=math.inf)
            if share.reached + now - began < least:
                share.reached += now - began
                self._reached = share.reached
                return now
        self.give(share, began)
        return self.take(share)

    def _leave(self, share: Share, waits: threading.Event) -> None:
        self._waiting[share].remove(waits)
        if not self._waiting[share]:
            del self._waiting[share]

    def give(self, share: Share, began: float) -> None:
        """Give the core to the share that used it least."""
        with self._guard:
            share.reached += self._clock() - began
            if not self._waiting:
                self._busy = False
                return
            # Among equals, the one that has waited longest.
            following = min(self._waiting, key=lambda one: one.reached)
            self._reached = following.reached
            waits = self._waiting[following][0]
            self._leave(following, waits)
            waits.set()


class Share:
    """Share of a core for one evaluation; `Slices.share` creates it.

    Args:
        slices: shared core.
        stop: event that ends all waits for a turn.
    """

    def __init__(self, slices: Slices, stop: threading.Event) -> None:
        self._slices, self.stop = slices, stop
        self.reached = 0.0

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Wait for the core and hold it within the context.

        Raises:
            DataError: the evaluation was stopped.
        """
        turn = Turn(self._slices, self)
        turn.take()
        try:
            yield turn
        finally:
            turn.give()


class Turn:
    """Turn of one thread, which can release and retake the core.

    Args:
        slices: shared core.
        share: share of the turn.
    """

    def __init__(self, slices: Slices, share: Share) -> None:
        self._slices, self._share = slices, share
        self._began: float | None = None

    def take(self) -> None:
        """Wait for the core.

        Raises:
            DataError: the evaluation was stopped; the core is not held.
        """
        self._began = self._slices.take(self._share)

    def again(self) -> None:
        """End a held turn and wait for the next one.

        Raises:
            DataError: the evaluation was stopped; the core is not held.
        """
        began, self._began = self._began, None
        if began is None:
            self.take()
        else:
            self._began = self._slices.pass_on(self._share, began)

    def give(self) -> None:
        """Release the core if it is held."""
        if self._began is not None:
            began, self._began = self._began, None
            self._slices.give(self._share, began)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Release the core within the context, while waiting for something else."""
        self.give()
        try:
            yield
        finally:
            self.take()
