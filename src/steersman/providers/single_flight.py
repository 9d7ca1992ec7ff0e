"""Single flight: one lock per key, so that threads with the same request send it once."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


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
