"""Estimators of a target policy's value, and the protocol for custom estimators."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import numpy as np
from scipy import linalg
from scipy.linalg import blas

from steersman.ope.bootstrap import Refit
from steersman.ope.reward_models import cross_fitted, external, past_only, time_batches
from steersman.ope.rounds import Rounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData
    from steersman.ope.reward_models import Predictions

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

# Smaller propensities count as this one.
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
    stays consistent, but has a small bias (about a tenth of a standard error towards the arms'
    early failures if the arms are equal).

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
    # If every row drew the same column (`drawn_or_another`), the others have no weights.
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


_REWARD_RANGE = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Log:
    """Log as estimators read it, with cached intermediate results.

    Args:
        data: The log and the target policy.
        adaptive: True if the logging policy learned from these rewards.
        seed: Seed of the folds.
        levels: Whether estimators stabilise the noise of an adaptive log. A comparison of two
            targets stabilises their difference instead (``steersman.ope.paired.off_policy_delta``).
    """

    data: LoggedData
    adaptive: bool = False
    seed: int = 0
    levels: bool = True

    @cached_property
    def predictions(self) -> Predictions:
        """Predicted rewards from ``q_hat``, else from models that never saw the row they serve."""
        if self.data.q_hat is not None:
            return external(self.data, self.data.q_hat)
        if self.adaptive:
            return past_only(self.data)
        return cross_fitted(self.data, np.random.default_rng(self.seed))

    @cached_property
    def predicted(self) -> Floats:
        """1 for each row that a model predicts and 0 for others, shape (n,).

        The first rows of an adaptive log have no past to be predicted from. They are left out, not
        taken for 0: where rewards lie far from 0 the noise of these few would be that of the whole
        log. Which ones they are is known beforehand, so that leaving them out biases nothing. A log
        that has not as many others, which could show their noise, is taken as it is.
        """
        counted = np.ones(len(self.data))
        if self.data.q_hat is None and self.adaptive:
            first = next(time_batches(len(counted)))
            counted[first] = 0.0 if 2 * first.stop <= len(counted) else 1.0
        return counted

    @cached_property
    def stabilisers(self) -> Floats:
        """Factor of each round that levels the noise of an adaptive log, shape (n,)."""
        return stabilisers(self.data) if self.adaptive else np.ones(len(self.data))

    def levelled(self, rounds: Rounds) -> Rounds:
        """Return rounds whose noise is level over time where the log is adaptive.

        Args:
            rounds: An estimator's terms.

        Returns:
            The rounds, weighted by the stabilisers as far as the log does not drift.
        """
        if not (self.adaptive and self.levels):
            return rounds
        return levelled(rounds, self.stabilisers, self.data.units)

    @property
    def largest_weight(self) -> float:
        """Bound on every weight: the target's largest probability over the smallest logged one."""
        # Python's floats give infinity, without a warning, where propensities come near 0.
        return float(self.data.target.max()) / float(self.data.propensities.min())

    @property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest possible reward."""
        declared = self.data.reward_range
        return _REWARD_RANGE if declared is None else (float(declared[0]), float(declared[1]))


class Estimator(Protocol):
    """Protocol of estimators that turn a log into rounds; test one with ``check_estimator``."""

    @property
    def name(self) -> str:
        """Name in the report."""

    def rounds(self, log: Log) -> Rounds:
        """Return one term per logged round.

        Args:
            log: The log, not to be changed.

        Returns:
            Terms whose ratio of sums is the estimate.
        """


@dataclass(frozen=True)
class IPS:
    """Inverse propensity scoring: the mean of weight times reward.

    Unbiased whenever propensities are exact and every action that the target can take could have
    been logged (positivity); a log without exploration breaks it. Its noise grows with the weights
    and with the level of the rewards. On adaptive logs rounds are stabilised, which costs exact
    unbiasedness (see ``steersman.ope.estimators``).

    Args:
        name: Name in the report.

    Source:
        Horvitz and Thompson (1952); Dudík, Langford and Li (2011), Doubly robust policy evaluation
        and learning, equation 2. Bias: ``tests/ope/test_bias.py``; coverage:
        ``tests/ope/test_coverage.py``, on adaptive logs ``tests/ope/test_adaptive_coverage.py``.
    """

    name: str = field(default="ips")

    def rounds(self, log: Log) -> Rounds:
        """Return weight times reward over 1.

        Args:
            log: The log and the target policy.

        Returns:
            One term per logged round.
        """
        low, high = log.reward_range
        span = log.largest_weight * (max(high, 0.0) - min(low, 0.0))
        terms = log.data.weights * log.data.rewards
        return log.levelled(Rounds(terms, np.ones(len(terms)), span))


@dataclass(frozen=True)
class SNIPS:
    """Self-normalised inverse propensity scoring: weighted rewards over the sum of weights.

    Stays within the rewards' range and does not change when a constant is added to all of them.
    Biased by O(1/n). Needs positivity as IPS does; its interval takes the denominator's noise
    into account (freezing it, as some libraries do, makes intervals up to five times too wide).

    Args:
        name: Name in the report.

    Source:
        Swaminathan and Joachims (2015), The self-normalized estimator for counterfactual learning,
        equation 9. Bias: ``tests/ope/test_bias.py``; coverage: ``tests/ope/test_coverage.py``, on
        adaptive logs ``tests/ope/test_adaptive_coverage.py``.
    """

    name: str = field(default="snips")

    def rounds(self, log: Log) -> Rounds:
        """Return weight times reward over weight.

        Args:
            log: The log and the target policy.

        Returns:
            One term per logged round.
        """
        low, high = log.reward_range
        weights = log.data.weights
        span = log.largest_weight * (high - low)
        return log.levelled(Rounds(weights * log.data.rewards, weights, span, centred=True))


@dataclass(frozen=True)
class DM:
    """The direct method: the mean predicted reward of the target policy.

    As good as the reward model: a wrong model biases it, and no weight can show that. It has an
    interval only where the model is refitted in the bootstrap, which shows the model's noise but
    never its bias; intervals that ignore the refit cover .16 instead of .95 even for a right model.

    Args:
        name: Name in the report.

    Source:
        Dudík, Langford and Li (2011), equation 1. Bias under a wrong model:
        ``tests/ope/test_bias.py``; coverage of the refitted bootstrap under a right one:
        ``tests/ope/test_coverage.py``.
    """

    name: str = field(default="dm")

    def rounds(self, log: Log) -> Rounds:
        """Return the target's predicted reward over 1, for rows that a model could predict.

        Args:
            log: The log and the target policy.

        Returns:
            One term per logged round.
        """
        terms, counted = log.predictions.expected, log.predicted
        refitted = log.data.q_hat is None and not log.adaptive
        return Rounds(
            terms * counted,
            counted,
            span=float(np.ptp(terms)),
            from_model=True,
            refit=Refit(log.data) if refitted else None,
        )


@dataclass(frozen=True)
class DR:
    """Doubly robust: the direct method plus inverse-propensity-weighted residuals.

    Unbiased with exact propensities whatever the model says, as long as the model never saw the row
    (folds of units, or the past alone on adaptive logs); a good model removes most of the noise.
    Random folds on an adaptive log leak the future and break it, as does a missing positivity.

    Args:
        name: Name in the report.

    Source:
        Dudík, Langford and Li (2011), equation 3; folds: Chernozhukov et al. (2018),
        Double/debiased machine learning, definition 3.1. Bias: ``tests/ope/test_bias.py``;
        coverage: ``tests/ope/test_coverage.py``, on adaptive logs
        ``tests/ope/test_adaptive_coverage.py``.
    """

    name: str = field(default="dr")

    def rounds(self, log: Log) -> Rounds:
        """Return the predicted reward plus the weighted residual, over 1, as `DM` counts rows.

        Args:
            log: The log and the target policy.

        Returns:
            One term per logged round.
        """
        guess = log.predictions
        terms = guess.expected + log.data.weights * (log.data.rewards - guess.chosen)
        counted = log.predicted
        fitted = log.data.q_hat is None  # to rewards that are all alike it leaves no residuals
        span = self._span(log)
        return log.levelled(Rounds(terms * counted, counted, span, centred=fitted))

    @staticmethod
    def _span(log: Log) -> float:
        """Return the width of the terms' range, for predictions that stay where they were seen."""
        guess, (low, high) = log.predictions, log.reward_range
        least = min(float(guess.chosen.min()), float(guess.expected.min()))
        most = max(float(guess.chosen.max()), float(guess.expected.max()))
        residuals = max(high - least, 0.0) - min(low - most, 0.0)
        return most - least + log.largest_weight * residuals


ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator for estimator in (IPS(), SNIPS(), DM(), DR())
}
