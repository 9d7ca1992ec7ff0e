"""Weights that keep the noise of an adaptive log's rounds level over time.

A learning policy's propensities wander, and with them the variance of a round; worse, they wander
*because of* the noise that came before (an arm that was lucky is explored more). The studentised
sum is then no longer normal. Dividing each round by the standard deviation that the past predicts
for it gives increments of equal variance, for which a martingale central limit theorem holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData

    Floats = NDArray[np.float64]

# Draws of an arm over which its recent propensities are averaged.
_MEMORY = 50

# Smallest propensity that is told from smaller ones.
_RAREST = 1e-140

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
    for arm in np.flatnonzero(data.target.any(axis=0)):
        moments += _arm_moments(data, int(arm))
    moments[:_BURN_IN] = moments[min(_BURN_IN, len(data) - 1)]
    # A weight's mean is 1, so its second moment is at least that.
    factors = 1.0 / np.sqrt(np.maximum(moments, 1.0))
    return np.asarray(factors / factors.mean())


def _arm_moments(data: LoggedData, arm: int) -> Floats:
    """Return E[pi(arm|x)^2 / g(arm|x)] as each row's past predicts it.

    A draw shows a context with probability proportional to g, so draws are averaged with weight
    1 / g to speak for all contexts. An arm that has not been drawn for m rows has g of about 1/m at
    most: without that, a policy that drops an arm would go unnoticed until its next draw.
    """
    drawn = data.actions == arm
    draws = np.flatnonzero(drawn)
    # The sums of 1 / g must stay in float64; rarer draws drown all others either way.
    odds = 1.0 / np.maximum(data.propensities[draws], _RAREST)
    wanted = data.target[draws, arm]
    fade = [1.0, -(1.0 - 1.0 / _MEMORY)]
    # Row 0 of each table speaks for rows before the first draw: one arm of K, equally likely.
    share = float(data.target[:, arm].mean()) ** 2
    total = scipy.signal.lfilter([1.0], fade, odds)
    squares = np.concatenate([[share], scipy.signal.lfilter([1.0], fade, wanted**2 * odds) / total])
    recent = scipy.signal.lfilter([1.0], fade, (wanted * odds) ** 2) / total
    recent = np.concatenate([[share * data.target.shape[1]], recent])
    seen = np.cumsum(drawn) - drawn
    waited = np.arange(len(data)) - np.concatenate([[0], draws])[seen]
    return np.asarray(np.maximum(recent[seen], squares[seen] * waited))
