"""Contract checks of off-policy estimators, also for your own.

Each ``check_*`` function raises AssertionError with what was broken. They use public names alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.ope import Log, LoggedData, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from steersman.ope import Estimate, Estimator, Rounds

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class World:
    """World with known mean rewards, a logging policy and a target policy.

    What both policies do depends on which of two kinds a context is; what an action earns does not,
    so that a model that knows no contexts is right too.

    Args:
        means: mean reward of each action, shape (K,).
        noise: rewards are uniform that far around their mean.
        logged: probabilities of the logging policy in the two kinds of contexts, shape (2, K).
        target: likewise of the target policy.
        reward_range: smallest and largest reward, where that is not (0, 1).
    """

    means: Floats
    noise: float
    logged: Floats
    target: Floats
    reward_range: tuple[float, float] | None = None

    @property
    def truth(self) -> float:
        """True value of the target policy."""
        return float((self.target @ self.means).mean())

    def error(self, rows: int) -> float:
        """Return the standard error of the worse of IPS and SNIPS on a log.

        Args:
            rows: how many it has.
        """
        second = self.target**2 / self.logged  # moments of the weights
        noise = self.noise**2 / 3.0
        ips = (second @ (self.means**2 + noise)).mean() - self.truth**2
        snips = (second @ ((self.means - self.truth) ** 2 + noise)).mean()
        return float(np.sqrt(max(ips, snips) / rows))

    def log(self, rng: np.random.Generator, rows: int) -> LoggedData:
        """Return a log, without predictions.

        Args:
            rng: draws contexts, actions and rewards.
            rows: how many to draw.
        """
        kinds = rng.integers(len(self.logged), size=rows)
        logged = self.logged[kinds]
        actions = (rng.random((rows, 1)) > logged.cumsum(axis=1)[:, :-1]).sum(axis=1)
        return LoggedData(
            actions=actions,
            rewards=self.means[actions] + rng.uniform(-self.noise, self.noise, rows),
            propensities=np.take_along_axis(logged, actions[:, None], axis=1)[:, 0],
            target=self.target[kinds],
            reward_range=self.reward_range,
        )

    def predictions(self, rng: np.random.Generator, rows: int) -> Floats:
        """Return predicted rewards that are right but for some noise, shape (rows, K).

        Args:
            rng: draws the noise.
            rows: of the log that they are for.
        """
        noise = 0.05 * rng.normal(size=(rows, len(self.means)))
        return np.asarray(self.means + noise)


MILD = World(
    means=np.array([0.2, 0.5, 0.8]),
    noise=0.2,
    logged=np.array([[0.5, 0.3, 0.2], [0.25, 0.35, 0.4]]),
    target=np.array([[0.2, 0.3, 0.5], [0.3, 0.5, 0.2]]),
)
# Weights of up to 15, rewards below zero, and more actions than anybody would write out.
WILD = World(
    means=np.array([-0.7, 0.3, -0.5, 0.4, 0.6]),
    noise=0.3,
    logged=np.array([[0.4, 0.3, 0.2, 0.06, 0.04], [0.25, 0.3, 0.2, 0.15, 0.1]]),
    target=np.array([[0.1, 0.1, 0.1, 0.1, 0.6], [0.3, 0.1, 0.2, 0.35, 0.05]]),
    reward_range=(-1.0, 1.0),
)


_TOLERANCE = 1e-9
_ROWS = 2000
_RESAMPLES = 400
_LOGS = 200
_LEAST_HELD = 0.88  # of 200 logs: 4.5 standard errors below .95
_WIDER = 1.3
_OFF = 0.2  # by which predictions are wrong that must not matter


def check_estimator(estimator: Estimator, *, seed: int = 0) -> None:
    """Check that an estimator keeps the contract that evaluation and gates rely on.

    Args:
        estimator: Any object with a ``name`` and ``rounds(log)``.
        seed: Seed of the logs that it is tried on.

    Raises:
        AssertionError: Names the broken rule and the numbers seen.
        InputError: No estimator: a name, a class, or what has no ``name`` and ``rounds``.

    Example:
        >>> from steersman.ope import SNIPS
        >>> check_estimator(SNIPS())
    """
    _refuse_others(estimator)
    for check in (
        check_constant_reward,
        check_logged_policy,
        check_known_world,
        check_span,
        check_coverage,
        check_order_of_rows,
        check_scale_of_rewards,
        check_duplicated_units,
        check_intervals,
        check_seed,
        check_inputs_untouched,
        check_refusal,
    ):
        check(estimator, np.random.default_rng(seed))


def _refuse_others(value: object) -> None:
    named = isinstance(getattr(value, "name", None), str)
    if isinstance(value, type) or not (named and callable(getattr(value, "rounds", None))):
        got = f"the class {value.__name__}" if isinstance(value, type) else f"{value!r:.60}"
        message = (
            f"check_estimator got {got}; allowed: an object with a name (str) and rounds(log); "
            'pass one, e.g. SNIPS() or ESTIMATORS["snips"] of steersman.ope'
        )
        raise InputError(message)


def check_constant_reward(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that a constant reward c on policy gives the value c."""
    data = _on_policy(_log(rng))
    constant = replace(data, rewards=np.full(len(data), 0.7), q_hat=np.full(data.target.shape, 0.7))
    _close(_value(estimator, constant), 0.7, "value under a constant reward, on policy")


def check_logged_policy(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that the value of the logged policy is near its mean reward."""
    data = _on_policy(_log(rng))
    error = float(data.rewards.std()) / np.sqrt(len(data))
    value, mean = _value(estimator, data), float(data.rewards.mean())
    _require(
        abs(value - mean) < 4.0 * error,
        f"value {value:.4f} of the logged policy; its mean reward is {mean:.4f} +- {error:.4f}",
    )


def check_known_world(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that the estimator finds the true value in simulated worlds.

    Right predictions do not hide it, and wrong ones only from who says ``from_model``.
    """
    for world in (MILD, WILD):
        allowed = 4.5 * world.error(20_000)
        for given, data in _predicted(world, rng, 20_000):
            for adaptive in (False, True):
                if given == "wrong" and _rounds(estimator, data, adaptive=adaptive).from_model:
                    continue
                value = _value(estimator, data, adaptive=adaptive)
                _require(
                    abs(value - world.truth) < allowed,
                    (
                        f"value {value:.4f} (adaptive={adaptive}, {given} predictions, weights up "
                        f"to {data.weights.max():g}, rewards from {data.rewards.min():.1f}); the "
                        f"truth is {world.truth:.4f}, allowed +- {allowed:.4f}; use weights, "
                        "rewards and the target unchanged, for every action"
                    ),
                )


def check_span(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that the span is at least as wide as the observed terms."""
    for world in (MILD, WILD):
        for _, data in _predicted(world, rng, _ROWS):
            for adaptive in (False, True):
                rounds = _rounds(estimator, data, adaptive=adaptive)
                if rounds.from_model:
                    continue  # it has no Bernstein interval
                seen = float(np.ptp(rounds.numerator - rounds.value * rounds.denominator))
                _require(
                    seen <= rounds.span * (1.0 + _TOLERANCE),
                    (
                        f"span is {rounds.span:g}, and numerator - value * denominator already "
                        f"ranges over {seen:g} (adaptive={adaptive}); pass the largest possible "
                        "width, from log.largest_weight and log.reward_range"
                    ),
                )


def check_coverage(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check the coverage and the width of intervals."""
    found = [_estimate(estimator, _log(rng, rows=500)) for _ in range(_LOGS)]
    values = np.array([one.value for one in found])
    ends = np.array([(one.low, one.high) for one in found if one.low is not None])
    if not len(ends):
        return  # it has none, and says so
    held = float(((ends[:, 0] <= MILD.truth) & (ends[:, 1] >= MILD.truth)).mean())
    _require(
        held >= _LEAST_HELD,
        (
            f"{held:.3f} of {len(ends)} intervals of level .95 hold the truth; allowed: "
            f"{_LEAST_HELD:g} and more"
        ),
    )
    ratio = float((ends[:, 1] - ends[:, 0]).mean() / (2 * 1.96 * values.std()))
    _require(
        1 / _WIDER < ratio < _WIDER,
        (
            f"intervals are {ratio:.2f} times as wide as the spread of the values implies; "
            f"allowed: up to {_WIDER:g} either way"
        ),
    )


def check_order_of_rows(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that the order of rows does not matter without ``adaptive``."""
    data = _with_predictions(_log(rng), rng)
    value = _value(estimator, data)
    shuffled = _rows(data, rng.permutation(len(data)))
    _close(_value(estimator, shuffled), value, "value after shuffling the rows")


def check_scale_of_rewards(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that value and interval scale with the unit of rewards."""
    data = _with_predictions(_log(rng), rng)
    tripled = replace(data, rewards=3.0 * data.rewards, q_hat=_times(data.q_hat, 3.0))
    for before, after in zip(
        _numbers(_estimate(estimator, data)), _numbers(_estimate(estimator, tripled)), strict=True
    ):
        _close(after, 3.0 * before, "value or interval end after tripling rewards")


def check_duplicated_units(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that duplicate rows of the same unit change nothing."""
    data = replace(_with_predictions(_log(rng), rng), clusters=np.arange(_ROWS))
    doubled = _rows(data, np.repeat(np.arange(_ROWS), 2))
    for before, after in zip(
        _numbers(_estimate(estimator, data)), _numbers(_estimate(estimator, doubled)), strict=True
    ):
        _close(after, before, "value or interval end after doubling every unit's rows")


def check_intervals(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that intervals have both ends, contain the value, and grow with the level."""
    data = _log(rng)
    for method in ("wald", "score", "bootstrap", "bernstein"):
        widths = []
        for level in (0.8, 0.99):
            options = {"interval": method, "level": level, "resamples": _RESAMPLES}
            found = _estimate(estimator, data, **options)
            _require(
                (found.low is None) == (found.high is None), f"{method} has only one end: {found}"
            )
            if found.value is None or found.low is None or found.high is None:
                continue
            _require(
                found.low <= found.value <= found.high,
                f"{method} does not contain its value: {found}",
            )
            widths.append(found.high - found.low)
        _require(widths == sorted(widths), f"{method} shrinks as the level grows: {widths}")


def check_seed(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that the same log and seed give a bit-identical result."""
    data = _log(rng)
    options: dict[str, Any] = {"interval": "bootstrap", "resamples": _RESAMPLES, "seed": 5}
    first, second = (_estimate(estimator, data, **options) for _ in range(2))
    _require(first == second, f"two runs with the same seed differ: {first} and {second}")


def check_inputs_untouched(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that the estimator does not change the log."""
    data = replace(_with_predictions(_log(rng), rng), contexts=rng.normal(size=(_ROWS, 2)))
    before = {
        field.name: np.array(getattr(data, field.name), copy=True)
        for field in fields(data)
        if isinstance(getattr(data, field.name), np.ndarray)
    }
    for without_model in (data, replace(data, q_hat=None)):
        for adaptive in (False, True):
            _estimate(estimator, without_model, adaptive=adaptive)
    for name, copy in before.items():
        _require(np.array_equal(getattr(data, name), copy), f"{name} was changed")


def check_refusal(estimator: Estimator, rng: np.random.Generator) -> None:
    """Check that a log without overlap is refused with reasons."""
    data = _log(rng)
    away = np.zeros_like(data.target)
    away[np.arange(len(data)), (data.actions + 1) % away.shape[1]] = 1.0
    report = evaluate(replace(data, target=away), estimators=(estimator,))
    found = report[estimator.name]
    _require(report.refused and bool(report.reasons), "a log without overlap was not refused")
    _require(
        (found.value, found.low, found.high) == (None, None, None),
        f"a refused log must have no estimates: {found}",
    )


def _log(rng: np.random.Generator, rows: int = _ROWS) -> LoggedData:
    return MILD.log(rng, rows)


def _on_policy(data: LoggedData) -> LoggedData:
    """Return the log with the policy for a target that logged it."""
    kinds = (data.target == MILD.target[1]).all(axis=1).astype(int)
    return replace(data, target=MILD.logged[kinds])


def _with_predictions(data: LoggedData, rng: np.random.Generator) -> LoggedData:
    return replace(data, q_hat=MILD.predictions(rng, len(data)))


def _predicted(
    world: World, rng: np.random.Generator, rows: int
) -> Iterator[tuple[str, LoggedData]]:
    """Yield a log without predictions, with right ones and with wrong ones, and say which."""
    data, right = world.log(rng, rows), world.predictions(rng, rows)
    yield "no", data
    yield "right", replace(data, q_hat=right)
    yield "wrong", replace(data, q_hat=right + _OFF)


def _rows(data: LoggedData, order: NDArray[np.intp]) -> LoggedData:
    return replace(
        data,
        **{
            field.name: getattr(data, field.name)[order]
            for field in fields(data)
            if isinstance(getattr(data, field.name), np.ndarray)
        },
    )


def _times(values: Floats | None, factor: float) -> Floats | None:
    return None if values is None else factor * values


def _estimate(estimator: Estimator, data: LoggedData, **options: Any) -> Estimate:
    report = evaluate(data, estimators=(estimator,), **options)
    _require(not report.refused, f"a log with overlap was refused: {report.reasons}")
    return report[estimator.name]


def _rounds(estimator: Estimator, data: LoggedData, *, adaptive: bool) -> Rounds:
    return estimator.rounds(Log(data, adaptive=adaptive))


def _value(estimator: Estimator, data: LoggedData, **options: Any) -> float:
    value = _estimate(estimator, data, **options).value
    if value is None:
        message = f"{estimator.name} has no value on a log with overlap"
        raise AssertionError(message)
    return value


def _numbers(found: Estimate) -> list[float]:
    return [end for end in (found.value, found.low, found.high) if end is not None]


def _close(seen: float, wanted: float, what: str) -> None:
    _require(
        abs(seen - wanted) <= _TOLERANCE * max(1.0, abs(wanted)),
        f"{what} is {seen!r}, expected {wanted!r} to {_TOLERANCE:g}",
    )


def _require(holds: object, message: str) -> None:
    if not holds:
        raise AssertionError(message)
