"""PPO network: one encoder, one head per action part and one value head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.training.ppo.action_parts import Part

_NARROW, _WIDE = 0.05, 4.0
"""Allowed widths of an ordered part's distribution, in units of half its range."""


class Network(nn.Module):
    """Network from states to part distributions and values.

    Args:
        parts: action parts, one or more.
        features: number of state features, ≥ 1.
        hidden: width of the two layers, ≥ 1.
        generator: random generator of the initial weights.
    """

    def __init__(
        self, parts: Sequence[Part], features: int, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._parts = tuple(parts)
        self._encoder = nn.Sequential(
            _linear(features, hidden, 2**0.5, generator),
            nn.Tanh(),
            _linear(hidden, hidden, 2**0.5, generator),
            nn.Tanh(),
        )
        # Small initial weights give a nearly uniform policy.
        self._heads = nn.ModuleList(
            _linear(hidden, part.outputs, 0.01, generator) for part in self._parts
        )
        # Direct connection from the state, zero until it is learned or set.
        self._direct = nn.ModuleList(_nothing(features, part.outputs) for part in self._parts)
        self._value = _linear(hidden, 1, 0.01, generator)
        for number, part in enumerate(self._parts):
            self.register_buffer(f"_grid_{number}", torch.tensor(part.grid, dtype=torch.float64))

    def forward(self, states: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return log probabilities and values.

        Args:
            states: (n, features) float64.
        """
        coded = self._encoder(states)
        logs = []
        paths = zip(self._parts, self._heads, self._direct, strict=True)
        for number, (part, head, direct) in enumerate(paths):
            out = head(coded) + direct(states)
            if part.ordered:
                out = _bell(out, self.get_buffer(f"_grid_{number}"))
            logs.append(torch.log_softmax(out, dim=-1))
        return logs, self._value(coded).squeeze(-1)

    def set_direct(self, number: int, weights: torch.Tensor, biases: torch.Tensor) -> None:
        """Set the weights that connect a head directly to the state."""
        with torch.no_grad():
            self._direct[number].weight.copy_(weights)
            self._direct[number].bias.copy_(biases)


def _bell(out: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Return logits of a discretised normal distribution; wide before training."""
    mean = 1.5 * torch.tanh(out[..., :1])
    width = _NARROW + (_WIDE - _NARROW) * torch.sigmoid(out[..., 1:])
    return -0.5 * ((grid - mean) / width) ** 2


def _nothing(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
