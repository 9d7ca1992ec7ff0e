"""Neural networks that score rows and value states, trained with torch (extra ``rl``).

A scorer network can add to the scores of a base policy. Its last layer then starts at zero, so that
the untrained policy equals the base policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.format import check_numbers
from steersman.errors.install_hint import how_to_install

try:
    import torch
    from torch import nn
except ImportError as missing:
    _MESSAGE = "training networks needs the package torch; install it with: "
    raise DataError(_MESSAGE + how_to_install("rl")) from missing

from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import SummedScorer
from steersman.training.optimizer import Adam
from steersman_systems.evidence_selection.training.behaviour_cloning import visit
from steersman_systems.evidence_selection.training.examples import Examples
from steersman_systems.evidence_selection.training.task import stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.training.task import Expert, Task

    Floats = NDArray[np.float64]

NOTHING = -1e30
"""Score of padding: zero probability without NaN."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings of supervised network training.

    Args:
        hidden: layer width, ≥ 1.
        layers: number of hidden layers, 1 to 4.
        batch: steps per batch, ≥ 1.
        accumulate: batches per weight update, ≥ 1.
        learning_rate: learning rate of Adam after the warm-up, > 0.
        warm_up: share of updates with a linearly rising rate, in [0, 1).
        updates: maximum number of updates, ≥ 1.
        max_norm: maximum gradient norm, > 0.
        mixed_precision: on CUDA, compute layers in bfloat16 with float32 weights and float64 loss;
            elsewhere everything is float64.
        device: device name; ``auto`` uses CUDA if available.

    Raises:
        InputError: a value is out of range.
    """

    hidden: int = 64
    layers: int = 2
    batch: int = 64
    accumulate: int = 1
    learning_rate: float = 3e-5
    warm_up: float = 0.1
    updates: int = 20_000
    max_norm: float = 1.0
    mixed_precision: bool = True
    device: str = "auto"

    def __post_init__(self) -> None:
        check_numbers(
            self,
            {
                "hidden": ">= 1",
                "layers": "[1, 4]",
                "batch": ">= 1",
                "accumulate": ">= 1",
                "learning_rate": "> 0",
                "warm_up": "[0, 1)",
                "updates": ">= 1",
                "max_norm": "> 0",
            },
        )


RAFT_NETWORK = NetworkSettings(batch=32, accumulate=2, learning_rate=2e-5, updates=2_000)
"""Settings of a network in each RAFT round."""


class RowNetwork(nn.Module):
    """Network from rows to one number each.

    Args:
        mean: (columns,) mean of the rows.
        scale: (columns,) scale of the rows, > 0.
        hidden: layer width.
        layers: number of hidden layers.
        generator: random generator of the initial weights.
        silent: whether the last layer starts at zero.
    """

    def __init__(
        self,
        mean: Floats,
        scale: Floats,
        hidden: int,
        layers: int,
        generator: torch.Generator,
        *,
        silent: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(mean.copy()))
        self.register_buffer("scale", torch.from_numpy(scale.copy()))
        widths = [len(mean), *[hidden] * layers, 1]
        self.layers = nn.ModuleList()
        for place, (inputs, outputs) in enumerate(pairwise(widths)):
            layer = nn.Linear(inputs, outputs, dtype=torch.float64)
            nn.init.orthogonal_(layer.weight, 2**0.5, generator=generator)
            nn.init.zeros_(layer.bias)
            if silent and place == layers:
                nn.init.zeros_(layer.weight)
            self.layers.append(layer)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (…,) for rows (…, columns).

        Args:
            rows: float64.
        """
        mean = self.get_buffer("mean")
        out = (rows.to(mean.dtype) - mean) / self.get_buffer("scale")
        *hidden, last = self.layers
        for layer in hidden:
            out = torch.tanh(layer(out))
        found: torch.Tensor = last(out).squeeze(-1)
        return found

    def scorer(self) -> NetworkScorer:
        """Return the network as arrays.

        Raises:
            InputError: a weight is not finite.
        """

        def array(tensor: torch.Tensor) -> Floats:
            found: Floats = tensor.detach().cpu().numpy().astype(np.float64)
            return found

        layers = [(array(one.weight), array(one.bias)) for one in self.layers]
        return NetworkScorer(
            array(self.get_buffer("mean")), array(self.get_buffer("scale")), layers
        )


def scale_of(rows: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of each column; 1 for a constant column.

    >>> scale_of(np.array([[1.0, 5.0], [3.0, 5.0]]))
    (array([2., 5.]), array([1., 1.]))
    """
    spread = rows.std(axis=0)
    return rows.mean(axis=0), np.where(spread > 1e-9, spread, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class PaddedSteps:
    """Steps padded to the same number of actions.

    Args:
        rows: (steps, most, columns) action features.
        there: (steps, most) mask of actions.
        base: (steps, most) scores of the base policy; 0 without one.
    """

    rows: torch.Tensor
    there: torch.Tensor
    base: torch.Tensor

    @classmethod
    def of(cls, steps: Sequence[Floats], below: Scorer | None, device: torch.device) -> PaddedSteps:
        """Return steps padded to the longest.

        `below`: base scorer; None for none.
        """
        most = max(len(one) for one in steps)
        rows = np.zeros((len(steps), most, steps[0].shape[1]))
        there = np.zeros((len(steps), most), np.bool_)
        base = np.zeros((len(steps), most))
        for place, one in enumerate(steps):
            rows[place, : len(one)], there[place, : len(one)] = one, True
        if below is not None:
            base[there] = below.scores(rows[there])
        return cls(*(torch.from_numpy(array).to(device) for array in (rows, there, base)))

    def at(self, places: torch.Tensor) -> PaddedSteps:
        """Return the steps at some indices."""
        return PaddedSteps(self.rows[places], self.there[places], self.base[places])

    def scores(self, network: RowNetwork) -> torch.Tensor:
        """Return (steps, most) scores; `NOTHING` for padding."""
        return (network(self.rows) + self.base).masked_fill(~self.there, NOTHING)


def device_of(name: str) -> torch.device:
    """Return the torch device of a name.

    >>> device_of("cpu").type
    'cpu'
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def train(
    examples: Examples,
    settings: NetworkSettings | None = None,
    *,
    start: Scorer | None = None,
    seed: int = 0,
) -> Scorer:
    """Return a network trained with the softmax loss.

    Minimises −Σ_steps Σ_a w_a y_a ln π(a) with π the softmax over a step's actions.

    `start`: base scorer; None for none.

    Raises:
        InputError: no step has a correct action.
        FloatingPointError: the loss is not finite; discard the network.
    """
    how = settings or NetworkSettings()
    device = device_of(how.device)
    steps, wanted = _steps(examples)
    padded = PaddedSteps.of(steps, start, device)
    right = torch.zeros(padded.there.shape, dtype=torch.float64, device=device)
    for place, one in enumerate(wanted):
        right[place, : len(one)] = torch.from_numpy(one).to(device)
    right /= right.sum(dim=1).mean()  # makes the learning rate independent of the weights' scale
    generator = torch.Generator().manual_seed(seed)
    network = RowNetwork(*scale_of(examples.rows), how.hidden, how.layers, generator,
                         silent=start is not None).to(device)  # fmt: skip
    mixed = how.mixed_precision and device.type == "cuda"
    _descend(network, padded, right, how, generator, mixed=mixed)
    return network.scorer() if start is None else SummedScorer((start, network.scorer()))


def _steps(examples: Examples) -> tuple[list[Floats], list[Floats]]:
    ends = examples.sizes.cumsum()
    steps, wanted = [], []
    for first, last in zip(ends - examples.sizes, ends, strict=True):
        right = examples.targets[first:last] * examples.weights[first:last]
        if right.any():
            steps.append(examples.rows[first:last])
            wanted.append(right)
    if not steps:
        raise InputError(f"none of the {len(examples)} steps has a correct action to learn")
    return steps, wanted


def _descend(
    network: RowNetwork,
    padded: PaddedSteps,
    right: torch.Tensor,
    how: NetworkSettings,
    generator: torch.Generator,
    *,
    mixed: bool,
) -> None:
    # Autocast ignores float64; it computes float32 weights in bfloat16.
    network.to(torch.float32 if mixed else torch.float64)
    optimizer = Adam(network.parameters(), lr=how.learning_rate)
    warm = max(round(how.warm_up * how.updates), 1)
    for update in range(how.updates):
        for group in optimizer.param_groups:
            group["lr"] = how.learning_rate * min(1.0, (update + 1) / warm)
        optimizer.zero_grad()
        for _ in range(how.accumulate):
            places = torch.randint(len(right), (how.batch,), generator=generator).to(right.device)
            with torch.autocast(right.device.type, torch.bfloat16, enabled=mixed):
                scores = padded.at(places).scores(network)
            logs = torch.log_softmax(scores, dim=1)
            loss = -(right[places] * logs).sum(dim=1).mean() / how.accumulate
            if not torch.isfinite(loss):
                raise FloatingPointError(
                    f"the loss of update {update} is {loss.item()}; lower the learning rate"
                )
            loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), how.max_norm)
        optimizer.step()
    network.to(torch.float64)


@dataclass(frozen=True, slots=True)
class NetworkOnTop:
    """RAFT tuner: a network with the softmax loss on top of the start policy.

    Args:
        settings: training settings.
    """

    settings: NetworkSettings = RAFT_NETWORK

    def __call__(self, examples: Examples, start: Scorer, *, seed: int) -> Scorer:
        """Return the sum of the start policy and the network."""
        return train(examples, self.settings, start=start, seed=seed)


def clone_network(
    tasks: Sequence[Task],
    expert: Expert,
    settings: NetworkSettings | None = None,
    *,
    beside: Scorer,
    others: int = 40,
    seed: int = 0,
) -> Scorer:
    """Return a network that imitates an expert.

    `settings`: training settings; 20,000 updates by default.

    Raises:
        InputError: no step has a correct action.
        FloatingPointError: the loss is not finite.

    Source: as `steersman_systems.evidence_selection.training.behaviour_cloning.clone`.
    """
    seen = [
        step
        for scorer in (None, beside)
        for task in tasks
        for step in visit(task, expert, scorer, others, rng=stream(seed, task.id))
    ]
    if not seen:
        raise InputError(
            f"none of the {len(tasks)} questions has a step to learn from; pass others"
        )
    return train(Examples.joined(seen), settings, seed=seed)
