"""Work with a timeout; late results are counted."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class InTime:
    """Does work in time, or goes on without it.

    A thread cannot be ended from outside: one that hangs stays until its work comes back. So they
    are counted, and while as many hang as may, no further work is begun.

    Args:
        seconds: That work may take, > 0.
        hanging: How many may hang, ≥ 1.

    >>> InTime(10.0, hanging=1).within(lambda: "done")
    'done'
    """

    def __init__(self, seconds: float, *, hanging: int) -> None:
        self.seconds = seconds
        self._most = hanging
        self._late: list[threading.Thread] = []
        self._guard = threading.Lock()

    @property
    def hanging(self) -> int:
        """How many go on after their time was over."""
        with self._guard:
            self._late = [one for one in self._late if one.is_alive()]
            return len(self._late)

    @property
    def is_stuck(self) -> bool:
        """Whether as many hang as may."""
        return self.hanging >= self._most

    def within(self, work: Callable[[], T]) -> T | None:
        """Return what work gives; ``None`` if it takes too long, or as many hang as may.

        Args:
            work: Gives anything but ``None``; may raise.
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
