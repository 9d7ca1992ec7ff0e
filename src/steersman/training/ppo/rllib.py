"""PPO training with RLlib on a Ray cluster, with the network of the built-in PPO."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steersman.errors import ClusterError, DataError, InputError, StateError
from steersman.errors.install_hint import how_to_install
from steersman.points.state_bytes import pack_state, unpack_state
from steersman.training.parallel_map import cluster
from steersman.training.ppo.agent import PPO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.training.ppo.action_parts import Stage
    from steersman.training.ppo.settings import Settings

    Arrays = dict[str, NDArray[Any]]

_MODULE = "default_policy"
_OPTIMIZER = f"{_MODULE}_default_optimizer"
_PENALTY = "penalty"
_ABOUT = "about."
_ALIKE = 1e-6
"""Tolerance between processors."""
_FIRST_PENALTY = 0.2
"""Initial weight of the KL divergence in the loss; RLlib adapts it."""
_UNCLIPPED = 1e12
_PROBE_S = 2.0
"""Seconds to wait for a missing runner before each update."""
_IN_VAIN = 30
"""Consecutive updates without any step after which the cluster counts as lost."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """Result of one RLlib update.

    Args:
        number: update number from 1, including those before the checkpoint.
        reward: mean reward per step.
        divergence: KL divergence from the previous policy, in nats, of the last minibatch.
        entropy: mean entropy of the policy, in nats.
        learning_rate: learning rate after the update.
        runners: number of active runners; lower while lost runners restart.
    """

    number: int
    reward: float
    divergence: float
    entropy: float
    learning_rate: float
    runners: int


def train_rllib(
    stage: Stage,
    *,
    updates: int,
    horizon: int,
    settings: Settings,
    address: str,
    episodes: int = 24,
    runners: int = 2,
    seed: int = 0,
    guess: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]] | None = None,
    about: Mapping[str, NDArray[np.float64]] | None = None,
    checkpoint: Path | None = None,
    done: Callable[[UpdateResult], None] | None = None,
) -> PPO:
    """Train a policy with RLlib on a cluster and return it as `PPO`.

    The driver learns. Runners use one CPU each and run on any node. Runners of a lost node restart
    elsewhere; until then the other runners do their work. Two things differ from the built-in PPO:
    epochs do not stop early (RLlib uses a KL penalty), and runs are not reproducible to the byte.

    Args:
        updates: total number of updates, including those in the checkpoint, ≥ 1.
        horizon: steps per episode, ≥ 1.
        runners: number of parallel runners, ≥ 1.
        guess: prior policy, as in `PPO.start_from`; default: random weights.

    Raises:
        InputError: a number is out of range or a prior has a wrong shape.
        DataError: the extra `ray` is missing, or the checkpoint belongs to another training.
        ClusterError: the cluster does not respond, or no runner is left.
    """
    if updates < 1 or horizon < 1 or not 1 <= runners <= episodes:
        message = f"updates {updates!r}, horizon {horizon!r}, episodes {episodes!r}, runners "
        raise InputError(f"{message}{runners!r}; see the ranges in the docstring of train_rllib")
    agent = PPO(stage.parts, stage.features, settings=settings, seed=seed)
    if guess is not None:
        agent.start_from(guess)
    state, kept = agent.state(), _about(agent, seed, about or {})
    if checkpoint is not None and checkpoint.exists():
        state = _read(checkpoint, agent, kept)
    sizes = _Sizes(horizon, episodes, runners, seed)
    with _algorithm(stage, state, sizes, settings, address) as algorithm:
        while int(state["updates"]) < updates:
            state, updated = _next(algorithm, state, horizon)
            if checkpoint is not None:
                _write(checkpoint, {**state, **kept})
            if done is not None:
                done(updated)
    agent.restore({name: of for name, of in state.items() if name != _PENALTY})
    return agent


class _Sizes(NamedTuple):
    horizon: int
    episodes: int
    runners: int
    seed: int


@contextmanager
def _algorithm(
    stage: Stage, state: Arrays, sizes: _Sizes, settings: Settings, address: str
) -> Iterator[Any]:
    """Create RLlib's PPO on a cluster from a state."""
    try:
        import ray.rllib  # noqa: PLC0415 (an extra, and slow)
    except ImportError as missing:
        message = (
            "RLlib is not installed; use the built-in PPO on this machine, or install RLlib with: "
        )
        raise DataError(message + how_to_install("ray", "rl")) from missing
    # RLlib imports this when it connects. It needs the working directory, which a job may lack
    # by then if several nodes share a machine.
    import_module("torch._dynamo.config")
    with cluster(address) as ray:
        made = _configured(stage, ray.put(stage), state, sizes, settings).build_algo()
        try:
            _load(made, state)
            yield made
        finally:
            made.stop()


def _configured(
    stage: Stage, reference: Any, state: Arrays, sizes: _Sizes, settings: Settings
) -> Any:
    from ray.rllib.algorithms.ppo import PPOConfig  # noqa: PLC0415 (an extra, and slow)
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec  # noqa: PLC0415

    from steersman.training.ppo.rllib_parts import (  # noqa: PLC0415
        Learner,
        Module,
        NetworkSpec,
        PartsEnvironment,
        StoredStage,
    )

    steps = sizes.horizon * sizes.episodes
    already = int(state["updates"])
    left = max(settings.entropy_updates - already, 1)
    bonus = settings.entropy * max(1 - already / settings.entropy_updates, 0.0)
    network = NetworkSpec(stage.parts, stage.features, settings.hidden, _weights(state))
    return (
        PPOConfig()
        .environment(
            PartsEnvironment,
            env_config={"kept": StoredStage(reference), "seed": (sizes.seed, already)},
        )
        .env_runners(
            num_env_runners=sizes.runners,
            num_envs_per_env_runner=-(-sizes.episodes // sizes.runners),
            batch_mode="complete_episodes",
        )
        .learners(num_learners=0, learner_class=Learner)
        .rl_module(
            rl_module_spec=RLModuleSpec(module_class=Module, model_config={"built": network})
        )
        .training(
            gamma=settings.gamma,
            lambda_=settings.smoothing,
            clip_param=settings.clip,
            lr=float(state["learning_rate"]),
            kl_target=settings.kl_target,
            kl_coeff=float(state.get(_PENALTY, _FIRST_PENALTY)),
            entropy_coeff=[[0, bonus], [left * steps, 0.0]],
            vf_loss_coeff=settings.value_weight,
            vf_clip_param=_UNCLIPPED,
            grad_clip=settings.max_norm,
            grad_clip_by="global_norm",
            num_epochs=settings.epochs,
            minibatch_size=max(steps // settings.minibatches, 1),
            train_batch_size_per_learner=steps,
        )
        .fault_tolerance(
            restart_failed_env_runners=True,
            num_consecutive_env_runner_failures_tolerance=_IN_VAIN,
            env_runner_health_probe_timeout_s=_PROBE_S,
        )
        .reporting(metrics_num_episodes_for_smoothing=sizes.episodes)
        .debugging(seed=sizes.seed, log_level="ERROR")
    )


def _next(algorithm: Any, before: Arrays, horizon: int) -> tuple[Arrays, UpdateResult]:
    """Return the state after one more update, in the form of `PPO.state`, and its statistics."""
    for _ in range(_IN_VAIN):
        result = algorithm.train()
        statistics = result.get("learners", {}).get(_MODULE)
        if statistics is not None:
            break
    else:
        message = f"no runner returned any step in {_IN_VAIN} rounds; check that nodes are up "
        raise ClusterError(message + "with a free CPU (`ray status`), then start again")
    number = int(before["updates"]) + 1
    state = _state(algorithm, number, float(statistics["curr_kl_coeff"]))
    if not all(np.isfinite(of).all() for of in state.values()):
        message = (
            f"update {number} produced weights that are not finite; the earlier state was kept; "
        )
        raise StateError(message + "resume from it with a lower learning rate")
    return state, UpdateResult(
        number=number,
        reward=float(result["env_runners"]["episode_return_mean"]) / horizon,
        divergence=float(statistics["mean_kl_loss"]),
        entropy=float(statistics["entropy"]),
        learning_rate=float(state["learning_rate"]),
        runners=int(algorithm.env_runner_group.num_healthy_remote_workers()),
    )


# -- states ---------------------------------------------------------------------------------------


def _state(algorithm: Any, updates: int, penalty: float) -> Arrays:
    learner = algorithm.learner_group.get_state()["learner"]
    optimizer = learner["optimizer"][_OPTIMIZER]["state"]
    found = {name: np.asarray(of) for name, of in learner["rl_module"][_MODULE].items()}
    for number, moments in optimizer["state"].items():
        for name, value in moments.items():
            found[f"adam.{number}.{name}"] = np.asarray(value)
    found["learning_rate"] = np.array(optimizer["param_groups"][0]["lr"], np.float64)
    found["updates"] = np.array(updates)
    found[_PENALTY] = np.array(penalty)
    return found


def _weights(state: Arrays) -> Arrays:
    return {name: of for name, of in state.items() if name.startswith("network.")}


def _load(algorithm: Any, state: Arrays) -> None:
    """Load the moments of a state into the optimiser."""
    moments: dict[int, dict[str, NDArray[Any]]] = {}
    for name, of in state.items():
        if name.startswith("adam."):
            _, number, field = name.split(".")
            moments.setdefault(int(number), {})[field] = of
    optimizer = algorithm.learner_group.get_state(components="learner/optimizer")
    optimizer["learner"]["optimizer"][_OPTIMIZER]["state"]["state"] = moments
    algorithm.learner_group.set_state(optimizer)


def _write(file: Path, state: Arrays) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(pack_state({n: np.asarray(a, np.float64) for n, a in state.items()}))
    part.replace(file)


def _about(agent: PPO, seed: int, more: Mapping[str, NDArray[np.float64]]) -> Arrays:
    parts = [(part.name, part.size, part.ordered) for part in agent.parts]
    digest = hashlib.sha256(repr(parts).encode()).digest()
    own = {"seed": np.array(float(seed)), "parts": np.array([*digest], np.float64)}
    return {f"{_ABOUT}{name}": of for name, of in {**own, **more}.items()}


def _read(file: Path, agent: PPO, kept: Arrays) -> Arrays:
    advice = "; choose another file, or use the settings of that run"
    try:
        found = dict(unpack_state(file.read_bytes()))
        penalty = found.pop(_PENALTY)
        before = {name: found.pop(name) for name in list(found) if name.startswith(_ABOUT)}
        agent.restore(found)
    except (OSError, KeyError, ValueError) as error:
        message = f"{file}: not a checkpoint of this training: {error}{advice}"
        raise DataError(message) from None
    odd = [name for name in sorted({*before, *kept}) if not _same(before, kept, name)]
    if odd:
        names = ", ".join(name.removeprefix(_ABOUT) for name in odd)
        message = f"{file}: not a checkpoint of this training: it has different {names}"
        raise DataError(message + advice)
    return {**agent.state(), _PENALTY: penalty}


def _same(before: Arrays, kept: Arrays, name: str) -> bool:
    one, other = before.get(name), kept.get(name)
    if one is None or other is None or np.shape(one) != np.shape(other):
        return False
    return bool(np.allclose(one, other, rtol=_ALIKE, atol=_ALIKE))
