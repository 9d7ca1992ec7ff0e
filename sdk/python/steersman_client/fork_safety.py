"""Fork handling: resources are released before os.fork and recreated on both sides.

A child inherits sockets, SQLite handles and locks, but no threads. A shared connection mixes two
streams, and a lock held by a missing thread is never released.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class Forkable:
    """Base of objects that react to a fork."""

    def before_fork(self) -> None:
        """Enter a state that can be copied, and stay in it."""

    def after_fork_in_parent(self) -> None:
        """Continue."""

    def after_fork_in_child(self) -> None:
        """Start again without the parent's resources."""


_living: WeakSet[Forkable] = WeakSet()
_held: list[Forkable] = []
_one_at_a_time = threading.Lock()
"""Held during a fork, because two parallel forks would release each other's locks."""


def track(thing: Forkable) -> None:
    """Notify an object of every fork during its lifetime."""
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
    _one_at_a_time.release()  # by the thread that forked, the only one left


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
