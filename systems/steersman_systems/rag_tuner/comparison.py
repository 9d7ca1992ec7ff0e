"""Comparison of several configurations on the same questions, with intervals.

The engines of a searcher run once per question for all configurations. Nothing is stored, and no
answers are generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError, InputError
from steersman.retrieval.results import SearchSettings
from steersman.stats import Interval
from steersman_systems.rag_tuner.question_means import LEVEL, mean_over
from steersman_systems.rag_tuner.recorded import MEASURES
from steersman_systems.rag_tuner.reward import reward_of, reward_range
from steersman_systems.rag_tuner.search_call import batch_of, judged_by_passages, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from steersman.retrieval.searcher import Searcher
    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.judged_collections import Question
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward
    from steersman_systems.rag_tuner.search_call import QueryResult

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean over questions.

    Args:
        value: Mean.
        interval: 95 % interval by `mean_over`; None with fewer than two questions.
    """

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Comparison:
    """Estimated reward and quality of one configuration on some questions.

    Args:
        configuration: The configuration.
        batch: Results by question, without incomplete searches.
        degraded: Number of questions with an incomplete search.
        reward: Reward of the batch.
        quality: Both measures; None if no question has one.
        worth: Reward; None if no question has one. Its interval treats the penalty P as constant,
            because P is not a mean and grows with the number of questions.
        ahead: Reward minus that of the first configuration, on their shared questions; None for
            the first. The intervals of all configurations hold jointly at 95 %.
    """

    configuration: Configuration
    batch: Batch
    degraded: int
    reward: Reward
    quality: tuple[Estimate | None, Estimate | None]
    worth: Estimate | None
    ahead: Estimate | None


def compare(
    searcher: Searcher,
    questions: Sequence[Question],
    configurations: Sequence[Configuration],
    tuned: PolicyConfig,
    *,
    reranker: str = "cosine",
    stopped: Callable[[], bool] = lambda: False,
    beside: Callable[[], AbstractContextManager[None]] | None = None,
) -> list[Comparison]:
    """Return the estimates of configurations on the same questions.

    Args:
        beside: Context for calls of a remote embedder, in which the core can be released; None:
            no separate context.

    Raises:
        InputError: No question, no configuration, or one that the searcher does not support.
        DataError: A part of the search was unavailable for every question, or it was stopped.
    """
    if not questions or not configurations:
        message = f"{len(questions)} questions, {len(configurations)} configurations"
        raise InputError(f"{message}; expected one or more of each")
    settings = [settings_of(one, reranker) for one in configurations]
    told: list[list[QueryResult]] = [[] for _ in configurations]
    for question in questions:
        if stopped():
            raise DataError("stopped before all questions were asked; use fewer questions")
        scored = searcher.scored(question.text)
        if beside is not None and any(one.variant != "bm25" for one in settings):
            with beside():
                scored.rank(SearchSettings(variant="dense", k=1))
        for row, configuration, wanted in zip(told, configurations, settings, strict=True):
            found = scored.find(wanted)
            row.append(judged_by_passages(found, question.gains, configuration.k))
    batches = [_batch(one, row) for one, row in zip(configurations, told, strict=True)]
    first, family = batches[0], len(batches) - 1
    return [
        compared(
            *(batch, tuned),
            degraded=len(questions) - len(batch),
            first=first if place else None,
            family=family,
        )
        for place, batch in enumerate(batches)
    ]


def _batch(configuration: Configuration, told: Sequence[QueryResult]) -> Batch:
    places = [place for place, one in enumerate(told) if not one.degraded]
    if not places:
        parts = sorted({part for one in told for part in one.degraded})
        raise DataError(f"{', '.join(parts)} was not available for any question under "
                        f"{configuration}; check it, or use bm25")  # fmt: skip
    return batch_of(configuration, dict(enumerate(told)), places, MEASURES)


def compared(
    batch: Batch, tuned: PolicyConfig, *, degraded: int, first: Batch | None, family: int = 1
) -> Comparison:
    """Return the estimates of a batch's configuration.

    Args:
        first: Batch of the first configuration; None if this is the first, or it has no results.
        family: Number of comparisons that share the 5 % (Bonferroni). Without it, one of 49
            configurations without gain has a 95 % interval above 0 three times in ten.
    """
    reward = reward_of(batch, tuned)
    penalty = tuned.reward_weights.penalty * reward.penalty
    least, most = reward_range(tuned)
    return Comparison(
        configuration=batch.configuration,
        batch=batch,
        degraded=degraded,
        reward=reward,
        quality=(
            estimate(batch.scored[:, 0], within=(0.0, 1.0)),
            estimate(batch.scored[:, 1], within=(0.0, 1.0)),
        ),
        worth=estimate(reward.per_query - penalty, within=(least - penalty, most - penalty)),
        ahead=None if first is None else _ahead(batch, first, tuned, family),
    )


def _ahead(batch: Batch, first: Batch, tuned: PolicyConfig, family: int) -> Estimate | None:
    _, own, others = np.intersect1d(batch.queries, first.queries, return_indices=True)
    mine, theirs = (reward_of(one, tuned) for one in (batch, first))
    more = tuned.reward_weights.penalty * (mine.penalty - theirs.penalty)
    apart = mine.per_query[own] - theirs.per_query[others] - more
    least, most = reward_range(tuned)
    return estimate(
        apart,
        within=(least - most - more, most - least - more),
        level=1.0 - (1.0 - LEVEL) / max(family, 1),
    )


def estimate(
    values: Floats, *, within: tuple[float, float], level: float = LEVEL
) -> Estimate | None:
    """Return the mean over questions with its interval; None if no value is defined.

    Args:
        level: Confidence level, in (0, 1).

    >>> found = estimate(np.array([0.0, 1.0, 1.0, 0.0]), within=(0.0, 1.0))
    >>> found.value, found.interval.low, found.interval.high
    (0.5, 0.0, 1.0)
    """
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    if len(values) < 2:
        return Estimate(float(values.mean()), None)
    found = mean_over(values, within=within, level=level)
    return Estimate(found.value, Interval(found.low, found.high))
