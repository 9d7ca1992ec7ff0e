"""Optuna's tree-structured Parzen estimator as a strategy."""

from __future__ import annotations

import warnings
from importlib import import_module
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.strategies.base import Ledger, Proposal

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np

    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward


class Tpe:
    """Strategy with Optuna's TPE sampler; recommends the best mean.

    Optuna does not report its sampling densities. So propensities are NaN, and its evaluations
    cannot be used for off-policy evaluation.

    Args:
        tuned: Bounds and gates.
        seed: Random seed of the sampler.

    Raises:
        DataError: The extra ``tune`` is not installed.

    Source: Bergstra et al., Algorithms for Hyper-Parameter Optimization (2011), section 4;
    constraints as in Optuna: trials that break a gate rank after all others.
    """

    name = "tpe"

    def __init__(self, tuned: PolicyConfig, seed: int = 0) -> None:
        optuna = _library()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = tuned.space
        self._ledger = Ledger(tuned)
        with warnings.catch_warnings():
            # Options for dependent parts are experimental in Optuna; its version is pinned.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._failed = optuna.trial.TrialState.FAIL
        self._trials: dict[Configuration, list[Any]] = {}

    def ask(self, rng: np.random.Generator) -> Proposal:
        """Return the suggestion of the sampler."""
        trial = self._study.ask()
        space = self._space
        variant = trial.suggest_categorical("variant", space.variants)
        weighted = variant == "hybrid"
        low, high = space.weights[0], space.weights[-1]
        step = space.weights[1] - low if len(space.weights) > 1 else None
        suggested = Configuration(
            variant=variant,
            k=trial.suggest_int("k", space.ks[0], space.ks[-1]),
            rerank=trial.suggest_categorical("rerank", space.rerank),
            fusion_weight=(
                trial.suggest_float("fusion_weight", low, high, step=step) if weighted else 0.5
            ),
            expansion=trial.suggest_categorical("expansion", space.expansion),
            prompt=trial.suggest_categorical("prompt", space.prompts),
        )
        found = min(space.weights, key=lambda one: abs(one - suggested.fusion_weight))
        asked = Configuration.of(suggested.parts() | {"fusion_weight": found}).canonical()
        self._trials.setdefault(asked, []).append(trial)
        return Proposal(asked, nan)

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Report an evaluation in the space to the sampler, suggested or not."""
        self._ledger.enter(batch, reward)
        waiting = self._trials.get(batch.configuration)
        judged = not isnan(reward.value)
        if waiting:
            state = None if judged else self._failed
            self._study.tell(waiting.pop(0), reward.value if judged else None, state=state)
        elif judged and batch.configuration in self._space.index:
            self._study.add_trial(self._as_suggested(batch.configuration, reward.value))

    def _as_suggested(self, configuration: Configuration, value: float) -> Any:
        """Return a trial as if `ask` had suggested the configuration."""
        optuna, space = _library(), self._space
        of = optuna.distributions
        low, high = space.weights[0], space.weights[-1]
        step = space.weights[1] - low if len(space.weights) > 1 else None
        read = {
            "variant": of.CategoricalDistribution(space.variants),
            "k": of.IntDistribution(space.ks[0], space.ks[-1]),
            "rerank": of.CategoricalDistribution(space.rerank),
            "expansion": of.CategoricalDistribution(space.expansion),
            "prompt": of.CategoricalDistribution(space.prompts),
        }
        if configuration.variant == "hybrid":
            read["fusion_weight"] = of.FloatDistribution(low, high, step=step)
        parts = configuration.parts()
        return optuna.trial.create_trial(
            value=value, params={name: parts[name] for name in read}, distributions=read
        )

    def recommend(self) -> Configuration:
        """Return the configuration with the best mean that holds every gate.

        Raises:
            InputError: No such configuration.
        """
        return self._ledger.best()


def _library() -> ModuleType:
    try:
        return import_module("optuna")  # an extra
    except ImportError as missing:
        message = "TPE needs the package optuna; install it with: "
        raise DataError(message + how_to_install("tune")) from missing
