"""Hyper-parameters of PPO."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.errors.format import check_numbers

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


@dataclass(frozen=True, slots=True)
class Settings:
    """Hyper-parameters of PPO.

    Args:
        gamma: discount per step, in [0, 1]. Trap: with 1 and endless episodes, values are
            undefined.
        smoothing: λ of the advantages, in [0, 1].
        clip: ε, range of the probability ratio in one update, in (0, 1).
        learning_rate: initial learning rate of Adam, > 0; it then follows the KL divergence.
        kl_target: target KL divergence per update, in nats, > 0. Epochs stop above 1.5 times the
            target. The learning rate falls above twice the target and rises below half of it.
        entropy: initial weight of the entropy bonus, ≥ 0. It falls to 0 over `entropy_updates`.
        entropy_updates: number of updates until the bonus is 0, ≥ 1.
        value_weight: weight of the squared value error, ≥ 0.
        minibatches: minibatches per epoch, ≥ 1; fewer if they would have fewer than 8 steps.
        epochs: maximum number of passes over all steps, ≥ 1.
        hidden: width of the encoder's two layers, ≥ 1.
        max_norm: maximum gradient norm, > 0.

    Raises:
        InputError: a value is out of range.

    >>> Settings().clip
    0.2

    Source: requirement 000, section 4; Schulman et al., Proximal Policy Optimization Algorithms
    (2017), table 3; Andrychowicz et al., What Matters in On-Policy RL? (2021), for values that
    start near 0. Advantages are normalised over all steps of an update, not in each minibatch.
    """

    gamma: float = 0.99
    smoothing: float = 0.95
    clip: float = 0.2
    learning_rate: float = 1e-4
    kl_target: float = 0.02
    entropy: float = 0.01
    entropy_updates: int = 200
    value_weight: float = 0.5
    minibatches: int = 4
    epochs: int = 10
    hidden: int = 64
    max_norm: float = 0.5

    def __post_init__(self) -> None:
        check_numbers(
            self,
            {
                "gamma": "[0, 1]",
                "smoothing": "[0, 1]",
                "clip": "(0, 1)",
                "learning_rate": "> 0",
                "kl_target": "> 0",
                "entropy": ">= 0",
                "entropy_updates": ">= 1",
                "value_weight": ">= 0",
                "minibatches": ">= 1",
                "epochs": ">= 1",
                "hidden": ">= 1",
                "max_norm": "> 0",
            },
        )
