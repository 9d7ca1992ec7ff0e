"""Policies in an evaluation: baselines, and policies trained on each fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman_systems.evidence_selection.baselines import LAMBDAS, Mmr, Oracle, Pointwise, TopK
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.evaluate import Fixed
from steersman_systems.evidence_selection.experts import GoldExpert
from steersman_systems.evidence_selection.linear_clone import linear_clone
from steersman_systems.evidence_selection.raft_training import raft_then_ppo
from steersman_systems.evidence_selection.selectors import ScoredSelector
from steersman_systems.evidence_selection.shared_models import SharedTraining
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.behaviour_cloning import CloneSettings

if TYPE_CHECKING:
    from steersman_systems.evidence_selection.environment import Selector
    from steersman_systems.evidence_selection.evaluate import Contender
    from steersman_systems.evidence_selection.pool import Pool

Train = Callable[[Sequence[EvidenceTask], Any, int], Any]
"""Trains a better scorer from (tasks of training questions, start clone, seed)."""

BASELINE = "top-k, fused"
CLONE, STOPPING = "+BC", "+BC, may stop"
RAFT, PPO = "+BC+RAFT", "+BC+RAFT+PPO"
NETWORK = "+BC, network"
ONLY_BY_NAME = (NETWORK,)
"""Take part only by name: they train longer than all other policies together."""


@dataclass(frozen=True, slots=True)
class Cloned:
    """Trees that imitate an expert with the gold passages, trained per fold.

    Args:
        name: name in reports.
        limits: limits of a selection.
        settings: training settings.
        seed: random seed.
        improve: trains a better scorer from the clone; None: no improvement.
        pointwise: whether it scores candidates once, in the first state.
        shared: cache of training shared with other contenders.
    """

    name: str
    limits: Limits = field(default_factory=lambda: Limits(expanding="always", may_stop=False))
    settings: CloneSettings = field(default_factory=CloneSettings)
    seed: int = 0
    improve: Train | None = None
    pointwise: bool = False
    shared: SharedTraining = field(default_factory=SharedTraining, repr=False, compare=False)

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector trained on questions.

        Raises:
            InputError: no question has its gold in reach.
            DataError: an extra is not installed.
        """
        environment = Environment(self.limits)
        tasks = [EvidenceTask(pool, environment) for pool in pools if pool.question.gold]
        scorer = self.shared.clone(pools, tasks, self.settings, self.seed)
        if self.pointwise:
            return Pointwise(scorer, environment, name=self.name)
        if self.improve is not None:
            scorer = self.improve(tasks, scorer, self.seed)
        return ScoredSelector(self.name, scorer, environment)


@dataclass(frozen=True, slots=True)
class LinearlyCloned:
    """Linear clone, for installations without LightGBM.

    Args:
        name: name in reports.
        limits: limits of a selection.
        seed: random seed.
    """

    name: str
    limits: Limits = field(default_factory=lambda: Limits(expanding="always", may_stop=False))
    seed: int = 0

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector trained on questions.

        Raises:
            InputError: no question has its gold in reach.
        """
        environment = Environment(self.limits)
        tasks = [EvidenceTask(pool, environment) for pool in pools if pool.question.gold]
        scorer = linear_clone(tasks, GoldExpert(), seed=self.seed)
        return ScoredSelector(self.name, scorer, environment)


@dataclass(frozen=True, slots=True)
class NeurallyCloned:
    """Network clone, trained on the states of the expert and of a tree clone.

    Args:
        name: name in reports.
        limits: limits of a selection.
        seed: random seed.
        updates: network updates, ≥ 1.
        learning_rate: network learning rate, > 0.
        shared: cache of training shared with other contenders.
    """

    name: str
    limits: Limits = field(default_factory=lambda: Limits(expanding="always", may_stop=False))
    seed: int = 0
    updates: int = 20_000
    learning_rate: float = 3e-5
    shared: SharedTraining = field(default_factory=SharedTraining, repr=False, compare=False)

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector trained on questions.

        Raises:
            InputError: no question has its gold in reach.
            DataError: the extra ``rl`` or ``evidence`` is not installed.
        """
        from steersman_systems.evidence_selection.training.network import (  # noqa: PLC0415 - the extra rl
            NetworkSettings,
            clone_network,
        )

        how = NetworkSettings(updates=self.updates, learning_rate=self.learning_rate)
        environment = Environment(self.limits)
        tasks = [EvidenceTask(pool, environment) for pool in pools if pool.question.gold]
        trees = self.shared.clone(pools, tasks, CloneSettings(), self.seed)
        scorer = clone_network(tasks, GoldExpert(), how, beside=trees, seed=self.seed)
        return ScoredSelector(self.name, scorer, environment)


def contenders(
    wanted: str | Sequence[str] = "all",
    *,
    limits: Limits | None = None,
    seed: int = 0,
    shared: SharedTraining | None = None,
) -> list[Contender]:
    """Return the policies of an evaluation; a missing extra is reported at training.

    Args:
        limits: pick and token limits of all policies; None for `Limits`' defaults.

    Raises:
        InputError: unknown policy.

    >>> [one.name for one in contenders(["oracle"])]
    ['top-k, fused', 'oracle']
    """
    every = _every(limits or Limits(), seed, shared or SharedTraining())
    if wanted == "all":
        return [one for name, one in every.items() if name not in ONLY_BY_NAME]
    names = list(dict.fromkeys([BASELINE, *wanted]))
    unknown = [name for name in names if name not in every]
    if unknown:
        raise InputError(f"unknown policy {unknown[0]!r}; allowed: {', '.join(every)}")
    return [every[name] for name in names]


def _every(limits: Limits, seed: int, shared: SharedTraining) -> dict[str, Contender]:
    plain = Environment(limits)
    # Policies of a fixed length are compared at equal length.
    full = Limits(
        picks=limits.picks, tokens=limits.tokens, expanding="always", may_stop=False,
        added=limits.added,
    )  # fmt: skip
    stopping = Limits(
        picks=limits.picks, tokens=limits.tokens, expanding="always", may_stop=True,
        added=limits.added,
    )  # fmt: skip
    found: list[Contender] = [
        Fixed(TopK("fused", plain)),
        Fixed(TopK("lexical", plain)),
        Fixed(TopK("dense", plain)),
        *(Fixed(Mmr(weight, plain)) for weight in LAMBDAS),
        Cloned("pointwise", full, seed=seed, pointwise=True, shared=shared),
        LinearlyCloned("+BC, linear", full, seed=seed),
        Cloned(CLONE, full, seed=seed, shared=shared),
        Cloned(STOPPING, stopping, seed=seed, shared=shared),
    ]
    found += [
        Cloned(RAFT, full, seed=seed, improve=shared.raft, shared=shared),
        Cloned(
            PPO, full, seed=seed, improve=partial(raft_then_ppo, begin=shared.raft), shared=shared
        ),
        NeurallyCloned(NETWORK, full, seed=seed, shared=shared),
        Fixed(Oracle(Environment(full))),
    ]
    return {one.name: one for one in found}
