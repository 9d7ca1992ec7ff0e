"""Training of the sequential policy with RLlib on a Ray cluster."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from steersman.training.ppo.action_parts import Stage
from steersman.training.ppo.rllib import train_rllib
from steersman.training.ppo.settings import Settings
from steersman_systems.rag_tuner.strategies.ppo_guess import first_guess
from steersman_systems.rag_tuner.strategies.ppo_sequential import SequentialPolicy, fitted_scaling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.training.ppo.rllib import UpdateResult
    from steersman_systems.rag_tuner.environment import TuningEnvironment
    from steersman_systems.rag_tuner.features import Scaling

    Floats = NDArray[np.float64]


def train_on_ray(
    environment: TuningEnvironment,
    *,
    address: str,
    updates: int = 150,
    episodes: int = 24,
    runners: int = 2,
    settings: Settings | None = None,
    seed: int = 0,
    checkpoint: Path | None = None,
    done: Callable[[UpdateResult], None] | None = None,
) -> SequentialPolicy:
    """Train as `train_sequential`, with episodes on the nodes of a Ray cluster.

    Simulator, features, moves, network, initial map and defaults are the same. A lost node loses
    only its running episodes.

    Args:
        updates: Total number of updates, ≥ 1.
        runners: Number of runners, one processor each, ≥ 1.

    Raises:
        InputError: A number is out of range.
        DataError: The extra `ray` is missing, or the checkpoint is of another training.
        ClusterError: The cluster does not respond, or no runner is left.
    """
    scaling = fitted_scaling(environment, np.random.default_rng([seed, 0]))
    stage = Stage(environment, scaling.apply, environment.moves.parts, len(environment.features))
    agent = train_rllib(
        stage,
        updates=updates,
        horizon=environment.horizon,
        settings=settings or Settings(),
        address=address,
        episodes=episodes,
        runners=runners,
        seed=seed,
        guess=_guess(environment),
        about=_about(environment, scaling),
        checkpoint=checkpoint,
        done=done,
    )
    return SequentialPolicy(agent, environment.features, scaling, environment.window)


def _guess(environment: TuningEnvironment) -> list[tuple[Floats, Floats]] | None:
    """Return the initial map of `train_sequential`."""
    features = environment.features
    if "belief" not in features.groups:
        return None
    return first_guess(features, environment.moves.parts)


def _about(environment: TuningEnvironment, scaling: Scaling) -> dict[str, Floats]:
    """Return the metadata of a checkpoint: everything that its weights depend on."""
    seen = [list(environment.features.names), environment.window, environment.horizon]
    digest = hashlib.sha256(json.dumps(seen).encode()).digest()
    return {
        "features": np.array([*digest], np.float64),
        "scaling.median": scaling.median,
        "scaling.spread": scaling.spread,
    }
