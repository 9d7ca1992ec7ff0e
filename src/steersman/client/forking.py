"""What os.fork would break is let go before it, and made anew on both sides of it.

A child inherits the parent's sockets, SQLite handles and locks, but not its threads: sharing a
connection mixes two streams, and a lock that a vanished thread holds is never released.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class Forkable:
    """Something that must know of a fork; by itself it does nothing then."""

    def before_fork(self) -> None:
        """Reach a state that may be copied, and stay in it."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Start afresh, touching nothing that belongs to the parent."""


_living: WeakSet[Forkable] = WeakSet()
_held: list[Forkable] = []
_one_at_a_time = threading.Lock()
"""Held through a fork: two threads that fork at once would let go of what the other one holds."""


def track(thing: Forkable) -> None:
    """Tell ``thing`` of every fork, for as long as it lives."""
    with _one_at_a_time:
        _living.add(thing)


def _before() -> None:
    _one_at_a_time.acquire()
    for thing in list(_living):
        thing.before_fork()
        _held.append(thing)


def _in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()
    _one_at_a_time.release()


def _in_child() -> None:
    while _held:
        _held.pop().after_fork_in_child()
    _one_at_a_time.release()  # by the thread that forked, the only one that is here


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
