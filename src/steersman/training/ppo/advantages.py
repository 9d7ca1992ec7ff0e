"""Generalised advantage estimation (GAE)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def advantages(
    rewards: Floats,
    values: Floats,
    last: NDArray[np.bool_],
    *,
    gamma: float = 0.99,
    smoothing: float = 0.95,
    beyond: Floats | None = None,
) -> Floats:
    """Return the advantage of each step of consecutive episodes.

    Args:
        gamma: discount per step, in [0, 1].
        smoothing: λ in [0, 1]: 0 uses `values` only, 1 uses rewards only.
        beyond: (n,) value estimate of the state after a truncated episode; 0 where the episode
            ended. A time limit truncates an episode; it does not end its value. Read only at these
            steps; default 0.

    Returns:
        (n,) A_t = δ_t + γ λ A_{t+1} with δ_t = r_t + γ V(s_{t+1}) − V(s_t).

    Raises:
        InputError: shapes do not match or a discount is out of range.

    >>> advantages(np.array([1.0, 1.0]), np.zeros(2), np.array([False, True]), gamma=1, smoothing=1)
    array([2., 1.])

    Source: Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage
    Estimation (2016), equations 11 to 16; Pardo et al., Time Limits in Reinforcement Learning
    (2018), section 3, for truncated episodes.
    """
    after = np.zeros(len(rewards)) if beyond is None else beyond
    if not len(rewards) == len(values) == len(last) == len(after):
        message = (
            f"got {len(rewards)} rewards, {len(values)} values, {len(last)} ends, {len(after)} "
        )
        message += "values of next states"
        raise InputError(f"{message}; pass one of each per step")
    if not 0 <= gamma <= 1 or not 0 <= smoothing <= 1:
        raise InputError(
            f"gamma is {gamma!r} and smoothing is {smoothing!r}; each must be from 0 to 1"
        )
    found = np.zeros(len(rewards))
    ends = np.array(last, np.bool_)  # ~1 of a whole number is not false
    ends[-1:] = True
    expected = np.where(ends, after, np.append(values[1:], 0.0))
    surprises = rewards + gamma * expected - values
    carried, ahead = gamma * smoothing * ~ends, 0.0
    for step in range(len(rewards) - 1, -1, -1):
        ahead = surprises[step] + carried[step] * ahead
        found[step] = ahead
    return found
