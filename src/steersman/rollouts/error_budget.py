"""Burn rate of the error budget over several windows.

With a budget of 1 % over thirty days, 1 % errors use it up exactly in time: burn rate 1. An alarm
needs the rate in two windows. The long one prevents an alarm after one bad minute. The short one, a
twelfth of it, ends the alarm with the errors. Windows are fractions of the budget's period: hours
in production, seconds in a demo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.rollouts.plan import PlannedBudget, Worse

_SHORT = 12


class BurnWindow(NamedTuple):
    """Pair of windows with a maximum burn rate; it is exceeded only if both windows reach it.

    Attributes:
        long_s: length of the long window in seconds.
        short_s: length of the short window in seconds.
        rate: maximum burn rate.
        worse: consequence.
    """

    long_s: float
    short_s: float
    rate: float
    worse: Worse


class Counts(NamedTuple):
    """Errors of one arm in a time window that ends now.

    Attributes:
        seconds: length of the window in seconds.
        bad: number of decisions with an error.
        total: number of decisions.
    """

    seconds: float
    bad: float
    total: float


class Burn(NamedTuple):
    """Burn rate that both windows reached.

    Attributes:
        window: the windows.
        long_rate: rate in the long window.
        short_rate: rate in the short window.
        bad: number of errors in the long window.
    """

    window: BurnWindow
    long_rate: float
    short_rate: float
    bad: float


def burn_windows(budget: PlannedBudget) -> tuple[BurnWindow, ...]:
    """Return the windows of a budget.

    Example:
        >>> from steersman.rollouts.plan import PlannedBudget
        >>> [(window.long_s, window.short_s) for window in burn_windows(PlannedBudget())]
        [(3600.0, 300.0), (21600.0, 1800.0), (259200.0, 21600.0)]

    Source:
        Beyer et al. (2018), The Site Reliability Workbook, chapter 5, table 5-8.
    """
    rates: tuple[tuple[int, float, Worse], ...] = (
        (720, budget.fast_burn, "roll_back"),
        (120, budget.medium_burn, "roll_back"),
        (10, budget.slow_burn, "hold"),
    )
    return tuple(
        BurnWindow(budget.period_s / part, budget.period_s / part / _SHORT, rate, worse)
        for part, rate, worse in rates
    )


def stretches(budget: PlannedBudget) -> tuple[float, ...]:
    """Return the lengths of all windows whose errors are counted.

    Returns:
        Lengths in seconds, the shortest first.

    Example:
        >>> from steersman.rollouts.plan import PlannedBudget
        >>> stretches(PlannedBudget(period_s=7200.0))
        (0.8333333333333334, 5.0, 10.0, 60.0, 720.0)
    """
    lengths = {length for window in burn_windows(budget) for length in window[:2]}
    return tuple(sorted(lengths))


def burn_rate(budget: PlannedBudget, bad: float, total: float) -> float:
    """Return the burn rate: observed error rate divided by the allowed one.

    Args:
        bad: decisions with an error, 0 to ``total``.

    Returns:
        The rate; at 1 the budget lasts exactly its period; 0 without decisions.

    Raises:
        InputError: invalid counts, or more errors than decisions.

    Example:
        >>> from steersman.rollouts.plan import PlannedBudget
        >>> round(burn_rate(PlannedBudget(objective=0.99), 5, 100), 6)
        5.0
    """
    if not 0.0 <= bad <= total < float("inf"):
        message = (
            f"invalid counts: {bad!r} errors of {total!r} decisions; expected 0 <= bad <= total"
        )
        raise InputError(message)
    return bad / total / (1.0 - budget.objective) if total else 0.0


def burning(budget: PlannedBudget, counts: Iterable[Counts]) -> list[Burn]:
    """Return the burn rates that are too high now.

    Raises:
        InputError: invalid counts.

    Example:
        >>> from steersman.rollouts.plan import PlannedBudget
        >>> hour, minutes = Counts(3600.0, 30, 200), Counts(300.0, 4, 20)
        >>> [burn.window.worse for burn in burning(PlannedBudget(), [hour, minutes])]
        ['roll_back']
    """
    by_length = {count.seconds: count for count in counts}
    found = []
    for window in burn_windows(budget):
        long, short = by_length.get(window.long_s), by_length.get(window.short_s)
        if long is None or short is None or long.bad < budget.min_errors:
            continue
        rates = burn_rate(budget, *long[1:]), burn_rate(budget, *short[1:])
        if min(rates) >= window.rate:
            found.append(Burn(window, *rates, long.bad))
    return found
