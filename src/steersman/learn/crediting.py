"""What a decision has earned by now, from the rows of its events; pure, so it can be verified.

The reward is `evaluate_window` of the declaration that the decision was made under. Two things a
stored row knows better than a clock: an outcome that is stored has happened, whichever clock is
ahead; and a window that was found closed stays closed, also when the clock steps back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from steersman.rewards import Outcome, evaluate_window

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from steersman.spec import DecisionPoint
    from steersman.store import Decided, Happened

_LEARNABLE = {"exact", "imported", "none"}


class Credit(NamedTuple):
    """What a decision has earned.

    Attributes:
        value: 0 to 1, or None.
        status: scored, waiting, assumed, dropped; withdrawn where the application did something
            else; failed where no reward can be computed.
        terms: raw values by outcome.
        final: whether the window is closed.
    """

    value: float | None
    status: str
    terms: dict[str, float]
    final: bool


class Course(list["Happened"]):
    """What happened to a decision, or in an episode, found by name and time without a walk.

    Of an episode every decision is credited with all that happened in it: walked through for each
    of them, long ones would hold up everybody else's learning.
    """

    @cached_property
    def _times(self) -> list[float]:
        return sorted(event.at.timestamp() for event in self if event.outcomes)

    @cached_property
    def _by_name(self) -> dict[str, tuple[list[float], list[float]]]:
        found: dict[str, tuple[list[float], list[float]]] = {}
        for event in sorted(self, key=lambda one: one.at):  # those of one time stay in their order
            at = event.at.timestamp()
            for name, value in (event.outcomes or {}).items():
                times, values = found.setdefault(name, ([], []))
                times.append(at)
                values.append(value)
        return found

    @cached_property
    def _done(self) -> dict[UUID | None, set[str]]:
        found: dict[UUID | None, set[str]] = defaultdict(set)
        for event in self:
            if event.action_taken is not None:
                found[event.decision].add(event.action_taken)
        return found

    def latest(self, names: Iterable[str], closes: float) -> list[Outcome]:
        """Return the latest outcome of each name, of two at one time the last.

        Args:
            names: those that count.
            closes: seconds since 1970; later ones do not count.

        Raises:
            InputError: one that is no finite number.
        """
        return [Outcome(name, *told) for name, told in self.told(names, closes).items()]

    def told(self, names: Iterable[str], closes: float) -> dict[str, tuple[float, float]]:
        """Return what was told last of each name, finite or not, and when.

        Args:
            names: those that count.
            closes: as for `latest`.
        """
        found = {}
        for name in names:
            times, values = self._by_name.get(name, ([], []))
            if place := bisect_right(times, closes):
                found[name] = values[place - 1], times[place - 1]
        return found

    def newest(self, closes: float) -> float:
        """Return when the latest outcome of any name was, up to a moment.

        Args:
            closes: seconds since 1970.

        Returns:
            Seconds since 1970; minus infinity where there was none.
        """
        place = bisect_right(self._times, closes)
        return self._times[place - 1] if place else -inf

    def did_something_else(self, decision: UUID, action: str) -> bool:
        """Return whether the application told that it took another action than was decided.

        Some tell what they did of every decision: the action that was decided is no other.

        Args:
            decision: its id.
            action: that was decided.
        """
        return not self._done.get(decision, set()) <= {action}


def credit_of(
    spec: DecisionPoint, decided: Decided, happened: Iterable[Happened], *, now: float
) -> Credit:
    """Return what a decision has earned by now.

    Args:
        spec: the declaration that it was made under.
        decided: the decision.
        happened: events that may credit it, in the order in which they happened.
        now: seconds since 1970.

    Returns:
        Its reward, or that it was withdrawn.

    Raises:
        InputError: an outcome that counts is no finite number.
    """
    course = happened if isinstance(happened, Course) else Course(happened)
    start = decided.at.timestamp()
    closes = start + spec.reward.window_s
    outcomes = course.latest(spec.reward.terms, closes)
    moment = max(now, course.newest(closes))
    if decided.final or now >= decided.window_ends.timestamp():
        moment = max(moment, closes)
    earned = evaluate_window(spec.reward, outcomes, decided_at=start, now=moment)
    if course.did_something_else(decided.id, decided.action):
        return Credit(None, "withdrawn", dict(earned.terms), earned.final)
    return Credit(earned.value, earned.status, dict(earned.terms), earned.final)


def is_learnable(decided: Decided) -> bool:
    """Return whether a policy may learn from a decision.

    Args:
        decided: the decision.

    Returns:
        False for answers of a fallback or of the client, for weight 0, and for what was erased or
        excluded.
    """
    return (
        decided.weight > 0
        and decided.p_kind in _LEARNABLE
        and not decided.degraded
        and not decided.barred
    )


def changed(before: float | None, after: float | None) -> tuple[float, float] | None:
    """Return the change of reward and of weight from what is learned to what should be.

    Args:
        before: the reward as it is learned; None if it is not.
        after: the reward as it should be; None if there is none.

    Returns:
        As `steersman.rewards.revision`; None when nothing changes.

    >>> changed(None, 0.5), changed(0.5, 0.75), changed(0.75, None), changed(0.75, 0.75)
    ((0.5, 1.0), (0.25, 0.0), (-0.75, -1.0), None)
    """
    if before == after:
        return None
    weight = float(after is not None) - float(before is not None)
    return (after or 0.0) - (before or 0.0), weight
