"""What PPO is told beside the space it acts in."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.learn.numbers import check_numbers


@dataclass(frozen=True, slots=True)
class Settings:
    """What the requirement and the paper call hyper-parameters.

    Args:
        gamma: What a reward one step later is worth, in [0, 1]. Trap: with 1 and endless episodes
            values do not exist.
        smoothing: λ of the advantages, in [0, 1].
        clip: ε: how far an action's probability may move in one update before moving it brings
            nothing more, in (0, 1).
        learning_rate: Of Adam at the start, > 0; it then follows the KL divergence.
        kl_target: How far the policy may move in one update, in nats, > 0. Epochs end when it has
            moved 1.5 times that; the learning rate falls above twice, and rises below half of it.
        entropy: Weight of the entropy bonus at the start, ≥ 0. It falls to 0 over
            `entropy_updates`: what explores for ever is never done.
        entropy_updates: Updates until the bonus is 0, ≥ 1.
        value_weight: Weight of the squared error of the values, ≥ 0.
        minibatches: Parts that each epoch cuts the steps into, ≥ 1; fewer where they would have
            fewer than 8 steps each.
        epochs: The most times that all steps are gone through, ≥ 1.
        hidden: Width of the encoder's two layers, ≥ 1.
        max_norm: Longer gradients are cut to this length, > 0.

    Raises:
        InputError: A value out of its range.

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
