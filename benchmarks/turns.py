"""Timing of several methods in turns, so that a slow moment of the machine affects all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Timing", "figure", "in_turns"]


@dataclass(frozen=True)
class Timing:
    """Seconds of each run of a method.

    Args:
        seconds: seconds in the order of the runs.
    """

    seconds: tuple[float, ...]

    def at(self, share: float) -> float:
        """Return a quantile of the seconds.

        Args:
            share: probability of the quantile, in [0, 1].
        """
        return float(np.quantile(self.seconds, share))


def in_turns(
    runs: int,
    calls: Mapping[str, Callable[[], object]],
    *,
    between: Callable[[], object] = lambda: None,
) -> dict[str, Timing]:
    """Return the times of each call in each run, after one uncounted warm-up run.

    Args:
        runs: number of calls of each, at least 1.
        calls: functions by name, in the order of their turns.
        between: function called before each turn, not timed.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(runs + 1):
        between()
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn > 0:
                taken[name].append(time.perf_counter() - start)
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


def figure(
    name: str, taken: Mapping[str, Timing], *, unit: str = "ms", goal: float | None = None
) -> Figure:
    """Return the figure of the first call, with the others as peers.

    Args:
        name: name of the figure.
        taken: result of `in_turns`.
        unit: ``"ms"`` or ``"s"``.
        goal: maximum of our 95th percentile, in the unit.
    """
    scale = {"ms": 1000.0, "s": 1.0}[unit]
    (_, ours), *peers = taken.items()
    high = ours.at(0.95) * scale
    return Figure(
        name,
        ours.at(0.5) * scale,
        ours.at(0.05) * scale,
        high,
        unit=f"{unit} (5–95 %)",
        goal=None if goal is None else f"<= {goal:g} {unit}",
        holds=None if goal is None else high <= goal,
        peers={peer: timed.at(0.5) * scale for peer, timed in peers},
    )
