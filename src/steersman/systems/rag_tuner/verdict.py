"""What held-out queries say of a tuned configuration: a gain, none that is shown, or a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import stdtrit

from steersman.errors import InputError
from steersman.stats import required_sample_size
from steersman.systems.rag_tuner.reward import breaches, reward_of

if TYPE_CHECKING:
    from steersman.systems.rag_tuner.configuration import Configuration
    from steersman.systems.rag_tuner.policy_config import Tuned
    from steersman.systems.rag_tuner.reward import Batch

State = Literal["gain", "no gain", "loss", "breach"]
LEAST = 0.005
"""The least gain that is worth a change unless told otherwise, in units of reward."""
_POWER = 0.8


@dataclass(frozen=True)
class Verdict:
    """What the held-out queries say.

    Args:
        candidate: What was tuned.
        baseline: What serves, or a manual configuration.
        gain: Mean difference in reward on the same queries, without penalties.
        low: Lower end of its 95 % interval (paired t, over queries).
        high: Upper end.
        queries: Pairs that both could be scored on.
        breaches: Hard gates that the candidate does not hold there.
        state: ``breach`` before all else; ``gain`` when the interval is above 0, ``loss`` when it
            is below, else ``no gain``.
        needed: Pairs to show with 80 % power the gain that was seen, or the least that is worth it
            if that is greater; 0 when it is shown, or when a gain worth a change is ruled out.
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
            return f"Loss: {about}, reward {measured}. Keep what serves."
        said = f"No gain is shown: {about}, reward {measured}. Keep what serves"
        if not self.needed:
            return f"{said}: a gain worth a change is ruled out."
        return f"{said}, or evaluate {self.needed:,} queries to know more."


def judge(candidate: Batch, baseline: Batch, tuned: Tuned, *, least: float = LEAST) -> Verdict:
    """Return what the same queries under two configurations say.

    Queries are the units: independent draws from those that will come. Judge on queries that the
    tuner has not seen, and once: the interval knows nothing of a choice made among several.

    Args:
        candidate: What came of them under the tuned one.
        baseline: Under the other.
        tuned: Weights and gates.
        least: The least gain that is worth a change, > 0.

    Returns:
        A breach before all else; a gain or a loss where the interval says so; else no gain.

    Raises:
        InputError: Other queries, or fewer than two that both can be scored on.

    No doctest: ``tests/systems/rag_tuner/test_verdict.py`` shows it.
    """
    if candidate.queries.tolist() != baseline.queries.tolist():
        raise InputError("the two were tried on different queries; evaluate both on the same")
    found, other = (reward_of(batch, tuned).per_query for batch in (candidate, baseline))
    ahead = found - other
    ahead = ahead[~np.isnan(ahead)]
    if len(ahead) < 2:
        raise InputError(
            f"{len(ahead)} queries could be scored under both; evaluate 2 or more, with a judge "
            "that answers"
        )
    mean, sd = float(ahead.mean()), float(ahead.std(ddof=1))
    half = float(stdtrit(len(ahead) - 1, 0.975) * sd / np.sqrt(len(ahead)))
    broken = breaches(candidate, tuned.thresholds)
    state = _state(mean - half, mean + half, broken)
    return Verdict(
        candidate=candidate.configuration,
        baseline=baseline.configuration,
        gain=mean,
        low=mean - half,
        high=mean + half,
        queries=len(ahead),
        breaches=broken,
        state=state,
        needed=0 if state in {"gain", "loss"} or mean + half < least else needed(mean, sd, least),
    )


def needed(gain: float, sd: float, least: float = LEAST) -> int:
    """Return how many pairs show a gain with 80 % power.

    Args:
        gain: As it was seen; below `least` it is the least that is asked for.
        sd: Standard deviation of one pair's difference, ≥ 0.
        least: The least gain that is worth a change, > 0.

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
