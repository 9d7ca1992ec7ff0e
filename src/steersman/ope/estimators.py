"""Estimators of a target policy's value, and the protocol for custom estimators."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.ope.refit import Refit
from steersman.ope.reward_models import cross_fitted, external, past_only, time_batches
from steersman.ope.rounds import Rounds
from steersman.ope.stabilise import levelled, stabilisers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.ope.logged_data import LoggedData
    from steersman.ope.reward_models import Predictions

    Floats = NDArray[np.float64]

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
    unbiasedness (see ``steersman.ope.stabilise``).

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
