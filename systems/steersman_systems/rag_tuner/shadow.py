"""Shadow of a tuned configuration: it runs beside the live one on the same queries.

Users do not see its results. In every episode both answer the same queries. They alternate in going
first, so that warm-up or slowdown of the machine favours neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman_systems.rag_tuner.reward import pooled, reward_of
from steersman_systems.rag_tuner.verdict import LEAST, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.loop import Evaluator
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward

EPISODES = (3, 5)
"""Minimum and maximum number of episodes."""


@dataclass(frozen=True)
class Episode:
    """Results of both configurations on one slice of queries.

    Args:
        number: Number of the episode, from 1.
        candidate: Results of the tuned configuration.
        serving: Results of the live configuration.
    """

    number: int
    candidate: Reward
    serving: Reward


@dataclass(frozen=True)
class ShadowResult:
    """Result of the shadow.

    Args:
        episodes: Episodes in order.
        verdict: Verdict on all queries together, each once.
        reasons: Reasons against a canary; empty if none.
    """

    episodes: tuple[Episode, ...]
    verdict: Verdict
    reasons: tuple[str, ...]

    @property
    def goes_on(self) -> bool:
        """Whether the tuned configuration may continue to a canary."""
        return not self.reasons

    def __str__(self) -> str:
        said = f"{len(self.episodes)} episodes in the shadow. {self.verdict}"
        return f"{said} " + (
            "It may go on to a canary." if self.goes_on else f"Not yet: {'; '.join(self.reasons)}."
        )


def mirror(
    evaluator: Evaluator,
    candidate: Configuration,
    serving: Configuration,
    slices: Iterator[NDArray[np.intp]],
    tuned: PolicyConfig,
    *,
    episodes: int = EPISODES[0],
    least: float = LEAST,
) -> ShadowResult:
    """Run the tuned and the live configuration on the same queries.

    The tuned one may continue to a canary unless it broke a hard gate, in an episode or overall,
    or is shown to be worse. The canary must show the gain, on live traffic.

    Args:
        episodes: Number of episodes, 3 to 5.
        least: Minimum gain that is worth a change, > 0.

    Raises:
        InputError: Other number of episodes, equal configurations, or fewer than two queries with
            a score under both.
    """
    low, high = EPISODES
    if not low <= episodes <= high:
        raise InputError(f"episodes is {episodes!r}; allowed: {low} to {high}")
    if candidate.canonical() == serving.canonical():
        raise InputError(f"{candidate} is already live; choose another configuration")
    pairs = []
    for number in range(1, episodes + 1):
        queries = next(slices)
        order = (candidate, serving) if number % 2 else (serving, candidate)
        found = {one: evaluator.evaluate(one, queries) for one in order}
        pairs.append((found[candidate], found[serving]))
    seen = tuple(
        Episode(number, *(reward_of(batch, tuned) for batch in pair))
        for number, pair in enumerate(pairs, 1)
    )
    mine, theirs = (_once([pair[side] for pair in pairs]) for side in (0, 1))
    verdict = judge(mine, theirs, tuned, least=least)
    return ShadowResult(seen, verdict, tuple(_reasons(seen, verdict)))


def _once(batches: Sequence[Batch]) -> Batch:
    """Return batches as one, with the first result of each query: repetitions are not new units."""
    together = pooled(batches)
    return together.rows(np.sort(np.unique(together.queries, return_index=True)[1]))


def _reasons(episodes: Sequence[Episode], verdict: Verdict) -> Iterator[str]:
    for one in episodes:
        if one.candidate.breaches:
            yield f"episode {one.number} breaks {', '.join(one.candidate.breaches)}"
    if verdict.state == "breach":
        yield f"all queries together break {', '.join(verdict.breaches)}"
    if verdict.state == "loss" or verdict.high < 0:
        yield f"it is worse by {-verdict.high:.4f} or more"
