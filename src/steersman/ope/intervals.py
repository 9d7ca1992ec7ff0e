"""Confidence intervals of a ratio of sums: Wald, score and empirical Bernstein."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import linalg
from scipy.special import ndtri, stdtrit

from steersman.stats import Interval, all_alike_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData
    from steersman.ope.rounds import Rounds

    Floats = NDArray[np.float64]
    Units = NDArray[np.int64] | None
    # The shares of columns in rows, each given by places.
    _Taken = Callable[[Any, Any], Floats]

_UNBOUNDED = 1e100  # times the noise that any mean of a range can have
_ROUNDING = 1e-12  # of the range of rewards: sums of the same terms differ by less, and are alike
_ALIKE = 1.0 - 1e-9  # weights that are nearer to one another are equal
_CHANCE = 0.25  # below this probability, equal rewards of the heaviest rows count as a pattern
_SMALL = 0.01  # share of the target below which one action hardly matters


def standard_error(rounds: Rounds, units: Units) -> float:
    """Return the standard error of the estimate.

    Without units it is the martingale variance, the sum of squared residuals: the rounds of an
    adaptive log are uncorrelated given the past, so the same formula serves both kinds of log. With
    units, residuals are summed within each unit first.

    Args:
        rounds: The estimator's terms.
        units: Number of each row's unit, or None.

    Returns:
        Standard error, in the reward's unit.
    """
    residuals = rounds.residuals()
    totals = residuals if units is None else np.bincount(units, weights=residuals)
    count = len(totals)
    if count < 2:
        return math.inf
    # scipy's norm scales before it squares, so that large rewards do not overflow.
    return float(linalg.norm(totals)) * math.sqrt(count / (count - 1)) / len(residuals)


def wald(rounds: Rounds, units: Units, level: float) -> Interval:
    """Return the normal interval; with units, Student's with one degree less than units.

    Args:
        rounds: The estimator's terms.
        units: Number of each row's unit, or None.
        level: Confidence level, in (0, 1).

    Returns:
        An interval that is symmetric about the value.

    Source:
        Ratio: Owen (2013), Monte Carlo theory, methods and examples, equation 9.9. Units: Liang and
        Zeger (1986), with the factor G / (G - 1). Coverage: ``tests/ope/test_coverage.py``.
    """
    half = _half_width(rounds, units, level)
    return Interval(rounds.value - half, rounds.value + half)


def score(rounds: Rounds, units: Units, level: float, span: tuple[float, float]) -> Interval:
    """Return the normal interval of a mean whose noise shrinks towards the ends of a range.

    For a candidate μ the squared standard error is that of the value v, times what a reward at
    either end of the range would have at μ over what it would have at v; μ stays unless it is as
    many of these from v as the normal law allows. Near an end, where what happened by luck also
    makes the noise look small, it reaches farther to the middle and less far to the end.

    Args:
        rounds: The estimator's terms.
        units: Number of each row's unit, or None.
        level: Confidence level, in (0, 1).
        span: Smallest and largest possible reward.

    Returns:
        An interval within `span`; `wald`'s where the estimator has noise also when all rewards are
        one value (IPS), or where the value is not inside `span`.

    Source:
        Wilson (1927), Probable inference, the law of succession, and statistical inference, with
        v (1 - v) / se² for the number of draws: Korn and Graubard (1998), Confidence intervals for
        proportions with small expected number of positive counts estimated from survey data, Survey
        Methodology 24. Coverage: ``tests/ope/test_score.py``.
    """
    low, high = span
    width = high - low
    value = (rounds.value - low) / width
    if not (rounds.centred and 0.0 < value < 1.0):
        return wald(rounds, units, level)
    half = _half_width(rounds, units, level) / width
    noise = half * half / (value * (1.0 - value))
    if not noise < _UNBOUNDED:
        return Interval(low, high)
    middle = (value + noise / 2.0) / (1.0 + noise)
    half = math.sqrt(noise * value * (1.0 - value) + noise**2 / 4.0) / (1.0 + noise)
    return Interval(low + width * (middle - half), low + width * (middle + half))


def _half_width(rounds: Rounds, units: Units, level: float) -> float:
    """Return how far the normal law, or with units Student's, lets the value be off."""
    tail = (1.0 - level) / 2.0
    if units is None:
        quantile = float(-ndtri(tail))
    else:
        quantile = float(-stdtrit(max(int(units.max()), 1), tail))
    return quantile * standard_error(rounds, units)


def no_narrower(
    ends: Interval, rewards: Floats, ess: float, span: tuple[float, float], level: float
) -> Interval | None:
    """Return an interval at least as wide as the rewards with weight allow.

    Where these are all one value, nothing is seen of their noise, and an interval made of it says
    that a hundred right answers prove all to be right. What as many units that are all alike leave
    open is then the least that it covers. For some actions alone, see `left_open`.

    Args:
        ends: The interval that the noise makes.
        rewards: Those that have weight.
        ess: Their effective sample size, ≥ 1.
        span: Smallest and largest possible reward.
        level: Confidence level, in (0, 1).

    Returns:
        `ends` where the rewards differ; None where they do not and their value is outside `span`,
        so that the possible range is unknown.

    Source:
        `steersman.stats.all_alike_interval`, with the effective sample size as units. Coverage:
        ``tests/ope/test_all_alike.py``.
    """
    least, most = float(rewards.min()), float(rewards.max())
    slack = _ROUNDING * (span[1] - span[0])
    if most - least > slack:
        return ends
    if not span[0] - slack <= least <= most <= span[1] + slack:
        return None
    least = min(max(least, span[0]), span[1])
    alike = all_alike_interval(least, int(ess), low=span[0], high=span[1], level=level)
    return Interval(min(ends.low, alike.low), max(ends.high, alike.high))


def left_open(data: LoggedData, span: tuple[float, float], level: float) -> tuple[float, float]:
    """Return how much the value may be off, below and above, by actions that showed no noise.

    An action that never failed in a hundred draws adds nothing to a standard error, though it may
    fail in three of a hundred; where the target mostly takes it, that is most of what is not known.
    So are the decisions of an action that weigh most, if all that differ from them weigh less: one
    that is taken where it suits shows its failures where it does not, and these count little.
    Actions whose heaviest rewards are all one value, the same for all of them, are taken together:
    what as many units that are all alike leave open, times what the target takes of them there.
    Actions that one row drew, or one unit, and of which the target takes a hundredth at most are
    judged together: where these rewards differ from one another, they did show their noise. So did
    an action whose heaviest are alike by chance, as the shares of its rewards let one expect.

    Args:
        data: The log, of which some rows have weight; its columns are actions.
        span: Smallest and largest possible reward; where rewards that are seen pass it, these.
        level: Confidence level, in (0, 1).

    Returns:
        Two numbers of at least 0: both are 0 where the heaviest rewards of every action differ, or
        where all are one value (see `no_narrower`).

    Source:
        `steersman.stats.all_alike_interval`; errors of groups that are not alike add up as
        independent ones do. Coverage: ``tests/ope/test_all_alike.py``.
    """
    rewards = data.rewards[data.weights > 0.0]
    if rewards.max() - rewards.min() <= _slack(rewards, span):
        return 0.0, 0.0
    return _left_open(data, lambda rows, places: data.target[rows, places], span, level)


def left_open_between(
    first: LoggedData, second: LoggedData, span: tuple[float, float], level: float
) -> tuple[float, float]:
    """Return how much a difference of two targets' values may be off, as `left_open` does of one.

    What an action gives up and what it gains are separate errors: a row's rewards of an action
    that never failed hide failures, which one of the targets would meet more often.

    Args:
        first: The log with one target.
        second: The same log with another.
        span: Smallest and largest possible reward.
        level: Confidence level, in (0, 1).

    Returns:
        Below and above, at least 0.
    """

    def moved(sign: float) -> _Taken:
        return lambda rows, places: np.maximum(
            sign * (second.target[rows, places] - first.target[rows, places]), 0.0
        )

    gained = _left_open(first, moved(1.0), span, level)
    lost = _left_open(first, moved(-1.0), span, level)
    return math.hypot(gained[0], lost[1]), math.hypot(gained[1], lost[0])


def left_open_by_heaviest(
    rewards: Floats, weights: Floats, units: Units, span: tuple[float, float], level: float
) -> tuple[float, float]:
    """Return how much a value may be off by its heaviest rows, where these are all one value.

    As `left_open`, of rows that are all of one kind.

    Args:
        rewards: Of the rows with weight, (n,).
        weights: (n,).
        units: Number of each row's unit, or None.
        span: Smallest and largest possible reward; where rewards that are seen pass it, these.
        level: Confidence level, in (0, 1).

    Returns:
        Below and above, at least 0.
    """
    if not weights.any() or rewards.max() - rewards.min() <= _slack(rewards, span):
        return 0.0, 0.0
    one = np.zeros(len(rewards), np.int64)
    return _open_in_groups(one, rewards, weights, lambda _: 1.0, units, span, level)


def _left_open(
    data: LoggedData, taken: _Taken, span: tuple[float, float], level: float
) -> tuple[float, float]:
    """Return what actions leave open whose shares ``taken(rows, columns)`` count.

    Only columns without noise are examined, since a log may have thousands. If columns are not
    actions, their means do not give the share of an action; the weights do.
    """
    weights = taken(np.arange(len(data)), data.actions) / data.propensities
    if not weights.any():
        return 0.0, 0.0
    arms = data.arms if data.names is None else _with_rare_ones_together(data)
    seen = None if data.has_columns else np.bincount(arms, weights) / len(data)

    def share(arm: int) -> float:
        if seen is None:
            return float(taken(slice(None), arm).mean())
        return min(1.0, float(seen[arm]))

    return _open_in_groups(arms, data.rewards, weights, share, data.units, span, level)


def _with_rare_ones_together(data: LoggedData) -> NDArray[np.int64]:
    """Return what each row drew, where all that one row or one unit drew is one kind.

    Of a passage that is offered once nothing can be said, but of all of these together.
    """
    count = int(data.arms.max()) + 1
    once = _of_one_unit(data.arms, np.ones(len(data), np.bool_), data.units, count)
    return np.where(once[data.arms], count, data.arms)


def _open_in_groups(
    groups: NDArray[np.int64],
    rewards: Floats,
    weights: Floats,
    share: Callable[[int], float],
    units: Units,
    span: tuple[float, float],
    level: float,
) -> tuple[float, float]:
    """Return how much a mean may be off by groups whose heaviest rows showed no noise.

    What it has of a group, in [0, 1], is ``share(group)``.
    """
    seen = weights > 0.0
    slack = _slack(rewards[seen], span)
    span = min(span[0], float(rewards[seen].min())), max(span[1], float(rewards[seen].max()))
    values, near, alike = _heaviest_alike(groups, rewards, weights, slack)
    once = _of_one_unit(groups[alike], alike, units, len(values))
    part = np.bincount(groups[alike], weights[alike], len(values))
    whole = np.bincount(groups[seen], weights[seen], len(values))
    rows, fitting, heaviest = (
        np.bincount(groups[which], minlength=len(values)) for which in (seen, seen & near, alike)
    )
    by_chance = (fitting / np.maximum(rows, 1)) ** heaviest
    told = (part == whole) | (~once & (by_chance < _CHANCE))
    quiet = np.flatnonzero((part > 0.0) & told)
    shares = np.array([share(int(place)) for place in quiet]) * (part[quiet] / whole[quiet])
    once = once[quiet] & (shares <= _SMALL)
    if once.any() and float(np.ptp(values[quiet[once]])) > slack:
        quiet, shares = quiet[~once], shares[~once]
    order = np.argsort(values[quiet])
    quiet, shares = quiet[order], shares[order]
    edges = np.flatnonzero(np.diff(values[quiet]) > slack) + 1
    down, up = 0.0, 0.0
    for same, held in zip(np.split(quiet, edges), np.split(shares, edges), strict=True):
        if len(same):
            value, mass = float(values[same[0]]), float(held.sum())
            which = alike & np.isin(groups, same)
            size = _worth(weights[which], None if units is None else units[which])
            low, high = all_alike_interval(value, size, low=span[0], high=span[1], level=level)
            down, up = math.hypot(down, mass * (value - low)), math.hypot(up, mass * (high - value))
    return down, up


def _heaviest_alike(
    groups: NDArray[np.int64], rewards: Floats, weights: Floats, slack: float
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return what each group's heaviest earned, who earned it, and the heaviest that all did.

    These end at the first that earned otherwise: of rows of equal weight all are in, or none.
    """
    count = int(groups.max()) + 1
    most, values, less = np.zeros(count), np.zeros(count), np.zeros(count)
    np.maximum.at(most, groups, weights)
    top = weights >= _ALIKE * most[groups]
    values[groups[top]] = rewards[top]
    near = np.abs(rewards - values[groups]) <= slack
    np.maximum.at(less, groups[~near], weights[~near])
    return values, near, _ALIKE * weights > less[groups]


def _of_one_unit(
    actions: NDArray[np.int64], seen: NDArray[np.bool_], units: Units, count: int
) -> NDArray[np.bool_]:
    """Return whether all rows that drew an action are one unit's, (count,)."""
    drawers = np.flatnonzero(seen) if units is None else units[seen]
    first, last = np.full(count, len(seen)), np.full(count, -1)
    np.minimum.at(first, actions, drawers)
    np.maximum.at(last, actions, drawers)
    return np.asarray(first == last)


def _slack(rewards: Floats, span: tuple[float, float]) -> float:
    """Return by how much rewards that are alike may differ."""
    low, high = min(span[0], float(rewards.min())), max(span[1], float(rewards.max()))
    return _ROUNDING * (high - low)


def widened(ends: Interval, value: float, opened: tuple[float, float]) -> Interval:
    """Return an interval with what is left open added to its sides, as an independent error is.

    Args:
        ends: The interval that the noise makes.
        value: The estimate.
        opened: What `left_open` found.

    Returns:
        An interval that holds `ends`.
    """
    below, above = max(value - ends.low, 0.0), max(ends.high - value, 0.0)
    low, high = value - math.hypot(below, opened[0]), value + math.hypot(above, opened[1])
    return Interval(min(low, ends.low), max(high, ends.high))


def _worth(weights: Floats, units: Units) -> int:
    """Return the effective sample size of some rows, in units where the log names them."""
    scaled = weights / weights.max()
    totals = scaled if units is None else np.bincount(units, weights=scaled)
    return max(1, int(totals.sum() ** 2 / (totals @ totals)))


def bernstein(rounds: Rounds, units: Units, level: float) -> Interval:
    """Return the set of values that the empirical-Bernstein bound does not exclude.

    For a candidate value V the terms numerator - V denominator have mean 0 and never leave a range
    of width ``span``; V stays unless their mean is farther from 0 than the bound allows. Solving
    the quadratic for V makes it valid for self-normalised ratios too, where no bound on the ratio
    itself is known.

    Assumes independent rounds (or units). On adaptive logs it is neither proved nor simulated here.

    Args:
        rounds: The estimator's terms.
        units: Number of each row's unit, or None; a unit's range grows with its rows.
        level: Confidence level, in (0, 1).

    Returns:
        The interval; infinite where the denominator may be 0.

    Source:
        Maurer and Pontil (2009), Theorem 4, inverted. Coverage: ``tests/ope/test_coverage.py``.
    """
    denominator, span = rounds.denominator, rounds.span
    if not denominator.sum():
        return Interval(-math.inf, math.inf)
    value = rounds.value
    # Around the value, which changes nothing of the rule: far from 0 its squares would cancel.
    numerator = rounds.numerator - value * denominator
    if units is not None:
        numerator = np.bincount(units, weights=numerator).astype(np.float64)
        denominator = np.bincount(units, weights=denominator).astype(np.float64)
        span *= int(np.bincount(units).max())
    count = len(numerator)
    # A bound of 1e100 on what a term can be bounds nothing (nor could its square be taken).
    if count < 2 or not span < 1e130:
        return Interval(-math.inf, math.inf)
    log_term = math.log(4.0 / (1.0 - level))
    slack = 7.0 * span * log_term / (3.0 * (count - 1))
    noise = 2.0 * log_term / count * np.cov(numerator, denominator)
    means = float(numerator.mean()), float(denominator.mean())
    low, high = (_end(means, noise, slack, side=side) for side in (-1.0, 1.0))
    return Interval(value + low, value + high)


def _end(means: tuple[float, float], noise: Floats, slack: float, *, side: float) -> float:
    """Return the V that solves mean(numerator - V denominator) = -side * bound(V)."""
    shifted, slope = means[0] + side * slack, means[1]
    square = slope**2 - noise[1, 1]
    if square <= 0.0:
        return side * math.inf
    linear = shifted * slope - noise[0, 1]
    constant = shifted**2 - noise[0, 0]
    return float((linear + side * math.sqrt(max(linear**2 - square * constant, 0.0))) / square)
