"""Whether a log can say anything about a target policy, and if not, why not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from steersman.ope.logged_data import LoggedData

MIN_EFFECTIVE_SAMPLE_SIZE = 100.0
MAX_WEIGHT_SHARE = 0.05
MAX_MEAN_WEIGHT_ERRORS = 5.0
MAX_UNSUPPORTED = 0.01


@dataclass(frozen=True)
class Diagnostics:
    """What the importance weights of a log look like.

    Args:
        n: Rows.
        ess: Effective sample size, (sum of weights)^2 / sum of squared weights, in rows.
        max_weight: Largest weight.
        max_weight_share: Largest weight over the sum of weights.
        mean_weight: Mean weight; 1 in expectation when the log supports the target.
        mean_weight_error: Its standard error, over units where the log names them.
        unsupported: Share of the target's choices in rows where the log had no other choice.
    """

    n: int
    ess: float
    max_weight: float
    max_weight_share: float
    mean_weight: float
    mean_weight_error: float
    unsupported: float


def diagnose(data: LoggedData) -> Diagnostics:
    """Return the diagnostics of a log; defined for every log, also one without any overlap.

    Args:
        data: The log and the target policy.

    Returns:
        The diagnostics.

    Source:
        Effective sample size: Kong (1992), A note on importance sampling using standardized
        weights. Mean weight as a check of propensities: Li, Chen, Kleban and Gupta (2015).
    """
    weights = data.weights
    total, largest = float(weights.sum()), float(weights.max())
    forced = data.propensities == 1.0
    return Diagnostics(
        n=len(data),
        ess=total**2 / float(weights @ weights) if total > 0.0 else 0.0,
        max_weight=largest,
        max_weight_share=largest / total if total > 0.0 else 1.0,
        mean_weight=total / len(data),
        mean_weight_error=_mean_error(data),
        unsupported=float(np.where(forced, 1.0 - data.chosen_target, 0.0).mean()),
    )


def reasons_to_refuse(found: Diagnostics) -> list[str]:
    """Return why the log is no evidence about the target; empty when it is.

    Args:
        found: The log's diagnostics.

    Returns:
        Plain sentences with the numbers seen, the bounds, and what to do.
    """
    off = abs(found.mean_weight - 1.0)
    allowed = MAX_MEAN_WEIGHT_ERRORS * found.mean_weight_error + 1e-9
    errors = off / found.mean_weight_error if found.mean_weight_error > 0.0 else math.inf
    checks = {
        f"Too little overlap: the {found.n:,} rows are worth {found.ess:.1f} rows of the target "
        f"policy, below {MIN_EFFECTIVE_SAMPLE_SIZE:.0f}. Log more requests, raise the floor, or "
        "evaluate a target nearer to the logged policy.": found.ess < MIN_EFFECTIVE_SAMPLE_SIZE,
        f"One row decides too much: its weight {found.max_weight:.4g} is "
        f"{found.max_weight_share:.1%} of the sum, above {MAX_WEIGHT_SHARE:.0%}. Log more "
        "requests or raise the floor.": found.max_weight_share > MAX_WEIGHT_SHARE,
        f"The mean weight is {found.mean_weight:.4f}, {errors:.1f} standard errors from 1, above "
        f"{MAX_MEAN_WEIGHT_ERRORS:.0f}. Either the propensities are not those with which actions "
        "were drawn, or the log lacks actions that the target takes: check both.": off > allowed,
        f"The log had no choice (propensity 1) where the target would have acted otherwise in "
        f"{found.unsupported:.1%} of its choices, above {MAX_UNSUPPORTED:.0%}. Log with a floor "
        "(explore: floor), or leave those rows out of both.": found.unsupported > MAX_UNSUPPORTED,
    }
    return [reason for reason, applies in checks.items() if applies]


def _mean_error(data: LoggedData) -> float:
    """Return the standard error of the mean weight."""
    centred = data.weights - data.weights.mean()
    totals = centred if data.units is None else np.bincount(data.units, weights=centred)
    count = len(totals)
    if count < 2:
        return 0.0
    return math.sqrt(float(totals @ totals) * count / (count - 1)) / len(data)
