"""Tuning loop: the strategy asks, the evaluator evaluates, the strategy learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.reward import reward_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward
    from steersman_systems.rag_tuner.strategies.base import Strategy


_ASKED = 7
"""Separates the draws of strategies from those of splits and slices with the same seed."""


class Evaluator(Protocol):
    """Source of evaluations: a recording, or the live stack."""

    def evaluate(self, configuration: Configuration, queries: NDArray[np.intp]) -> Batch:
        """Return the results of a configuration on some queries.

        Args:
            queries: (n,) query indexes, n ≥ 1.
        """


@runtime_checkable
class TellsSmaller(Protocol):
    """Evaluator that derives results for fewer passages at no cost.

    Possible if passages are judged, not answers: the first passages are the same.
    """

    def smaller(self, batch: Batch) -> Sequence[Batch]:
        """Return the results of the same queries with fewer passages.

        Returns:
            Batches for some smaller k with the other parts unchanged; empty at the smallest k.
        """


@runtime_checkable
class OnPolicy(Protocol):
    """Strategy that learns only from its own draws."""

    on_policy: bool


@runtime_checkable
class LearnsSmaller(Protocol):
    """Strategy that learns from derived results for fewer passages."""

    def tell_smaller(self, batches: Sequence[Batch]) -> None:
        """Learn from derived results."""


@dataclass(frozen=True)
class EpisodeRecord:
    """Logged evaluation: an episode.

    Args:
        number: Number of the evaluation, from 1.
        configuration: Evaluated configuration.
        propensity: Probability with which it was drawn.
        batch: Results of its queries.
        reward: Reward of the batch.
    """

    number: int
    configuration: Configuration
    propensity: float
    batch: Batch
    reward: Reward


def tune(
    strategy: Strategy,
    evaluator: Evaluator,
    tuned: PolicyConfig,
    slices: Iterator[NDArray[np.intp]] | Callable[[Configuration], NDArray[np.intp]],
    *,
    evaluations: int,
    seed: int,
    known: Sequence[Batch] = (),
) -> Iterator[EpisodeRecord]:
    """Yield evaluations one by one; the strategy learns from each.

    Every evaluation has a separate generator, seeded by `seed` and its number, so a resumed run
    continues with equal draws.

    Args:
        evaluations: Number of evaluations, ≥ 1.

    Raises:
        InputError: `evaluations` is below 1.
        DataError: The known evaluations are not those of this strategy and seed.
    """
    if evaluations < 1:
        raise InputError(f"evaluations is {evaluations!r}; allowed: 1 or more")
    quality: dict[Configuration, list[float]] = {}
    for number in range(1, evaluations + 1):
        asked = strategy.ask(np.random.default_rng([seed, _ASKED, number]))
        queries = slices(asked.configuration) if callable(slices) else next(slices)
        if number <= len(known):
            batch = known[number - 1]
            _check(batch, asked.configuration, queries, number)
        else:
            batch = evaluator.evaluate(asked.configuration, queries)
        recent = quality.setdefault(batch.configuration, [])
        reward = reward_of(batch, tuned, recent=recent)
        recent.append(sum(reward.quality) / 2)
        strategy.tell(batch, reward)
        _tell_smaller(strategy, evaluator, batch)
        yield EpisodeRecord(number, asked.configuration, asked.propensity, batch, reward)


def retell(
    strategy: Strategy,
    paid: Iterable[Batch],
    tuned: PolicyConfig,
    *,
    evaluator: Evaluator | None = None,
) -> None:
    """Replay earlier evaluations to a strategy under the current reward weights.

    Quality, latency and cost are measured, so a change of weights only changes the rewards. A run
    under new weights starts with all evaluations of the old run.

    Raises:
        InputError: The strategy learns only from its own draws, like PPO.
    """
    if isinstance(strategy, OnPolicy) and strategy.on_policy:
        raise InputError(
            f"the strategy {strategy.name!r} learns only from its own draws, not from an earlier "
            "run; start without it, or use factored or tpe"
        )
    quality: dict[Configuration, list[float]] = {}
    for batch in paid:
        recent = quality.setdefault(batch.configuration, [])
        reward = reward_of(batch, tuned, recent=recent)
        recent.append(sum(reward.quality) / 2)
        strategy.tell(batch, reward)
        _tell_smaller(strategy, evaluator, batch)


def _tell_smaller(strategy: object, evaluator: object, batch: Batch) -> None:
    if isinstance(evaluator, TellsSmaller) and isinstance(strategy, LearnsSmaller):
        strategy.tell_smaller(evaluator.smaller(batch))


def _check(batch: Batch, asked: Configuration, queries: NDArray[np.intp], number: int) -> None:
    if batch.configuration != asked or batch.queries.tolist() != queries.tolist():
        raise DataError(
            f"evaluation {number} of the log is of {batch.configuration}; expected {asked}; "
            "continue with the same strategy, seed, policy and queries, or start another run"
        )
