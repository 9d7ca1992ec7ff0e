"""Forecast of the number of requests that an off-policy evaluation needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import ndtri

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.ope.arguments import check_log_and_seed
from steersman.ope.diagnostics import (
    MAX_UNSUPPORTED,
    MAX_WEIGHT_SHARE,
    MIN_EFFECTIVE_SAMPLE_SIZE,
    diagnose,
    mean_weight_is_off,
    unit_totals,
)
from steersman.ope.estimators import ESTIMATORS, Log
from steersman.ope.intervals import standard_error
from steersman.stats.arguments import as_number, check_truth

if TYPE_CHECKING:
    from steersman.ope.diagnostics import Diagnostics
    from steersman.ope.logged_data import LoggedData

# Square root of the most rows that a forecast may name.
_LARGEST_ROOT = 1e8


@dataclass(frozen=True)
class RequestsNeeded:
    """Forecast from a pilot log.

    Args:
        rows: Requests to log, of the pilot's kind; None when no number of them would do.
        by_power: Requests that show the effect with the wanted power.
        by_effective_sample_size: Requests whose weights are worth 100 of the target's, with the
            wanted power: of as many as reach that on average half would be refused.
        by_weight_share: Requests among which no weight seen so far exceeds 5 % of the sum; where
            the pilot names units, both count their added weights.
    """

    rows: int | None
    by_power: int
    by_effective_sample_size: int
    by_weight_share: int


def requests_needed(
    pilot: LoggedData,
    effect: float,
    *,
    estimator: Literal["ips", "snips", "dr"] = "dr",
    power: float = 0.8,
    level: float = 0.95,
    adaptive: bool = False,
    seed: int = 0,
) -> RequestsNeeded:
    """Return the number of requests that detect a difference of ``effect`` in the target's value.

    Scales the pilot's noise and weights to longer logs of the same kind. Assumes that traffic,
    logging policy and floor stay as they were. A pilot that never met the rare large weights makes
    the forecast too small. Below an effective sample size of about 30 treat it as a lower bound;
    also if an action of the target always failed or never failed in the pilot, because that
    uncertainty widens the intervals.

    Args:
        pilot: A log of some hundred rows, with the target policy.
        effect: Difference worth finding, in the reward's unit, not 0; the other value is known
            (the logged policy's value or a gate).
        estimator: Whose noise is scaled: ``"ips"``, ``"snips"`` or ``"dr"``.
        power: Wanted probability that the interval excludes the other value, in (0, 1).
        level: Confidence level of the interval, in (0, 1).
        adaptive: Whether the logging policy learned from these rewards.
        seed: Seed of the reward models' folds.

    Returns:
        The forecast; ``rows`` is None when the pilot's mean weight or its lack of choice shows that
        propensities or support are wrong, which more rows cannot mend.

    Raises:
        InputError: Argument out of range, ``adaptive`` is neither true nor false, no
            pilot row has weight, or all rewards that have weight are alike.

    Example:
        >>> from steersman.ope import LoggedData
        >>> rng = np.random.default_rng(0)
        >>> actions = rng.choice(3, 500, p=[0.9, 0.05, 0.05])
        >>> propensities = np.array([0.9, 0.05, 0.05])[actions]
        >>> target = np.tile([0.0, 1.0, 0.0], (500, 1))
        >>> pilot = LoggedData(actions, rng.random(500) < 0.5, propensities, target)
        >>> requests_needed(pilot, 0.05).rows
        17610

    Source:
        Normal power of a Wald interval, n = ((z_{1-alpha/2} + z_power) sd / effect)^2, with the
        pilot's linearised sd. Against simulated power: ``tests/ope/test_requests_needed.py``.
    """
    effect, power, level = _numbers(effect=effect, power=power, level=level)
    quantiles = _quantiles(effect, power, level)
    check_log_and_seed(pilot, seed)
    check_truth("adaptive", adaptive)
    named: object = estimator
    if not isinstance(named, str) or named not in {"ips", "snips", "dr"}:
        message = f"estimator is {brief(estimator)}; allowed: 'ips', 'snips' and 'dr'"
        raise InputError(message)
    found = _diagnosed(pilot)
    weighted = pilot.rewards[pilot.weights > 0.0]
    if np.ptp(weighted) <= 1e-12 * np.abs(weighted).max():  # but for rounding
        message = (
            f"all rewards of the pilot that have weight are {weighted[0]:g}, so their variance "
            "is unknown; log until some rewards differ"
        )
        raise InputError(message)
    rounds = ESTIMATORS[estimator].rounds(Log(pilot, adaptive=adaptive, seed=seed))
    row_sd = standard_error(rounds, pilot.units) * math.sqrt(len(pilot))
    by_power = _rows_by_power(quantiles, row_sd, effect)
    by_size = _rows_by_size(pilot, power)
    by_share = math.ceil(found.max_weight_share * len(pilot) / MAX_WEIGHT_SHARE)
    hopeless = mean_weight_is_off(found) or found.unsupported > MAX_UNSUPPORTED
    rows = None if hopeless else max(2, by_power, by_size, by_share)
    return RequestsNeeded(rows, by_power, by_size, by_share)


def _diagnosed(pilot: LoggedData) -> Diagnostics:
    found = diagnose(pilot)
    if found.ess == 0.0 or found.units < 2:
        message = (
            f"the pilot's {len(pilot)} rows have weights that sum to {pilot.weights.sum():g}; "
            "allowed: above 0 over at least 2 rows (or units); log more actions that the "
            "target takes"
        )
        raise InputError(message)
    return found


def _rows_by_size(pilot: LoggedData, power: float) -> int:
    """Return how many rows have an effective sample size of 100 with a probability.

    That of G units is G (mean w)^2 / mean w^2; its spread is that of what each adds, linearised.
    """
    totals = unit_totals(pilot, pilot.weights / pilot.weights.max())
    mean, square = float(totals.mean()), float((totals * totals).mean())
    worth = mean * mean / square
    adds = 2.0 * (mean / square) * totals - (mean / square * totals) ** 2
    slack = max(0.0, float(ndtri(power))) * float(adds.std())
    root = (slack + math.sqrt(slack**2 + 4.0 * worth * MIN_EFFECTIVE_SAMPLE_SIZE)) / (2.0 * worth)
    return math.ceil(root * root * len(pilot) / len(totals) - 1e-9)  # but for rounding


def _rows_by_power(quantiles: float, row_sd: float, effect: float) -> int:
    root = abs(quantiles * row_sd / effect)
    if not root < _LARGEST_ROOT:
        message = (
            f"effect is {brief(effect)} at a standard deviation of {row_sd:.4g}: no number of "
            f"rows up to {_LARGEST_ROOT**2:.0e} detects it; allowed: larger effects"
        )
        raise InputError(message)
    return math.ceil(root * root)


def _numbers(**given: Any) -> tuple[float, ...]:
    """Return float64 for each: narrower numbers know no limit so high, and others no ndtri."""
    numbers = tuple(as_number(value) for value in given.values())
    for (name, value), number in zip(given.items(), numbers, strict=True):
        if not (isinstance(value, Real) and math.isfinite(number)):
            message = f"{name} is {brief(value)}; allowed: a finite number"
            raise InputError(message)
    return numbers


def _quantiles(effect: float, power: float, level: float) -> float:
    if effect == 0.0:
        message = f"effect is {brief(effect)}; allowed: a finite number other than 0"
        raise InputError(message)
    if not (0.0 < level < 1.0 and 1.0 - level < power < 1.0):
        message = (
            f"level is {level!r}, power {power!r}; allowed: levels in (0, 1) and powers "
            "between 1 - level and 1"
        )
        raise InputError(message)
    return float(np.sum(ndtri([1.0 - (1.0 - level) / 2.0, power])))
