"""Diagnostics of importance weights, and reasons to refuse a log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData

    Floats = NDArray[np.float64]

MIN_EFFECTIVE_SAMPLE_SIZE = 100.0
MAX_WEIGHT_SHARE = 0.05
MAX_MEAN_WEIGHT_ERRORS = 5.0
MAX_UNSUPPORTED = 0.01

_DIGITS = 12  # of a figure: sums of the same weights in another order differ in later ones


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of the importance weights of a log.

    Args:
        n: Rows.
        units: Number of units named by the log; without names, number of rows.
        ess: Effective sample size, (sum of weights)^2 / sum of squared weights, where the weights
            of one unit are added up before they are squared; in units.
        max_weight: Largest weight of a row.
        max_weight_share: Largest weight of a unit over the sum of weights.
        mean_weight: Mean weight; 1 in expectation when the log supports the target.
        mean_weight_error: Its standard error, over units where the log names them.
        unsupported: Share of the target's actions that the log could not have drawn: in rows with
            propensity 1, and as given in ``missing``.
    """

    n: int
    units: int
    ess: float
    max_weight: float
    max_weight_share: float
    mean_weight: float
    mean_weight_error: float
    unsupported: float


def diagnose(data: LoggedData) -> Diagnostics:
    """Return the diagnostics of a log, also for a log without overlap.

    Args:
        data: The log and the target policy.

    Returns:
        The diagnostics.

    Source:
        Effective sample size: Kong (1992), A note on importance sampling using standardized
        weights. Mean weight as a check of propensities: Li, Chen, Kleban and Gupta (2015).
    """
    largest = float(data.weights.max())
    # Against the largest one, since squares of weights such as 1e200 leave float64.
    weights = data.weights / largest if largest > 0.0 else data.weights
    totals = unit_totals(data, weights)
    total = float(totals.sum())
    forced = data.propensities == 1.0
    missing = 0.0 if data.missing is None else data.missing
    return Diagnostics(
        n=len(data),
        units=len(totals),
        ess=size_of(totals),
        max_weight=largest,
        max_weight_share=share_of(totals),
        mean_weight=largest * (total / len(data)),
        mean_weight_error=largest * _mean_error(data, weights),
        unsupported=float(np.where(forced, 1.0 - data.chosen_target, missing).mean()),
    )


def size_of(totals: Floats) -> float:
    """Return the effective sample size of weights, 0 where all are 0.

    To twelve digits: a hundred equal ones must be worth a hundred, whatever they sum to in float64.

    Args:
        totals: Weights of units, scaled so that their squares are numbers, shape (units,).
    """
    total = float(totals.sum())
    return _rounded(total**2 / float(totals @ totals)) if total > 0.0 else 0.0


def share_of(totals: Floats) -> float:
    """Return the share of the largest weight in the sum, to twelve digits; 1 where all are 0.

    Args:
        totals: Weights of units, shape (units,).
    """
    total = float(totals.sum())
    return _rounded(float(totals.max()) / total) if total > 0.0 else 1.0


def _rounded(figure: float) -> float:
    return float(f"{figure:.{_DIGITS}g}")


def _told(figure: float, bound: float, digits: int) -> str:
    """Return a number with enough digits to show on which side of a bound it is."""
    while round(figure, digits) == bound and digits < _DIGITS:
        digits += 1
    return f"{figure:.{digits}f}"


def reasons_to_refuse(found: Diagnostics) -> list[str]:
    """Return the reasons to refuse a log; empty if the log is accepted.

    Args:
        found: The log's diagnostics.

    Returns:
        Sentences with the value, the limit and what to do.
    """
    logged, one, weight, asked = f"{found.n:,} rows", "row", "weight", "requests"
    if found.units < found.n:
        logged += f" of {found.units:,} unit{'s' if found.units > 1 else ''}"
        one, weight, asked = "unit", "rows' weight", "units"
    mean = f"{found.mean_weight:.4f}" if found.mean_weight < 1e6 else f"{found.mean_weight:.4g}"
    worth = _told(found.ess, MIN_EFFECTIVE_SAMPLE_SIZE, 1)
    share = _told(100.0 * found.max_weight_share, 100.0 * MAX_WEIGHT_SHARE, 1)
    lost = _told(100.0 * found.unsupported, 100.0 * MAX_UNSUPPORTED, 1)
    checks = {
        (
            f"Too little overlap: effective sample size {worth} {one}s (from {logged}); at least "
            f"{MIN_EFFECTIVE_SAMPLE_SIZE:.0f} needed. Log more {asked}, raise the floor, or "
            "evaluate a target closer to the logged policy."
        ): found.ess < MIN_EFFECTIVE_SAMPLE_SIZE,
        (
            f"One {one} dominates: its {weight} is {share}% of the sum of weights; at most "
            f"{MAX_WEIGHT_SHARE:.0%} allowed. Log more {asked} or raise the floor."
        ): found.max_weight_share > MAX_WEIGHT_SHARE,
        (
            f"Mean weight {mean}, {_distance(found)}. Check that the logged propensities are "
            "correct, and that the log has all actions of the target."
        ): mean_weight_is_off(found),
        (
            f"The log could not have drawn {lost}% of the target's actions; at most "
            f"{MAX_UNSUPPORTED:.0%} allowed: its propensity was 1 there, or the action was not a "
            "candidate. Log with a floor (explore: floor), raise leading, or remove these rows "
            "from both."
        ): found.unsupported > MAX_UNSUPPORTED,
    }
    return [reason for reason, applies in checks.items() if applies]


def mean_weight_is_off(found: Diagnostics) -> bool:
    """Return whether the mean weight is too far from 1; False for a single unit.

    Args:
        found: The log's diagnostics.

    Returns:
        True when it is more than 5 standard errors from 1.
    """
    allowed = MAX_MEAN_WEIGHT_ERRORS * found.mean_weight_error + 1e-9
    return found.units > 1 and abs(found.mean_weight - 1.0) > allowed


def _distance(found: Diagnostics) -> str:
    if found.mean_weight_error == 0.0:
        return "constant but not 1"
    errors = abs(found.mean_weight - 1.0) / found.mean_weight_error
    told = _told(errors, MAX_MEAN_WEIGHT_ERRORS, 1)
    return f"{told} standard errors from 1; allowed: at most {MAX_MEAN_WEIGHT_ERRORS:.0f}"


def unit_totals(data: LoggedData, values: Floats) -> Floats:
    """Return the sum of a column over each unit; the column itself where rows are units.

    Args:
        data: A log.
        values: Shape (n,).
    """
    if data.units is None:
        return values
    return np.bincount(data.units, weights=values).astype(np.float64)


def _mean_error(data: LoggedData, weights: Floats) -> float:
    """Return the standard error of the mean weight."""
    totals = unit_totals(data, weights - weights.mean())
    count = len(totals)
    if count < 2:
        return 0.0
    return math.sqrt(float(totals @ totals) * count / (count - 1)) / len(data)
