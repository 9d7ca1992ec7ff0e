"""CUPED: variance reduction by a pre-test covariate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.stats.arguments import sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


_ROUNDING = 1e-14  # of the largest covariate: numbers that differ by less may be one


def cuped_adjust(y: ArrayLike, covariate: ArrayLike) -> NDArray[np.float64]:
    """Return the numbers minus the part that a pre-test covariate explains, with the same mean.

    Adjust both arms in one call, then compare the adjusted arms: the variance falls by the squared
    correlation and the difference stays unbiased.

    Assumes that the covariate was measured before the test began. One that the treatment can move
    (anything measured during the test) takes away part of the effect. Adjusting each arm apart adds
    the difference of the arms' covariate means back in.

    Args:
        y: One number per unit, both arms together, shape (n,), n >= 2.
        covariate: The same quantity before the test, one per unit, shape (n,).

    Returns:
        Adjusted numbers, float64 (n,); equal to ``y`` when the covariate is constant up to
        rounding.

    Raises:
        InputError: Non-finite numbers, any above 1e100 in absolute value, or shapes that differ.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> before = rng.normal(size=1000)
        >>> after = before + rng.normal(size=1000)
        >>> adjusted = cuped_adjust(after, before)
        >>> round(float(adjusted.var() / after.var()), 2)
        0.49

    Source:
        Deng, Xu, Kohavi and Walker (2013), Improving the sensitivity of online controlled
        experiments by utilizing pre-experiment data, equations 4 and 5. Unbiasedness and gain:
        ``tests/stats/test_cuped.py``.
    """
    numbers, known = sample(y, "y"), sample(covariate, "covariate")
    if numbers.shape != known.shape:
        message = f"covariate has shape {known.shape}; allowed: y's shape {numbers.shape}"
        raise InputError(message)
    if np.ptp(known) <= _ROUNDING * np.abs(known).max():
        return numbers.copy()
    centred = known - known.mean()
    centred /= np.abs(centred).max()  # squares of small ones leave float64
    centred -= centred.mean()  # what rounding left of it would move the mean of the numbers
    spread = float(centred @ centred)
    return np.asarray(numbers - float(centred @ (numbers - numbers.mean())) / spread * centred)
