"""Work with a timeout; late results are counted."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class WorkTimeout:
    """Runs work in threads with a timeout.

    A thread cannot be killed, so a late one runs until its work ends. Late threads are counted;
    at the maximum, no further work starts.

    Args:
        seconds: Timeout in seconds, > 0.
        hanging: Maximum number of late threads, ≥ 1.

    >>> WorkTimeout(10.0, hanging=1).within(lambda: "done")
    'done'
    """

    def __init__(self, seconds: float, *, hanging: int) -> None:
        self.seconds = seconds
        self._most = hanging
        self._late: list[threading.Thread] = []
        self._guard = threading.Lock()

    @property
    def hanging(self) -> int:
        """Number of late threads that still run."""
        with self._guard:
            self._late = [one for one in self._late if one.is_alive()]
            return len(self._late)

    @property
    def is_stuck(self) -> bool:
        """Whether the maximum number of late threads is reached."""
        return self.hanging >= self._most

    def within(self, work: Callable[[], T]) -> T | None:
        """Return the result of work; ``None`` on timeout, or at the maximum of late threads.

        Args:
            work: Returns anything but ``None``; may raise.
        """
        if self.is_stuck:
            return None
        done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def run() -> None:
            try:
                done.put((work(), None))
            except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
                done.put((None, error))

        thread = threading.Thread(target=run, name="searching", daemon=True)
        thread.start()
        try:
            result, error = done.get(timeout=self.seconds)
        except queue.Empty:
            with self._guard:
                self._late.append(thread)
            return None
        if error is not None:
            raise error
        return result
