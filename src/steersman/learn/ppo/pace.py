"""How fast PPO learns: the learning rate follows how far each update moved the policy."""

from __future__ import annotations

FASTER = 1.5
SLOWEST, FASTEST = 1e-6, 1e-2


def following(rate: float, divergence: float, target: float) -> float:
    """Return the next learning rate.

    Args:
        rate: The present one, > 0.
        divergence: KL divergence from the policy before an update to the one after, in nats.
        target: What it should be, > 0.

    Returns:
        Less after a divergence above twice the target, more after one below half of it, within
        1e-6 and 1e-2; what is no number changes nothing.

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
