"""Stabilised weights for adaptive logs.

A learning policy's propensities wander, and with them the variance of a round; worse, they wander
*because of* the noise that came before (an arm that was lucky is explored more). The studentised
sum is then no longer normal. Dividing each round by the standard deviation that the past predicts
for it gives increments of equal variance, for which a martingale central limit theorem holds.

Rounds that are weighted so speak more of the times at which the log explored much. Where rewards or
requests move over time, that is another mean than the log's, so what the factors do to the value is
looked at: as far as it is more than noise, they are taken back (`drift_share`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import numpy as np
from scipy import linalg
from scipy.linalg import blas

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData

    Floats = NDArray[np.float64]


class Levelled(Protocol):
    """What `levelled` takes: an estimate of rounds, as `Rounds`, or the difference of two."""

    @property
    def value(self) -> float:
        """The estimate, in the reward's unit."""
        ...

    def residuals(self) -> Floats:
        """Return each round's share in the error, shape (n,), mean 0."""
        ...

    def scaled(self, factors: Floats) -> Self:
        """Return the same with each round multiplied by a factor, shape (n,)."""
        ...

    def noisier(self, residuals: Floats) -> Self:
        """Return the same value with something added to each round's share in the error."""
        ...


Estimate = TypeVar("Estimate", bound=Levelled)

# Draws of an arm over which its recent propensities are averaged.
_MEMORY = 50

# Smallest propensity that is told from smaller ones.
_RAREST = 1e-140

# Squared standard errors of a gap that are taken for noise; see ADR 0032.
_DOUBT = 2.0

# Rows before which nothing is predicted: they take the first prediction made after them.
_BURN_IN = 100


def stabilisers(data: LoggedData) -> Floats:
    """Return a factor for each round: 1 over the standard deviation predicted for its weight.

    The second moment of the importance weight, sum_a E[pi(a|x)^2 / g_t(a|x)], is predicted from the
    propensities of earlier rows only, so the factors cannot know a round's outcome; the first
    hundred rows share what is predicted after them. The estimate
    stays consistent; being tied to the past, it is no longer exactly unbiased (about a tenth of a
    standard error towards the arms' early failures where the arms are equal).

    Args:
        data: An adaptive log in its order.

    Returns:
        Positive factors with mean 1, shape (n,).

    Source:
        Bibaut, Dimakopoulou, Kallus, Chambaz and van der Laan (2021), Post-contextual-bandit
        inference; Hadad, Hirshberg, Zhan, Wager and Athey (2021), Confidence intervals for policy
        evaluation in adaptive experiments. Departures: a log holds the propensity of the drawn
        action alone, so the others' come from each arm's latest draws and from how long it has not
        been drawn; and the reward's variance, about constant over time, is left out. Coverage:
        ``tests/ope/test_adaptive_coverage.py``.
    """
    moments = np.zeros(len(data))
    draws = np.bincount(data.actions, minlength=data.target.shape[1])
    # Beside what every row drew (`drawn_or_another`) all else is no arm, and has no weights.
    always = draws == len(data)
    for arm in np.flatnonzero(always if always.any() else data.target.any(axis=0)):
        moments += _arm_moments(data, int(arm))
    moments[:_BURN_IN] = moments[min(_BURN_IN, len(data) - 1)]
    # A weight's mean is 1, so its second moment is at least that.
    factors = 1.0 / np.sqrt(np.maximum(moments, 1.0))
    return np.asarray(factors / factors.mean())


def levelled(rounds: Estimate, factors: Floats, units: NDArray[np.int64] | None) -> Estimate:
    """Return rounds whose noise is level over time, as far as the log does not drift.

    Args:
        rounds: The estimator's terms.
        factors: Of `stabilisers`, of mean 1.
        units: Number of each row's unit, or None.

    Returns:
        The rounds, scaled by the factors; nearer to how they were, the more the value moves by it.
        Their residuals have the noise of the share that was taken back, too.
    """
    scaled = rounds.scaled(factors)
    apart = rounds.residuals() - scaled.residuals()
    share = drift_share(rounds.value - scaled.value, apart, units)
    if not share:
        return scaled
    taken_back = rounds.scaled(factors + share * (1.0 - factors))
    return taken_back.noisier(noise_of_share(share) * apart)


def drift_share(gap: float, residuals: Floats, units: NDArray[np.int64] | None) -> float:
    """Return which share of the factors' effect on a value is drift: gap² / (gap² + 2 se²).

    Where nothing drifts, the gap is noise with the standard error se, and a quarter of the factors'
    effect is taken back, which costs a twenty-fifth of the interval's width; where the gap is ten
    standard errors, all but a fiftieth.

    Args:
        gap: The value without the factors less that with them.
        residuals: What each row has in the gap's error, shape (n,).
        units: Number of each row's unit, or None.

    Returns:
        In [0, 1].

    Source:
        A shrinkage of the gap as by a Wiener filter, with its square for its power. Coverage:
        ``tests/ope/test_drift.py``.

    >>> drift_share(0.0, np.zeros(2), None), round(drift_share(1.0, np.array([1.0, -1.0]), None), 3)
    (0.0, 0.5)
    """
    if gap == 0.0:
        return 0.0
    totals = residuals if units is None else np.bincount(units, weights=residuals)
    noise = float(linalg.norm(totals)) / len(residuals)
    return (gap / math.hypot(gap, math.sqrt(_DOUBT) * noise)) ** 2


def noise_of_share(share: float) -> float:
    """Return how much of the gap's noise a share of `drift_share` adds to what it takes back.

    The share looks at the gap, and moves with its noise. What is taken back, g s(g), changes with g
    by s + g s'(g) = s (3 - 2 s), of which s is in the factors already.

    Args:
        share: In [0, 1].

    Returns:
        2 s (1 - s), in [0, 0.5].

    Source:
        The delta method. Coverage: ``tests/ope/test_drift.py``.

    >>> noise_of_share(0.5), noise_of_share(1.0)
    (0.5, 0.0)
    """
    return 2.0 * share * (1.0 - share)


def _arm_moments(data: LoggedData, arm: int) -> Floats:
    """Return E[pi(arm|x)^2 / g(arm|x)] as each row's past predicts it.

    A draw shows a context with probability proportional to g, so draws are averaged with weight
    1 / g to speak for all contexts. An arm that has not been drawn for m rows has g of about 1/m at
    most: without that, a policy that drops an arm would go unnoticed until its next draw.

    A column that is drawn in every row stands for all arms, each by its own g (`drawn_or_another`):
    its draws speak for all contexts as they are.
    """
    drawn = data.actions == arm
    draws = np.flatnonzero(drawn)
    # The sums of 1 / g must stay in float64; rarer draws drown all others either way.
    odds = 1.0 / np.maximum(data.propensities[draws], _RAREST)
    wanted = data.target[draws, arm]
    # Row 0 of each table speaks for rows before the first draw: one arm of K, equally likely.
    share = float(data.target[:, arm].mean()) ** 2
    total = _faded_sums(np.ones_like(odds) if drawn.all() else odds)
    squares = np.concatenate([[share], _faded_sums(wanted**2 * odds) / total])
    recent = _faded_sums((wanted * odds) ** 2) / total
    recent = np.concatenate([[share * data.target.shape[1]], recent])
    seen = np.cumsum(drawn) - drawn
    waited = np.arange(len(data)) - np.concatenate([[0], draws])[seen]
    return np.asarray(np.maximum(recent[seen], squares[seen] * waited))


def _faded_sums(terms: Floats) -> Floats:
    """Return the sums of a row's term and all before it, each earlier one fading by `_MEMORY`.

    The recurrence s[i] = terms[i] + keep s[i - 1] as a triangular solve; scipy.signal, which has it
    too, takes longer to import than most logs to judge.
    """
    if not len(terms):
        return terms
    band = np.full((2, len(terms)), -(1.0 - 1.0 / _MEMORY))  # row 1: below the diagonal of ones
    return np.asarray(blas.dtbsv(1, band, terms, lower=1, diag=1))
