"""What a decision has earned by now, from the rows of its events; pure, so it can be verified.

The reward is `evaluate_window` of the declaration that the decision was made under. Two things a
stored row knows better than a clock: an outcome that is stored has happened, whichever clock is
ahead; and a window that was found closed stays closed, also when the clock steps back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from steersman.rewards import Outcome, evaluate_window

if TYPE_CHECKING:
    from collections.abc import Iterable

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

    No doctest: a value; ``tests/learn/test_crediting.py`` shows where it is made.
    """

    value: float | None
    status: str
    terms: dict[str, float]
    final: bool


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
        InputError: an outcome that is no finite number.

    No doctest: it needs rows; ``tests/learn/test_crediting.py`` shows it.
    """
    events = list(happened)
    outcomes = [
        Outcome(name, value, event.at.timestamp())
        for event in events
        for name, value in (event.outcomes or {}).items()
    ]
    start = decided.at.timestamp()
    closes = start + spec.reward.window_s
    moment = max([now, *(outcome.at for outcome in outcomes if outcome.at <= closes)])
    if decided.final or now >= decided.window_ends.timestamp():
        moment = max(moment, closes)
    earned = evaluate_window(spec.reward, outcomes, decided_at=start, now=moment)
    if any(event.action_taken is not None and event.decision == decided.id for event in events):
        return Credit(None, "withdrawn", dict(earned.terms), earned.final)
    return Credit(earned.value, earned.status, dict(earned.terms), earned.final)


def is_learnable(decided: Decided) -> bool:
    """Return whether a policy may learn from a decision.

    Args:
        decided: the decision.

    Returns:
        False for answers of a fallback or of the client, for weight 0, and for what was erased or
        excluded.

    No doctest: it needs rows; ``tests/learn/test_crediting.py`` shows it.
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
