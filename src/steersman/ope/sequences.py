"""Off-policy evaluation of sequences.

A logged decision has the propensity of every step. The reward at step t is weighted by the first t
steps only, so later steps add no noise to earlier rewards. A model of future rewards removes most
of the remaining noise, without bias if it was not trained on the decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.ope.arguments import one_or_more
from steersman.ope.columns import (
    LARGEST_WEIGHT,
    check_finite,
    real_numbers,
    unit_labels,
    within_range,
)
from steersman.ope.diagnostics import Diagnostics, reasons_to_refuse, share_of, size_of
from steersman.ope.evaluation import Estimate, Report
from steersman.ope.intervals import left_open_by_heaviest, no_narrower, widened
from steersman.stats import Interval
from steersman.stats.arguments import check_truth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ESTIMATORS = ("pdis", "wpdis", "dr", "gain")
_USUAL_RANGE = (0.0, 1.0)  # of the rewards of decision points
_ROUNDING = 1e-9  # of a sum of steps' rewards
_ALIKE = 1e-12  # of the largest reward: sums of the same terms in another order differ by less


@dataclass(frozen=True, eq=False)
class LoggedSequences:
    """Logged selections of at most T steps, with the probabilities of a target policy.

    Args:
        propensities: (n, T) with which each step's action was drawn, in (0, 1]; 1 after the end.
        target: (n, T) the target's probability of that very action in that state, in [0, 1]; 1
            after the end.
        rewards: (n, T) reward at each step; a final reward stands at the last one, 0
            elsewhere.
        lengths: (n,) steps of each, 0 to T.
        q_hat: (n, T) predicted rest of the reward after each logged action, from a model that
            never saw the selection; None: no model, and ``dr`` says nothing.
        v_hat: (n, T) the same before each step, in the mean over the target's actions.
        missing: (n, T) the target's mass at each step on actions that the log could not have drawn
            there, in [0, 1]; 0 after the end. None: there are none, but for forced steps.
        clusters: (n,) what selections belong together, such as the question; None: none do.
        reward_range: least and greatest sum of a selection's rewards that there can be; (0, 1)
            when not declared, as rewards of decision points are.

    Raises:
        InputError: shapes that do not fit, numbers out of their range, rewards and predictions
            beyond 1e100, or selections that earned what a declared range says cannot be.
    """

    propensities: Floats
    target: Floats
    rewards: Floats
    lengths: NDArray[np.int64]
    q_hat: Floats | None = None
    v_hat: Floats | None = None
    clusters: NDArray[np.int64] | None = None
    missing: Floats | None = None
    reward_range: tuple[float, float] | None = None
    _there: NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given = [name for name in ("q_hat", "v_hat", "missing") if getattr(self, name) is not None]
        for name in ("propensities", "target", "rewards", *given):
            object.__setattr__(self, name, real_numbers(getattr(self, name), name))
        real_numbers(self.lengths, "lengths")  # or refuses other types
        lengths = np.asarray(self.lengths)
        shape = self.propensities.shape
        if len(shape) != 2 or not shape[0] or lengths.shape != shape[:1]:
            raise InputError(
                f"propensities are {shape} and lengths {lengths.shape}; allowed: (n, T) and "
                "(n,) with n ≥ 1"
            )
        if lengths.dtype.kind not in "iu" or not 0 <= lengths.min() <= lengths.max() <= shape[1]:
            raise InputError(f"lengths must be whole numbers from 0 to {shape[1]}")
        object.__setattr__(self, "_there", np.arange(shape[1]) < lengths[:, None])
        self._check(shape)
        if self.reward_range is not None:
            within_range(self.rewards.sum(axis=1), self.reward_range, rounding=_ROUNDING)
        if self.clusters is not None:
            object.__setattr__(self, "clusters", unit_labels(self.clusters, len(self)))

    def _check(self, shape: tuple[int, ...]) -> None:
        if (self.q_hat is None) != (self.v_hat is None):
            raise InputError("q_hat and v_hat belong together; pass both or neither")
        for name in ("target", "rewards", "q_hat", "v_hat", "missing"):
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise InputError(f"{name} is {array.shape}; allowed: {shape}, as propensities")
            if array is not None:
                check_finite(array, name)
        p, chosen = self.propensities[self._there], self.target[self._there]
        # Written so that NaN is refused as well.
        if not ((p > 0.0) & (p <= 1.0 + 1e-12)).all():
            raise InputError(
                "a propensity is not in (0, 1]; log the exact probability of each step"
            )
        if not ((chosen >= 0.0) & (chosen <= 1.0 + 1e-9)).all():
            raise InputError("a target probability is not in [0, 1]")
        lost = 0.0 if self.missing is None else self.missing[self._there]
        if not np.all((lost >= 0.0) & (lost <= 1.0 + 1e-9)):
            raise InputError(
                "missing mass is not in [0, 1]; pass the target's mass on other actions"
            )
        if self.rewards[~self._there].any():
            raise InputError("a reward is after the end of its selection; move it to the last step")

    def __len__(self) -> int:
        """Return how many selections there are."""
        return len(self.lengths)

    @property
    def weights(self) -> Floats:
        """(n, T) the product of the steps' weights up to each step; it stays after the end.

        Those beyond float64 are its largest number.
        """
        ratios = np.ones(self.target.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            np.divide(self.target, self.propensities, out=ratios, where=self._there)
            products = np.multiply.accumulate(np.minimum(ratios, LARGEST_WEIGHT), axis=1)
        # Infinity times 0 is none: what the target never does has no weight.
        return np.nan_to_num(np.minimum(products, LARGEST_WEIGHT), copy=False, nan=0.0)


def evaluate_sequences(
    data: LoggedSequences,
    *,
    estimators: Sequence[str] = ESTIMATORS,
    level: float = 0.95,
    adaptive: bool = False,
) -> Report:
    """Return the estimated value of a sequence policy from logged selections.

    With ρ_t = Π_{s≤t} π(a_s|s_s)/p_s, rewards r_t, and predictions Q̂, V̂:

    - ``pdis``: mean of Σ_t ρ_t r_t. Unbiased.
    - ``wpdis``: Σ_t (Σ_i ρ_{i,t} r_{i,t}) / (Σ_i ρ_{i,t}). Within the rewards' range where one
      step is rewarded; biased by O(1/n).
    - ``dr``: mean of V̂_1 + Σ_t ρ_t (r_t + V̂_{t+1} − Q̂_t). Unbiased whatever the model says, if
      it never saw the selection; its noise is that of the residuals. Without a model its values
      are None: the sum without one is ``pdis``, and would be no second opinion.
    - ``gain``: ``wpdis`` less the mean of what the log earned, selection by selection: what the
      target would earn beyond the policies that logged. Both ends of the difference are noisy, and
      much of that noise is shared, so the interval cannot be derived from those of the two ends.
      For the logging policy it is 0 to 0, without rounding noise.

    Refuses by the rule of `evaluate`: an effective sample size of the whole selections' weights
    below 100, one weight above 5 % of their sum, their mean more than 5 standard errors from 1, or
    more than 1 % of the target's selections that leave, at some step, what the log could draw
    (``missing``, and forced steps): weights cannot show these, and normalised ones hide them.

    Assumes exact propensities of every step and independent selections, or independent clusters of
    them. Intervals are normal, linearised: on short logs with heavy weights they cover less than
    they say. If all selections with weight earned the same, they are at least as wide as
    `all_alike_interval` for that many, as for `evaluate`.

    Args:
        data: the log with the target's probabilities.
        estimators: any of ``pdis``, ``wpdis``, ``dr``, ``gain``.
        level: of the intervals, in (0, 1).
        adaptive: whether the logging policy learned from these rewards. The terms are then
            martingale differences, and the sum of their squares is the variance all the same, as
            long as ``q_hat`` and ``v_hat`` come of the past alone: see to that.

    Returns:
        Estimates, diagnostics and reasons.

    Raises:
        InputError: an unknown estimator, a level out of its range, or ``adaptive`` that is neither
            true nor false.

    >>> rng = np.random.default_rng(0)
    >>> first, second = rng.random((2, 4000)) < 0.5
    >>> rewards = np.stack([np.zeros(4000), (first & second).astype(float)], axis=1)
    >>> target = np.where(np.stack([first, second], axis=1), 0.8, 0.2)
    >>> log = LoggedSequences(np.full((4000, 2), 0.5), target, rewards, np.full(4000, 2))
    >>> found = evaluate_sequences(log)["wpdis"]
    >>> abs(found.value - 0.64) < 0.03, found.low < 0.64 < found.high
    (True, True)

    Source: Precup, Sutton & Singh, Eligibility Traces for Off-Policy Policy Evaluation (2000),
    section 3 (per-decision, weighted per-decision); Jiang & Li, Doubly Robust Off-policy Value
    Evaluation (2016), equation 10; in the form of a sum: Thomas & Brunskill (2016), equation 6.
    Known answers: ``tests/ope/test_sequences.py`` enumerates every sequence; coverage likewise.
    """
    log: object = data
    if not isinstance(log, LoggedSequences):
        message = f"data is {type(data).__name__}; allowed: a log of selections: LoggedSequences"
        raise InputError(message)
    named = one_or_more(estimators)
    unknown = [one for one in named if not isinstance(one, str) or one not in ESTIMATORS]
    if unknown or not named:
        said_to_be = brief(unknown or list(named))
        raise InputError(f"estimators are {said_to_be}; allowed: {', '.join(ESTIMATORS)}")
    said: object = level
    if not (isinstance(said, float | np.floating) and 0.0 < said < 1.0):
        raise InputError(f"level is {brief(level)}; allowed: 0 < level < 1, e.g. 0.95")
    check_truth("adaptive", adaptive)
    found = _diagnose(data)
    reasons = reasons_to_refuse(found)
    silent = set(named) if reasons else {"dr"} if data.q_hat is None else set()
    ess = found.ess
    estimates = {
        name: Estimate() if name in silent else _estimate(data, name, level, ess) for name in named
    }
    return Report(estimates, found, reasons, float(level), "wald", adaptive=bool(adaptive))


def _estimate(data: LoggedSequences, name: str, level: float, ess: float) -> Estimate:
    value, influence = _FORMS[name](data)
    totals = _by_cluster(data, influence)
    count = len(totals)
    error = math.sqrt(float(totals @ totals) * count / max(count - 1, 1)) / len(data)
    half = float(-ndtri((1.0 - level) / 2.0)) * error
    # A gain is what is earned less a mean: so is what its selections could have earned.
    less = float(data.rewards.sum(axis=1).mean()) if name == "gain" else 0.0
    low, high = (end - less for end in data.reward_range or _USUAL_RANGE)
    earned, weights, units = _with_weight(data)
    opened = left_open_by_heaviest(earned - less, weights, units, (low, high), level)
    noise = widened(Interval(value - half, value + half), value, opened)
    ends = no_narrower(noise, earned - less, ess, (low, high), level)
    if ends is None:
        return Estimate(value, standard_error=error)
    return Estimate(value, ends.low, ends.high, error)


def _with_weight(data: LoggedSequences) -> tuple[Floats, Floats, NDArray[np.int64] | None]:
    """Return rewards, weights and clusters of the selections that have weight."""
    counted = np.where(data.weights > 0.0, data.rewards, 0.0)
    last = data.weights[:, -1] if data.weights.shape[1] else np.ones(len(data))
    has = (last > 0.0) | counted.any(axis=1)
    units = None if data.clusters is None else np.unique(data.clusters, return_inverse=True)[1][has]
    return counted.sum(axis=1)[has], last[has], units


def _pdis(data: LoggedSequences) -> tuple[float, Floats]:
    terms = (data.weights * data.rewards).sum(axis=1)
    return float(terms.mean()), terms - terms.mean()


def _wpdis(data: LoggedSequences) -> tuple[float, Floats]:
    weights = data.weights
    means = weights.mean(axis=0)
    steps = (weights * data.rewards).mean(axis=0) / means
    influence = (weights * (data.rewards - steps) / means).sum(axis=1)
    return float(steps.sum()), influence


def _dr(data: LoggedSequences) -> tuple[float, Floats]:
    assert data.q_hat is not None and data.v_hat is not None  # noqa: S101, PT018 - see the caller
    there = data._there  # noqa: SLF001 - of this module
    q_hat, v_hat = np.where(there, data.q_hat, 0.0), np.where(there, data.v_hat, 0.0)
    ahead = np.append(v_hat[:, 1:], np.zeros((len(data), 1)), axis=1)
    residuals = data.rewards + ahead - q_hat
    terms = v_hat[:, :1].sum(axis=1) + (data.weights * residuals).sum(axis=1)
    return float(terms.mean()), terms - terms.mean()


def _gain(data: LoggedSequences) -> tuple[float, Floats]:
    value, influence = _wpdis(data)
    earned = data.rewards.sum(axis=1)
    gained, noise = value - float(earned.mean()), influence - (earned - earned.mean())
    rounding = _ALIKE * float(np.abs(data.rewards).max(initial=0.0))
    if max(abs(gained), float(np.abs(noise).max())) <= rounding:
        return 0.0, np.zeros(len(data))
    return gained, noise


_FORMS = {"pdis": _pdis, "wpdis": _wpdis, "dr": _dr, "gain": _gain}


def _diagnose(data: LoggedSequences) -> Diagnostics:
    """Return what the weights of the whole selections look like."""
    weights = data.weights[:, -1] if data.weights.shape[1] else np.ones(len(data))
    largest = float(weights.max())
    scaled = weights / largest if largest > 0.0 else weights
    totals = _by_cluster(data, scaled)
    total = float(totals.sum())
    away = _by_cluster(data, scaled - scaled.mean())
    count = len(totals)
    error = math.sqrt(float(away @ away) * count / (count - 1)) / len(data) if count > 1 else 0.0
    return Diagnostics(
        n=len(data),
        units=count,
        ess=size_of(totals),
        max_weight=largest,
        max_weight_share=share_of(totals),
        mean_weight=largest * total / len(data),
        mean_weight_error=largest * error,
        unsupported=_unsupported(data),
    )


def _unsupported(data: LoggedSequences) -> float:
    """Return the share of the target's selections that leave what the log could draw.

    Of those that were within it until a step, which the weights of the steps before stand for, the
    mean mass of that step elsewhere leaves it. Normalised, so that it is exact at the first step
    and little noisier than the weights at later ones.
    """
    there = data._there  # noqa: SLF001 - of this module
    elsewhere = np.zeros(there.shape) if data.missing is None else data.missing
    forced = there & (data.propensities >= 1.0)
    elsewhere = np.where(forced, np.maximum(elsewhere, 1.0 - data.target), elsewhere)
    before = np.append(np.ones((len(data), 1)), data.weights[:, :-1], axis=1)
    within = 1.0
    for step in range(there.shape[1]):
        weights = before[:, step]
        total = float(weights.sum())
        leaving = float(weights @ (there[:, step] * elsewhere[:, step]))
        within *= 1.0 - (min(leaving / total, 1.0) if total > 0.0 else 0.0)
    return 1.0 - within


def _by_cluster(data: LoggedSequences, values: Floats) -> Floats:
    if data.clusters is None:
        return values
    _, which = np.unique(data.clusters, return_inverse=True)
    return np.bincount(which, weights=values).astype(np.float64)
