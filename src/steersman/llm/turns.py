"""Turns by key, so that threads which want the same at once have it made once."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Turns:
    """Lets one thread at a time work on a key; nothing is left of a key that nobody wants.

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
        """Wait until nobody else works on a key, and be the one who does.

        Args:
            key: Any; a thread that has it must not ask for it again.
        """
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
