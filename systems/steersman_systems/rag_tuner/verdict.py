"""Verdict of held-out queries on a tuned configuration: gain, no gain, loss or breach."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil, log
from typing import TYPE_CHECKING, Literal

import numpy as np

from steersman.errors import InputError
from steersman.stats import required_sample_size
from steersman_systems.rag_tuner.question_means import mean_over
from steersman_systems.rag_tuner.reward import breaches, reward_of, reward_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.logged import World
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch

State = Literal["gain", "no gain", "loss", "breach"]
LEAST = 0.005
"""Default minimum gain that is worth a change, in units of reward."""
_POWER = 0.8


@dataclass(frozen=True)
class Verdict:
    """Verdict on the held-out queries.

    Args:
        candidate: Tuned configuration.
        baseline: Live or manual configuration.
        gain: Mean difference in reward on the same queries, without penalties.
        low: Lower end of its 95 % interval (paired t over queries, or conversations where they are
            turns of such).
        high: Upper end.
        queries: Number of queries with a score under both.
        breaches: Hard gates that the candidate breaks.
        state: ``breach`` if a hard gate is broken; else ``gain`` if the interval is above 0,
            ``loss`` if it is below, else ``no gain``.
        needed: Queries to show the observed gain (or the minimum gain, if larger) with 80 % power;
            0 if it is shown, or if a gain worth a change is ruled out.
    """

    candidate: Configuration
    baseline: Configuration
    gain: float
    low: float
    high: float
    queries: int
    breaches: tuple[str, ...]
    state: State
    needed: int

    def __str__(self) -> str:
        about = f"{self.candidate} against {self.baseline} on {self.queries:,} held-out queries"
        measured = f"{self.gain:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"
        if self.state == "breach":
            return f"May not serve: {about} breaks {', '.join(self.breaches)}; reward {measured}."
        if self.state == "gain":
            return f"Gain: {about}, reward {measured}."
        if self.state == "loss":
            return f"Loss: {about}, reward {measured}. Keep the baseline."
        said = f"No gain is shown: {about}, reward {measured}. Keep the baseline"
        if not self.needed:
            return f"{said}: a gain worth a change is ruled out."
        return f"{said}, or evaluate {self.needed:,} queries to show a gain of this size."


def judge(
    candidate: Batch,
    baseline: Batch,
    tuned: PolicyConfig,
    *,
    least: float = LEAST,
    groups: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on two batches of the same queries.

    Queries are the units: independent draws from future queries. Judge once, on queries that the
    tuner has not seen: the interval does not cover a choice among several candidates.

    Args:
        least: Minimum gain that is worth a change, > 0.
        groups: (n,) conversation of each query, which is then the unit; "" for no conversation, ()
            for none at all. Repeated queries form a unit too.

    Raises:
        InputError: The queries differ, or fewer than two queries (or conversations) have a score
            under both.
    """
    if candidate.queries.tolist() != baseline.queries.tolist():
        raise InputError(
            "the configurations were evaluated on different queries; use the same queries"
        )
    found, other = (reward_of(batch, tuned).per_query for batch in (candidate, baseline))
    ahead = found - other
    known = ~np.isnan(ahead)
    units = _units(candidate.queries.tolist(), groups)
    ahead, talks = ahead[known], [units[place] for place in np.flatnonzero(known).tolist()]
    lowest, highest = reward_range(tuned)
    widest = highest - lowest
    told = mean_over(ahead, within=(-widest, widest), groups=talks) if len(ahead) else None
    if told is None or told.units < 2:
        raise InputError(
            f"{len(ahead)} queries have a score under both, from {told.units if told else 0} "
            "conversations or single queries; evaluate 2 or more, with a working judge"
        )
    same = candidate.configuration.canonical() == baseline.configuration.canonical()
    low, high = (0.0, 0.0) if same and not ahead.any() else (told.low, told.high)
    broken = breaches(candidate, tuned.thresholds)
    state = _state(low, high, broken)
    settled = state in {"gain", "loss"} or high < least
    return Verdict(
        candidate=candidate.configuration,
        baseline=baseline.configuration,
        gain=told.value,
        low=low,
        high=high,
        queries=len(ahead),
        breaches=broken,
        state=state,
        needed=0 if settled else _needed(told.value, told.error, len(ahead), widest, least),
    )


def shared(
    world: World, one: Configuration, other: Configuration, queries: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the queries on which both configurations were evaluated.

    Args:
        other: Second configuration.

    Raises:
        InputError: A configuration is not recorded.
    """
    return world.seen(one, world.seen(other, queries))


def _units(queries: Sequence[int], groups: Sequence[str]) -> list[str]:
    """Return the unit of each query: its conversation; the query itself if it is repeated."""
    often = Counter(queries)
    talks = groups or [""] * len(queries)
    return [
        talk or (f"\0{one}" if often[one] > 1 else "")
        for one, talk in zip(queries, talks, strict=True)
    ]


def judged(
    world: World,
    tuned: PolicyConfig,
    held_out: NDArray[np.intp],
    candidate: Configuration,
    baseline: Configuration,
) -> Verdict:
    """Return the verdict of the held-out queries on which both configurations were evaluated.

    Raises:
        InputError: A configuration is not recorded, or there are fewer than two such queries.
    """
    both = shared(world, candidate, baseline, held_out)
    if len(both) < 2:
        raise InputError(
            f"{candidate} and {baseline} share {len(both)} of {len(held_out)} "
            "held-out queries; evaluate both on at least 2"
        )
    found, base = (world.evaluate(one, both) for one in (candidate, baseline))
    return judge(found, base, tuned, groups=world.talks(both))


def _needed(gain: float, error: float, queries: int, widest: float, least: float) -> int:
    """Return the number of queries to show a gain."""
    if error:
        return needed(gain, error * queries**0.5, least)
    # Equal differences have no spread: see `all_alike_interval`.
    sought = max(gain, least)
    return ceil(log(0.025) / log(widest / (sought + widest)))


def needed(gain: float, sd: float, least: float = LEAST) -> int:
    """Return the number of pairs to show a gain with 80 % power.

    Args:
        sd: Standard deviation of one pair's difference, ≥ 0.
        least: Minimum gain that is worth a change, > 0.

    >>> needed(0.03, 0.25)
    547
    """
    if sd == 0:
        return 2
    return required_sample_size(max(gain, least), sd, power=_POWER, paired=True)


def _state(low: float, high: float, broken: tuple[str, ...]) -> State:
    if broken:
        return "breach"
    if low > 0:
        return "gain"
    return "loss" if high < 0 else "no gain"
