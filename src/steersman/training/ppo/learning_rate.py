"""Adaptive learning rate of PPO, controlled by the KL divergence."""

from __future__ import annotations

FASTER = 1.5
SLOWEST, FASTEST = 1e-6, 1e-2


def following(rate: float, divergence: float, target: float) -> float:
    """Return the next learning rate.

    `rate`: current learning rate, > 0.
    `target`: target divergence, > 0.

    Returns:
        A lower rate above twice the target, a higher rate below half of it, within 1e-6 and 1e-2.
        NaN changes nothing.

    >>> round(following(1.5e-4, 0.05, 0.02), 9), following(1e-2, 0.0, 0.02)
    (0.0001, 0.01)

    Source: Schulman et al., Proximal Policy Optimization Algorithms (2017), section 4, for a
    penalty; here the learning rate follows.
    """
    if divergence > 2 * target:
        return max(rate / FASTER, SLOWEST)
    if divergence < target / 2:
        return min(rate * FASTER, FASTEST)
    return rate
