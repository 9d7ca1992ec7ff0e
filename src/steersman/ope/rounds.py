"""Rounds: one term per logged decision, the basis of estimates and intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.ope.bootstrap import Refit

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rounds:
    """Estimate as a ratio of sums over rounds: V = sum(numerator) / sum(denominator).

    Args:
        numerator: One term per round, in the reward's unit, shape (n,).
        denominator: One term per round, shape (n,): 1, or the weight for a self-normalised ratio.
        span: Width of the range that numerator - V * denominator can never leave, for Bernstein.
        from_model: True when the terms are a model's predictions: their spread over rounds says
            nothing about the model's error, so only ``refit`` can give an interval.
        refit: Fits the model again on a bootstrap sample, where that is possible.
        centred: True when rewards that are all one value leave no noise, as where terms are
            differences from the value or from a model of these rewards: the nearer the value is to
            an end of the rewards' range, the less it can move, which ``"score"`` intervals know.
    """

    numerator: Floats
    denominator: Floats
    span: float
    from_model: bool = False
    refit: Refit | None = None
    centred: bool = False

    @property
    def value(self) -> float:
        """The estimate, in the reward's unit."""
        return float(self.numerator.sum() / self.denominator.sum())

    def residuals(self) -> Floats:
        """Return each round's share in the error, linearised: shape (n,), mean 0.

        The delta method for a ratio: (numerator - V denominator) / mean denominator.
        """
        centred = self.numerator - self.value * self.denominator
        return np.asarray(centred / self.denominator.mean())

    def scaled(self, factors: Floats) -> Rounds:
        """Return the rounds with each term multiplied by a factor fixed before it was drawn.

        Args:
            factors: Positive numbers, shape (n,).

        Returns:
            Rounds of the same model, weighted.
        """
        return replace(
            self,
            numerator=self.numerator * factors,
            denominator=self.denominator * factors,
            span=self.span * float(factors.max()),
        )

    def noisier(self, residuals: Floats) -> Rounds:
        """Return the rounds with something added to each one's share in the error.

        Args:
            residuals: In the reward's unit, of mean 0, shape (n,).

        Returns:
            Rounds of the same value.
        """
        terms = residuals * self.denominator.mean()
        span = self.span + float(np.ptp(terms))
        return replace(self, numerator=self.numerator + terms, span=span)


def check_rounds(name: str, rounds: object, count: int) -> Rounds:
    """Return the validated result of an estimator.

    Args:
        name: Name of the estimator.
        rounds: Its result.
        count: Number of rounds of the log, n.

    Raises:
        InputError: Not `Rounds`, another length, non-finite terms, or denominators that sum to 0.

    Example:
        >>> check_rounds("mine", None, 3)
        Traceback (most recent call last):
        steersman.errors.InputError: estimator 'mine' returned NoneType; allowed: Rounds
    """
    if not isinstance(rounds, Rounds):
        message = f"estimator {brief(name)} returned {type(rounds).__name__}; allowed: Rounds"
        raise InputError(message)
    for field in ("numerator", "denominator"):
        given: object = getattr(rounds, field)
        terms = np.asarray(given)
        if terms.shape != (count,) or terms.dtype.kind not in "biuf":
            message = (
                f"estimator {name!r} has a {field} of shape {terms.shape} and type "
                f"{terms.dtype}; allowed: one number for each of {count} rounds"
            )
            raise InputError(message)
        if not isinstance(given, np.ndarray):
            message = f"estimator {name!r} has a {field} that is {type(given).__name__}; allowed:"
            raise InputError(f"{message} an array: give it to numpy.asarray")
        if not np.isfinite(terms).all():
            place = int(np.argmin(np.isfinite(terms)))
            message = (
                f"estimator {name!r} has a {field} of {terms[place]} in round {place}; "
                "allowed: finite numbers"
            )
            raise InputError(message)
    span: object = rounds.span
    spanned = isinstance(span, int | float | np.number) and bool(span >= 0.0)
    if not (rounds.denominator.sum() != 0.0 and spanned):
        message = (
            f"estimator {name!r} has denominators that sum to {rounds.denominator.sum()} and a "
            f"span of {rounds.span!r}; allowed: a sum other than 0 and a span of at least 0"
        )
        raise InputError(message)
    return rounds
