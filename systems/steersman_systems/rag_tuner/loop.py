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
    from steersman_systems.rag_tuner.policy_config import Tuned
    from steersman_systems.rag_tuner.reward import Batch, Reward
    from steersman_systems.rag_tuner.strategies.base import Strategy


_ASKED = 7
"""Tells the draws of strategies from those of splits and slices that are seeded alike."""


class Evaluator(Protocol):
    """Source of evaluations: a recording, or the live stack."""

    def evaluate(self, configuration: Configuration, queries: NDArray[np.intp]) -> Batch:
        """Return what a configuration gives on some queries.

        Args:
            queries: (n,) places of the queries, n ≥ 1.
        """


@runtime_checkable
class TellsSmaller(Protocol):
    """An evaluator whose answer at k says what fewer passages would have given, for nothing more.

    So it is where passages are judged and not answers: the first passages are the same.
    """

    def smaller(self, batch: Batch) -> Sequence[Batch]:
        """Return what the same queries give with fewer passages.

        Returns:
            Some smaller k, each with all else the same; none below the smallest.
        """


@runtime_checkable
class OnPolicy(Protocol):
    """A strategy that learns from what it drew itself, and from nothing else."""

    on_policy: bool


@runtime_checkable
class LearnsSmaller(Protocol):
    """A strategy that can use what fewer passages would have given."""

    def tell_smaller(self, batches: Sequence[Batch]) -> None:
        """Learn results that cost no evaluation."""


@dataclass(frozen=True)
class Evaluated:
    """One evaluation, as it is logged: an episode.

    Args:
        number: From 1.
        configuration: What was evaluated.
        propensity: Probability with which it was drawn.
        batch: Results of its queries.
        reward: Their reward.
    """

    number: int
    configuration: Configuration
    propensity: float
    batch: Batch
    reward: Reward


def tune(
    strategy: Strategy,
    evaluator: Evaluator,
    tuned: Tuned,
    slices: Iterator[NDArray[np.intp]] | Callable[[Configuration], NDArray[np.intp]],
    *,
    evaluations: int,
    seed: int,
    known: Sequence[Batch] = (),
) -> Iterator[Evaluated]:
    """Yield evaluations one by one; the strategy has learned from each.

    Every evaluation has a separate generator, seeded by `seed` and its number, so that a
    run that was stopped goes on as if it had not been.

    Args:
        evaluations: How many, ≥ 1.

    Raises:
        InputError: No evaluations are wanted.
        DataError: What is known was not asked for by this strategy with this seed.
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
        yield Evaluated(number, asked.configuration, asked.propensity, batch, reward)


def retell(
    strategy: Strategy, paid: Iterable[Batch], tuned: Tuned, *, evaluator: Evaluator | None = None
) -> None:
    """Tell a strategy what was paid for before, at what it is worth now.

    Quality, time and money were measured; when the reward weights change, only what they are worth
    is another. So a run under new weights begins with all that the old one knew.

    Raises:
        InputError: The strategy learns from its own draws alone, as PPO does.
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
