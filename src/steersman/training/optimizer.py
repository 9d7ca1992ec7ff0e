"""Adam optimiser for all networks."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch
from torch.optim import adam

if TYPE_CHECKING:
    from collections.abc import Iterable


class Adam(adam.Adam):
    """torch's Adam with one fused call per step and without torch's compiler.

    For small networks, one call per parameter takes longer than the arithmetic. torch also imports
    its compiler at the first optimiser call, which takes as long as importing torch.

    Args:
        parameters: network parameters.
        lr: learning rate, > 0.
        eps: added to the root of the second moment, > 0.

    Source: Kingma and Ba, Adam: A Method for Stochastic Optimization (2015), algorithm 1.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], *, lr: float, eps: float = 1e-8) -> None:
        super().__init__(parameters, lr=lr, eps=eps, fused=True)

    step = torch.no_grad()(inspect.unwrap(adam.Adam.step))
    zero_grad = inspect.unwrap(adam.Adam.zero_grad)
    add_param_group = inspect.unwrap(adam.Adam.add_param_group)
    state_dict = inspect.unwrap(adam.Adam.state_dict)
    load_state_dict = inspect.unwrap(adam.Adam.load_state_dict)
