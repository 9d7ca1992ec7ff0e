"""Group-sequential bounds: critical values for a few planned looks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import open_unit, sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Spending = Literal["obrien-fleming", "pocock"]

# Nodes of the Gauss-Legendre rule per standard deviation of the smaller increment, before or after
# them; more change the bounds by less than 1e-10, since both are Gaussian convolutions.
_NODES_PER_SD = 4
_PANEL_NODES = 32

# Smallest step between looks: the nodes needed grow as 1 / sqrt(step), the work as their square.
_SMALLEST_STEP = 1e-4
_ROUNDING = 1e-9  # of it: .9001 - .9 falls short by some

# Standard deviations beyond which the score process has no mass in float64.
_FARTHEST = 9.0


def group_sequential_bounds(
    times: ArrayLike, *, alpha: float = 0.05, spending: Spending = "obrien-fleming"
) -> NDArray[np.float64]:
    r"""Return the two-sided critical value of the z statistic at each planned look.

    Rejecting at the first look whose \|z\| exceeds its bound spends alpha over the looks as the
    spending function says. Fewer looks cost less than a confidence sequence; unplanned ones are not
    allowed.

    Assumes independent units and information fractions that were fixed by unit counts, not by the
    results. Looking more often because a result is close breaks it.

    Args:
        times: Information fractions (units so far over units planned), strictly increasing in
            (0, 1], at least 0.0001 apart, shape (looks,).
        alpha: Two-sided error rate to spend, in (0, 1).
        spending: ``"obrien-fleming"`` spends almost nothing early; ``"pocock"`` about evenly.

    Returns:
        Bounds on \|z\|, float64 (looks,).

    Raises:
        InputError: Times not increasing in (0, 1] or too close to each other, alpha outside (0, 1),
            unknown spending.

    Example:
        >>> group_sequential_bounds([0.2, 0.4, 0.6, 0.8, 1.0]).round(3).tolist()
        [4.877, 3.357, 2.68, 2.29, 2.031]

    Source:
        Lan and DeMets (1983), Discrete sequential boundaries for clinical trials: spent over both
        sides, 4(1 - Phi(z_{alpha/4}/sqrt t)) and alpha log(1 + (e - 1)t). Density recursion of
        Armitage, McPherson and Rowe (1969). Tables and simulated error:
        ``tests/stats/test_group_sequential.py``.
    """
    fractions = sample(times, "times", at_least=1)
    steps = np.diff(fractions, prepend=0.0)
    if np.any(steps <= 0.0) or fractions[-1] > 1.0:
        message = f"times are {fractions.tolist()}; allowed: strictly increasing ones in (0, 1]"
        raise InputError(message)
    if np.any(steps[1:] < _SMALLEST_STEP * (1.0 - _ROUNDING)):
        message = (
            f"times are {fractions.tolist()}; allowed: looks at least {_SMALLEST_STEP:g} "
            "apart; to look after every unit, use a confidence sequence"
        )
        raise InputError(message)
    spent = np.diff(_spent(fractions, open_unit(alpha, "alpha"), spending), prepend=0.0)
    bounds = np.empty_like(fractions)
    # Before the first look the score process is at 0 with certainty.
    nodes, masses = np.zeros(1), np.ones(1)
    sds = np.sqrt(steps)
    for look, (time, sd, share) in enumerate(zip(fractions, sds, spent, strict=True)):
        bounds[look] = _bound(nodes, masses, sd, share) / math.sqrt(time)
        if look + 1 < fractions.size:
            reach = math.sqrt(time) * min(bounds[look], _FARTHEST)
            nodes, masses = _continue(nodes, masses, sd, reach, min(sd, sds[look + 1]))
    return bounds


def _spent(times: NDArray[np.float64], alpha: float, spending: object) -> NDArray[np.float64]:
    """Return the error spent by each time, over both sides."""
    if isinstance(spending, str) and spending == "pocock":
        return np.asarray(alpha * np.log1p((math.e - 1.0) * times))
    if isinstance(spending, str) and spending == "obrien-fleming":
        return np.asarray(4.0 * ndtr(ndtri(alpha / 4.0) / np.sqrt(times)))
    message = f"spending is {brief(spending)}; allowed: 'obrien-fleming' and 'pocock'"
    raise InputError(message)


def _bound(
    nodes: NDArray[np.float64], masses: NDArray[np.float64], sd: float, share: float
) -> float:
    """Return the score bound that is crossed, from inside so far, with probability ``share``."""

    def excess(bound: float) -> float:
        crossed = ndtr((nodes - bound) / sd) + ndtr((-bound - nodes) / sd)
        return math.log(max(float(masses @ crossed), 1e-300)) - math.log(share)

    widest = float(np.abs(nodes).max()) + 38.0 * sd
    if share <= 0.0 or excess(widest) >= 0.0:
        return widest
    return float(scipy.optimize.brentq(excess, 0.0, widest, xtol=1e-13))


def _continue(
    nodes: NDArray[np.float64],
    masses: NDArray[np.float64],
    sd: float,
    reach: float,
    finest: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return quadrature nodes and masses of the score process that has not crossed yet.

    ``finest`` is the smaller of the increments that lead to them and on from them.
    """
    # In panels of one small rule, since a rule of thousands of nodes takes seconds to make.
    panels = max(1, math.ceil(2.0 * reach / finest * _NODES_PER_SD / _PANEL_NODES))
    half = reach / panels
    unit_nodes, unit_weights = np.polynomial.legendre.leggauss(_PANEL_NODES)
    starts = np.linspace(-reach, reach, panels, endpoint=False)
    at = (starts[:, None] + half * (1.0 + unit_nodes)).ravel()
    density = _density((at[:, None] - nodes) / sd) @ masses / sd
    return at, half * np.tile(unit_weights, panels) * density


def _density(at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard normal density."""
    return np.asarray(np.exp(-at * at / 2.0) / math.sqrt(2.0 * math.pi))
