"""Adam as everything here that trains a network uses it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch
from torch.optim import adam

if TYPE_CHECKING:
    from collections.abc import Iterable


class Adam(adam.Adam):
    """torch's Adam: one call for all parameters of a step, and never torch's compiler.

    Small networks take longer over one parameter after the other than over the arithmetic. And
    torch guards five methods against being compiled: the first call of one imports all of the
    compiler, which takes as long as torch itself.

    Args:
        parameters: Of the network.
        lr: Learning rate, > 0.
        eps: Added to the root of the second moment, > 0.

    Source: Kingma and Ba, Adam: A Method for Stochastic Optimization (2015), algorithm 1.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], *, lr: float, eps: float = 1e-8) -> None:
        super().__init__(parameters, lr=lr, eps=eps, fused=True)

    step = torch.no_grad()(inspect.unwrap(adam.Adam.step))
    zero_grad = inspect.unwrap(adam.Adam.zero_grad)
    add_param_group = inspect.unwrap(adam.Adam.add_param_group)
    state_dict = inspect.unwrap(adam.Adam.state_dict)
    load_state_dict = inspect.unwrap(adam.Adam.load_state_dict)
