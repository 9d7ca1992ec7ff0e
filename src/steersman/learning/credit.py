"""Credit assignment: the reward of a decision from its stored events.

The functions are pure, so the result can be verified. `evaluate_window` of the decision's own
declaration computes the reward. Stored facts take precedence over the clock: a stored outcome has
happened, and a closed window stays closed when the clock steps back.
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

    from steersman.db.rewards import RewardDecision, RewardEvent
    from steersman.spec.point import DecisionPoint

_LEARNABLE = {"exact", "imported", "none"}


class Credit(NamedTuple):
    """Reward of a decision.

    Attributes:
        value: 0 to 1, or None.
        status: scored, waiting, assumed, dropped; withdrawn if the application took another action;
            failed if no reward can be computed.
        terms: raw values by outcome.
        final: whether the window is closed.
    """

    value: float | None
    status: str
    terms: dict[str, float]
    final: bool


class Course(list["RewardEvent"]):
    """Index of the events of a decision or an episode, by name and time.

    Every decision of an episode gets credit for all its events. The index avoids a scan of the
    whole episode for each decision.
    """

    @cached_property
    def _times(self) -> list[float]:
        return sorted(event.at.timestamp() for event in self if event.outcomes)

    @cached_property
    def _by_name(self) -> dict[str, tuple[list[float], list[float]]]:
        found: dict[str, tuple[list[float], list[float]]] = {}
        for event in sorted(self, key=lambda one: one.at):  # stable for equal times
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
        """Return the latest outcome of each name; of two at the same time, the last.

        `closes`: Unix time in seconds; later outcomes do not count.

        Raises:
            InputError: an outcome is not a finite number.
        """
        return [Outcome(name, *last) for name, last in self.told(names, closes).items()]

    def told(self, names: Iterable[str], closes: float) -> dict[str, tuple[float, float]]:
        """Return value and time of the last outcome of each name, finite or not."""
        found = {}
        for name in names:
            times, values = self._by_name.get(name, ([], []))
            if place := bisect_right(times, closes):
                found[name] = values[place - 1], times[place - 1]
        return found

    def newest(self, closes: float) -> float:
        """Return the time of the latest outcome up to a moment.

        Args:
            closes: Unix time in seconds.

        Returns:
            Unix time in seconds; minus infinity if there is none.
        """
        place = bisect_right(self._times, closes)
        return self._times[place - 1] if place else -inf

    def did_something_else(self, decision: UUID, action: str) -> bool:
        """Return whether the application reported another action than the decided one.

        Some applications report the action of every decision; the decided action does not count.
        """
        return not self._done.get(decision, set()) <= {action}


def credit_of(
    spec: DecisionPoint, decided: RewardDecision, happened: Iterable[RewardEvent], *, now: float
) -> Credit:
    """Return the reward of a decision as of now.

    Args:
        now: Unix time in seconds.

    Raises:
        InputError: an outcome that counts is not a finite number.
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


def is_learnable(decided: RewardDecision) -> bool:
    """Return whether a policy may learn from a decision.

    False for decisions of a fallback or the client, with weight 0, erased or excluded.
    """
    return (
        decided.weight > 0
        and decided.p_kind in _LEARNABLE
        and not decided.degraded
        and not decided.barred
    )


def changed(before: float | None, after: float | None) -> tuple[float, float] | None:
    """Return the change in reward and weight from the learned to the wanted reward.

    Args:
        before: learned reward; None if not learned.
        after: wanted reward; None if there is none.

    Returns:
        As `steersman.rewards.revision`; None if nothing changes.

    >>> changed(None, 0.5), changed(0.5, 0.75), changed(0.75, None), changed(0.75, 0.75)
    ((0.5, 1.0), (0.25, 0.0), (-0.75, -1.0), None)
    """
    if before == after:
        return None
    weight = float(after is not None) - float(before is not None)
    return (after or 0.0) - (before or 0.0), weight
