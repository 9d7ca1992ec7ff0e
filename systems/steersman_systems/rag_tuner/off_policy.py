"""Off-policy evaluation of a run's log, from its exact propensities.

A run logs each evaluated configuration with its propensity and its reward. Weighted rewards
estimate another policy without new evaluations. The policies here hold some parts fixed and draw
each of the others independently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.ope import LoggedData, drawn_or_another, evaluate
from steersman_systems.rag_tuner.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.ope import Report
    from steersman_systems.rag_tuner.configuration import Space


def holding(space: Space, parts: Mapping[str, Any]) -> dict[Configuration, float]:
    """Return the probability of each configuration with some parts held fixed.

    Raises:
        InputError: No configuration has these parts, or a part is unknown.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> found = holding(load_policy_config().space, {"variant": "bm25", "k": 5})
    >>> list(found.values())
    [0.25, 0.25, 0.25, 0.25]
    """
    known = Configuration().parts()
    unknown = sorted(set(parts) - set(known))
    if unknown:
        raise InputError(f"unknown part {unknown[0]!r}; allowed: {', '.join(known)}")
    found = {
        one: float(mass)
        for one, mass in zip(space.all, space.draw_probabilities, strict=True)
        if all(one.parts()[name] == parts[name] for name in parts)
    }
    if not found:
        named = ", ".join(f"{name}={value}" for name, value in parts.items())
        raise InputError(f"no configuration of the space has {named}; see its bounds")
    total = sum(found.values())
    return {one: mass / total for one, mass in found.items()}


def estimated(
    lines: Sequence[Mapping[str, Any]], rule: Mapping[Configuration, float], *, seed: int = 0
) -> Report:
    """Return the off-policy estimate of a drawing rule from the log of a run.

    The run learned from its own rewards, so intervals are those of adaptive logs. Positivity: the
    estimate misses configurations that the run could not draw. A strategy with a floor, such as
    the default or random, can draw every configuration.

    Raises:
        DataError: An evaluation has no propensity, because its strategy does not draw.
        InputError: No evaluation has a reward.
    """
    known = [one for one in lines if one["reward"] is not None]
    if not known:
        raise InputError(f"none of {len(lines)} evaluations has a reward; evaluate more")
    if any(one["propensity"] is None for one in known):
        raise DataError(
            "the strategy of this run is deterministic, so its log has no propensities; "
            "use a run of factored, random or ppo"
        )
    drawn = [Configuration.of(one["configuration"]).canonical() for one in known]
    data = LoggedData(
        np.zeros(len(known), np.int64),
        np.array([float(one["reward"]) for one in known]),
        np.array([float(one["propensity"]) for one in known]),
        drawn_or_another([rule.get(one, 0.0) for one in drawn]),
    )
    names = ("ips", "snips", "dr")
    return evaluate(data, estimators=names, adaptive=True, seed=seed)
