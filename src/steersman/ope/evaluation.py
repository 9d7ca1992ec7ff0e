"""Off-policy evaluation of single decisions."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.ope.arguments import check_log, check_log_and_seed, check_whole, one_or_more
from steersman.ope.bootstrap import bootstrap
from steersman.ope.diagnostics import Diagnostics, diagnose, reasons_to_refuse
from steersman.ope.estimators import ESTIMATORS, Log
from steersman.ope.intervals import (
    bernstein,
    left_open,
    no_narrower,
    score,
    standard_error,
    wald,
    widened,
)
from steersman.ope.rounds import check_rounds
from steersman.stats.arguments import check_truth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.ope.estimators import Estimator
    from steersman.ope.logged_data import LoggedData
    from steersman.ope.rounds import Rounds
    from steersman.stats import Interval

Method = Literal["wald", "score", "bootstrap", "bernstein"]

_MOST_RESAMPLES = 1_000_000  # more would add nothing and take hours


@dataclass(frozen=True)
class Estimate:
    """Estimate of one estimator; all fields are None if the log was refused.

    Args:
        value: Estimated mean reward of the target policy.
        low: Lower end of the interval. None: the estimator has none, or all rewards are one value
            outside the declared range.
        high: Upper end of the interval.
        standard_error: Linearised standard error of the value. None: a model's error is unknown.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None


@dataclass(frozen=True)
class Report:
    """Result of one evaluation; ``report["dr"]`` is the estimate of that name.

    Args:
        estimates: Estimates by name.
        diagnostics: Diagnostics of the weights, also for a refused log.
        reasons: Reasons to refuse the log; empty if it is accepted.
        level: Confidence level of the intervals.
        interval: Method of the intervals.
        adaptive: Whether the log comes from a learning policy.
    """

    estimates: Mapping[str, Estimate]
    diagnostics: Diagnostics
    reasons: list[str]
    level: float
    interval: str
    adaptive: bool

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.estimates:
            message = (
                f"no estimate {brief(name)} in this report; available: {', '.join(self.estimates)}"
            )
            raise InputError(message)
        return self.estimates[name]

    @property
    def refused(self) -> bool:
        """Whether there is a reason against trusting any estimate."""
        return bool(self.reasons)

    @property
    def ess(self) -> float:
        """Effective sample size, in units where the log names them, else in rows."""
        return self.diagnostics.ess

    @property
    def max_weight(self) -> float:
        """Largest importance weight; its share of the sum is in ``diagnostics``."""
        return self.diagnostics.max_weight

    @property
    def mean_weight(self) -> float:
        """Mean importance weight, 1 in expectation."""
        return self.diagnostics.mean_weight

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON knows: None where a number is not finite."""
        plain: dict[str, Any] = _finite_or_none(asdict(self) | {"refused": self.refused})
        return plain


def evaluate(
    data: LoggedData,
    *,
    estimators: Sequence[str | Estimator] = ("ips", "snips", "dm", "dr"),
    interval: Method = "wald",
    level: float = 0.95,
    resamples: int = 10_000,
    adaptive: bool = False,
    seed: int = 0,
) -> Report:
    """Return the estimated value of a target policy from a log of other decisions.

    A report without estimates gives reasons if the log is not sufficient: effective sample size
    below 100, one weight above 5 % of the sum (both over units if the log has units), mean weight
    more than 5 standard errors from 1, or propensity 1 where the target differs.

    Assumes exact propensities, positivity, and independent rows (or units, or rounds given the past
    if ``adaptive``). Selecting the best of many targets, or repeated looks, breaks the level:
    correct for it or use a confidence sequence. Other decision points keep their logged policies.
    If all weighted rewards are equal, the interval is at least as wide as that of ``ess`` equal
    units within ``data.reward_range`` or [0, 1]. If this holds only for some actions, or for their
    heaviest rows, the interval is widened in proportion to the target's use of them.

    Args:
        data: The log and the target policy's distribution in each context.
        estimators: Names (``"ips"``, ``"snips"``, ``"dm"``, ``"dr"``) or estimators of your own.
        interval: ``"wald"`` (normal, linearised), ``"score"`` (for means near an end of the
            rewards' range, where SNIPS and DR are less noisy: Wilson's for as many rows as their
            error is worth; better for outcomes that are rare; IPS and DR with ``q_hat`` keep
            Wald's), ``"bootstrap"`` (blocks, percentile; the only one for DM) or ``"bernstein"``
            (holds at every n for rewards in ``data.reward_range`` and weights up to the largest
            target probability over the smallest logged propensity, which it takes for the floor of
            the log; proved for independent rows, not for ``adaptive``).
        level: Confidence level, in (0, 1).
        resamples: Bootstrap samples, 100 to 1,000,000; for ``"bootstrap"`` at least 2 / (1 -
            level): fewer have no draw beyond each end.
        adaptive: True when the logging policy learned from these rewards: models are fitted on the
            past only, intervals use the martingale variance, and rounds are weighted by the
            inverse standard deviation that the past predicts for their weight.
        seed: Seed of folds and bootstrap.

    Returns:
        Estimates, diagnostics and reasons.

    Raises:
        InputError: No log; an unknown estimator, interval or level; a seed or a number of resamples
            out of range, or too few for the level; ``adaptive`` that is neither true nor false;
            rewards outside [0, 1] for ``"bernstein"`` or ``"score"`` without a declared
            ``reward_range``.

    Example:
        >>> from steersman.ope import LoggedData
        >>> rng = np.random.default_rng(0)
        >>> actions = rng.integers(0, 2, 4000)
        >>> rewards = (rng.random(4000) < np.array([0.3, 0.6])[actions]).astype(float)
        >>> target = np.tile([0.1, 0.9], (4000, 1))
        >>> log = LoggedData(actions, rewards, np.full(4000, 0.5), target)
        >>> dr = evaluate(log)["dr"]
        >>> round(dr.value, 3), round(dr.low, 3), round(dr.high, 3)
        (0.572, 0.552, 0.591)

    Source:
        Each estimator's own docstring; martingale variance and stabilised weights: Hadad et al.
        (2021) and Bibaut et al. (2021), see ``steersman.ope.estimators``.
    """
    chosen = _resolve(estimators)
    _check(data, interval, level, resamples, seed)
    check_truth("adaptive", adaptive)
    found = diagnose(data)
    reasons = reasons_to_refuse(found)
    if reasons:
        estimates = dict.fromkeys(chosen, Estimate())
    else:
        log = Log(data, adaptive=adaptive, seed=seed)
        rounds = {
            name: check_rounds(name, estimator.rounds(log), len(data))
            for name, estimator in chosen.items()
        }
        if interval == "bootstrap":
            intervals = bootstrap(rounds, data, level=level, resamples=resamples, seed=seed)
        else:
            intervals = _analytic(rounds, data, interval, level, log.reward_range)
        weighted = data.rewards[data.weights > 0.0]
        if interval != "bernstein":  # which knows what a reward can be
            opened = left_open(data, log.reward_range, level)
            intervals = {
                name: widened(one, rounds[name].value, opened) for name, one in intervals.items()
            }
        ends = {
            name: no_narrower(one, weighted, found.ess, log.reward_range, level)
            for name, one in intervals.items()
        }
        estimates = {name: _estimate(rounds[name], data, ends.get(name)) for name in chosen}
    return Report(estimates, found, reasons, float(level), interval, bool(adaptive))


def suited_estimator(data: LoggedData) -> str:
    """Return the estimator that has less noise: DR where it has a model of rewards, else SNIPS.

    Without predictions DR fits a mean, or with contexts a regression, to every column. Columns
    that mean another action in every row (`drawn_or_another`, candidates per request) make such a
    model useless, and DR then widens the interval: four times as wide in a simulation of 2,000
    requests with ten candidates each.

    Args:
        data: The log.

    Returns:
        ``"dr"`` or ``"snips"``, to be given to `evaluate`.

    Raises:
        InputError: the log does not hold single choices.

    Source:
        Swaminathan, Joachims (2015), The self-normalized estimator for counterfactual learning.
        Measured: ``tests/ope/test_names.py``.

    Example:
        >>> from steersman.ope import LoggedData
        >>> log = LoggedData([0, 1], [1.0, 0.0], [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        >>> suited_estimator(log)
        'dr'
    """
    check_log(data)
    return "dr" if data.has_columns or data.q_hat is not None else "snips"


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite_or_none(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _analytic(
    rounds: Mapping[str, Rounds],
    data: LoggedData,
    interval: Method,
    level: float,
    reward_range: tuple[float, float],
) -> dict[str, Interval]:
    forms: dict[str, Callable[[Rounds, NDArray[np.int64] | None, float], Interval]] = {
        "wald": wald,
        "score": partial(score, span=reward_range),
        "bernstein": bernstein,
    }
    form = forms[interval]
    return {
        name: form(terms, data.units, level)
        for name, terms in rounds.items()
        if not terms.from_model
    }


def _estimate(terms: Rounds, data: LoggedData, ends: Interval | None) -> Estimate:
    error = None if terms.from_model else standard_error(terms, data.units)
    low, high = (None, None) if ends is None else (ends.low, ends.high)
    return Estimate(terms.value, low, high, error)


def _resolve(estimators: Sequence[str | Estimator]) -> dict[str, Estimator]:
    """Return estimators by name, in the caller's order."""
    named = one_or_more(estimators)
    unknown = [
        one
        for one in named
        if (one not in ESTIMATORS if isinstance(one, str) else not _estimates(one))
    ]
    if unknown or not named:
        message = (
            f"estimators are {brief(unknown or list(named))}; allowed: {', '.join(ESTIMATORS)} "
            "and objects with a name and rounds(log)"
        )
        raise InputError(message)
    chosen: dict[str, Estimator] = {}
    for one in named:
        estimator = ESTIMATORS[one] if isinstance(one, str) else one
        if chosen.setdefault(estimator.name, estimator) is not estimator:
            message = f"duplicate estimator name {brief(estimator.name)}; rename one"
            raise InputError(message)
    return chosen


def _estimates(one: object) -> bool:
    made = not isinstance(one, type)  # a class has a name and rounds, and cannot be asked
    return made and hasattr(one, "rounds") and isinstance(getattr(one, "name", None), str)


def _check(
    data: LoggedData, interval: object, level: object, resamples: object, seed: object
) -> None:
    check_log_and_seed(data, seed)
    if not isinstance(interval, str) or interval not in get_args(Method):
        allowed = ", ".join(map(repr, get_args(Method)))
        raise InputError(f"interval is {brief(interval)}; allowed: {allowed}")
    if not (isinstance(level, float | np.floating) and 0.0 < level < 1.0):
        message = f"level is {brief(level)}; allowed: 0 < level < 1, e.g. 0.95"
        raise InputError(message)
    check_whole("resamples", resamples, 100, _MOST_RESAMPLES)
    needed = math.ceil(2.0 / (1.0 - float(level)) - 1e-6)
    if interval == "bootstrap" and cast("int", resamples) < needed:
        message = f"resamples is {resamples} at level {level}; allowed: {needed:,} or more: "
        raise InputError(message + "use a lower level, or more resamples")
    undeclared = interval in ("bernstein", "score") and data.reward_range is None
    if undeclared and (data.rewards.min() < 0.0 or data.rewards.max() > 1.0):
        message = (
            f"rewards span [{data.rewards.min()}, {data.rewards.max()}] and no reward_range is "
            f"declared; a {interval.title()} interval needs the possible range of rewards: "
            "pass LoggedData(..., reward_range=(low, high))"
        )
        raise InputError(message)
