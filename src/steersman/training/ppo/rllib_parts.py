"""RLlib adapters: environment, network module and learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchMultiDistribution,
)
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule

from steersman.training.ppo.network import Network
from steersman.training.ppo.settings import following

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.training.ppo.action_parts import Part, Stage

    Floats = NDArray[np.float64]

_CLIP = 1e6
_EPSILON = 1e-5
"""Epsilon of Adam, as in the built-in PPO."""
_FAINTEST = -80.0
"""Minimum log probability passed to RLlib. In float32 smaller values are 0, which would make the KL
divergence infinite and disturb the penalty and the learning rate."""


class StoredStage:
    """Stage in the cluster's object store, because RLlib copies its configuration often."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference

    def __deepcopy__(self, memo: object) -> StoredStage:
        return self

    def stage(self) -> Stage:
        """Return the stage, with arrays shared by the processes of a node."""
        found: Stage = ray.get(self._reference)
        return found


@dataclass(frozen=True, eq=False)
class NetworkSpec:
    """Sizes and initial weights of a network.

    Args:
        parts: action parts.
        features: number of state features.
        hidden: width of the layers.
        weights: arrays named as in `PPO.state`.
    """

    parts: tuple[Part, ...]
    features: int
    hidden: int
    weights: Mapping[str, NDArray[Any]]


def ordered(parts: Sequence[Part]) -> list[Part]:
    """Return parts in RLlib's order: a ``Dict`` space is sorted by name."""
    return sorted(parts, key=lambda part: part.name)


class PartsEnvironment(gymnasium.Env):
    """Gymnasium environment with a ``Dict`` of one ``Discrete`` action per part."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._stage: Stage = config["kept"].stage()
        self.observation_space = gymnasium.spaces.Box(-_CLIP, _CLIP, (self._stage.features,))
        self.action_space = gymnasium.spaces.Dict(
            {part.name: gymnasium.spaces.Discrete(part.size) for part in self._stage.parts}
        )
        # A restarted or resumed runner must not repeat the same episodes.
        self._seed = [*config["seed"], getattr(config, "worker_index", 0), int(_restarted())]
        self._begun = 0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin the next episode; RLlib passes the same seed before every sample."""
        super().reset(seed=seed)
        self._begun += 1
        numbers = [*self._seed, (seed or 0) % 2**32, self._begun]
        return self._seen(self._stage.episodes.reset(np.random.default_rng(numbers))), {}

    def step(
        self, action: Mapping[str, Any]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take an action; the end of an episode is a truncation."""
        played = self._stage.episodes.step([int(action[part.name]) for part in self._stage.parts])
        return self._seen(played.state), float(played.reward), False, bool(played.last), {}

    def _seen(self, raw: Floats) -> NDArray[np.float32]:
        return np.asarray(self._stage.scale(raw), np.float32)


def _restarted() -> bool:
    context = ray.get_runtime_context() if ray.is_initialized() else None
    if context is None or context.get_actor_id() is None:
        return False
    return bool(context.was_current_actor_reconstructed)


class Module(TorchRLModule, ValueFunctionAPI):
    """RLlib module that wraps the built-in network."""

    def setup(self) -> None:
        """Create the network with its initial weights."""
        built: NetworkSpec = self.model_config["built"]
        self.network = Network(built.parts, built.features, built.hidden, torch.Generator())
        self.set_state(built.weights)
        parts = ordered(built.parts)
        self._order = [built.parts.index(part) for part in parts]
        self.action_dist_cls = TorchMultiDistribution.get_partial_dist_cls(
            child_distribution_cls_struct={part.name: TorchCategorical for part in parts},
            input_lens={part.name: part.size for part in parts},
        )

    def _forward(self, batch: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        logs, values = self.network(batch[Columns.OBS].double())
        flat = torch.cat([logs[place] for place in self._order], dim=-1).clamp(_FAINTEST).float()
        return {Columns.ACTION_DIST_INPUTS: flat, Columns.EMBEDDINGS: values.float()}

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Any:
        """Return the value of each state, (n,)."""
        return self._forward(batch)[Columns.EMBEDDINGS] if embeddings is None else embeddings

    def get_state(self, *_: Any, **__: Any) -> dict[str, NDArray[Any]]:
        """Return exact weights; RLlib would round them to float32."""
        return {n: of.detach().cpu().numpy().copy() for n, of in self.state_dict().items()}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load exact weights."""
        self.load_state_dict({n: torch.from_numpy(np.array(a)) for n, a in state.items()})


class Learner(PPOTorchLearner):
    """RLlib learner with the built-in optimiser and KL-controlled learning rate."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Register the optimiser without an RLlib schedule."""
        parameters = self.get_parameters(self.module[module_id])
        optimizer = torch.optim.Adam(parameters, lr=config.lr, eps=_EPSILON)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    def _update_module_kl_coeff(self, *, module_id: str, config: Any, kl_loss: float) -> None:
        super()._update_module_kl_coeff(module_id=module_id, config=config, kl_loss=kl_loss)
        for _, optimizer in self.get_optimizers_for_module(module_id):
            for group in optimizer.param_groups:
                group["lr"] = following(group["lr"], float(kl_loss), config.kl_target)
