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
    from steersman_systems.rag_tuner.policy_config import Tuned
    from steersman_systems.rag_tuner.reward import Batch, Reward

EPISODES = (3, 5)
"""The fewest and the most."""


@dataclass(frozen=True)
class Episode:
    """Both configurations on one slice of queries.

    Args:
        number: From 1.
        candidate: What the tuned one gave.
        serving: What the serving one gave.
    """

    number: int
    candidate: Reward
    serving: Reward


@dataclass(frozen=True)
class Mirrored:
    """What the shadow shows.

    Args:
        episodes: In order.
        verdict: Of all queries together, each once.
        reasons: Why the tuned one may not go on to a canary; empty: it may.
    """

    episodes: tuple[Episode, ...]
    verdict: Verdict
    reasons: tuple[str, ...]

    @property
    def goes_on(self) -> bool:
        """Whether it may go on to a canary."""
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
    tuned: Tuned,
    *,
    episodes: int = EPISODES[0],
    least: float = LEAST,
) -> Mirrored:
    """Return what the tuned and the serving configuration give on the same queries.

    It may go on unless it broke a hard gate in an episode, or in all together, or is shown to be
    worse. That it is better is for the canary to show, on the traffic that counts.

    Args:
        episodes: 3 to 5.
        least: The least gain that is worth a change, > 0.

    Raises:
        InputError: Another number of episodes, one and the same configuration, or fewer than two
            queries that both can be scored on.
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
    return Mirrored(seen, verdict, tuple(_reasons(seen, verdict)))


def _once(batches: Sequence[Batch]) -> Batch:
    """Return batches as one, each query with its first result: repetitions are not new units."""
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
