"""Regression gate: checks that the learned policy is not worse than the heuristic."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from steersman.spec.base import Declared, FormatVersion
from steersman.spec.yaml_files import read_declared
from steersman.stats import crossed_mean
from steersman_systems.configs import shipped
from steersman_systems.interrogator.investigation import STOP_AT
from steersman_systems.interrogator.latency import timed
from steersman_systems.interrogator.measures import (
    MEASURES,
    SHARE,
    SHARES,
    both_calls_to_the_same,
    of_each,
)
from steersman_systems.interrogator.trial import CONTROL

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman_systems.interrogator.trial import Trial

    Floats = NDArray[np.float64]

Measure = Literal[
    "similarity",
    "calls_to_same_similarity",
    "embedder_calls",
    "cache_hit_rate",
    "steps_to_090",
    "steps_to_share",
]
Better = Literal["higher", "lower"]
State = Literal["passed", "failed", "unknown", "not_measured"]
FEWEST_SOLVED = 0.1
"""Share of sessions, in at least one arm, that must reach a level for its steps to count."""
_ROUNDING = 1e-12
WIDEST = 2.0
"""Largest loss in the search, as a share of the heuristic's figure."""


class Gate(Declared):
    """Tolerance and measures of the regression gate."""

    tolerance: Annotated[float, Field(gt=0, lt=1)]
    """Allowed loss as a share of the heuristic's figure, above 0 and below 1."""
    measures: Annotated[dict[Measure, Better], Field(min_length=1)]
    """Tracked measures, with the better direction."""


class Switch(Declared):
    """Default of ``--rl``, and the regression gate for turning it on."""

    format: FormatVersion
    rl: Literal["on", "off"]
    """Default of the option `--rl`: ``on`` lets the learned policy choose the questions."""
    gate: Gate


@dataclass(frozen=True, slots=True)
class MeasureCheck:
    """Result of the gate for one measure.

    Args:
        measure: Name of the measure.
        control: Mean of the heuristic; NaN if not measured.
        candidate: Mean of the policy.
        worse_by: Largest loss of the policy by its 95 % interval, as a share of the heuristic's
            figure,
            -2 to 2; below 0: shown to be better. NaN if undefined.
        state: ``passed``: the loss is within the tolerance; ``failed``: it is not, or not shown to
            be;
            ``unknown``: the data cannot show it, because too few sessions reached the level or all
            figures are equal; ``not_measured``.
        says: Limitation of the measure; empty if none.
    """

    measure: str
    control: float
    candidate: float
    worse_by: float
    state: State
    says: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the gate for a policy.

    Args:
        arm: Name of the policy.
        tolerance: Declared tolerance.
        checked: All measures.
    """

    arm: str
    tolerance: float
    checked: tuple[MeasureCheck, ...]

    @property
    def passed(self) -> bool:
        """True if every known measure passed, at least one is known, and all were measured."""
        states = {one.state for one in self.checked}
        return "passed" in states and states <= {"passed", "unknown"}


def load_switch(path: Path | None = None) -> Switch:
    """Return the declaration in ``rl.yaml``.

    Args:
        path: The file; ``None`` for the shipped one.

    Raises:
        SpecError: The file cannot be read or is invalid.

    >>> switch = load_switch()
    >>> switch.rl, switch.gate.tolerance
    ('off', 0.05)
    """
    return read_declared(path or shipped("interrogator/rl.yaml"), Switch)[0]


def held_against(gate: Gate, trial: Trial, arm: str) -> Verdict:
    """Return the result of a gate for a policy.

    A measure passes if the policy is *shown* not to be worse than the heuristic by more than the
    tolerance: the whole 95 % interval of the loss, as a share of the heuristic's figure, over runs
    and targets (`crossed_mean`), must be within it. An undecided difference does not pass. Equal
    figures do not pass either: for shares and steps the known range bounds the loss; for other
    measures the result is unknown.

    Steps to a level are ignored if fewer than `FEWEST_SOLVED` of the sessions of both policies
    reach it. The share of solved sessions is not a separate measure: unsolved sessions count as the
    limit.
    """
    checked = tuple(
        _steps(name, better, gate.tolerance, trial, arm)
        if name in ("steps_to_090", "steps_to_share")
        else _check(name, better, gate.tolerance, *_figures(name, trial, arm))
        for name, better in gate.measures.items()
    )
    return Verdict(arm, gate.tolerance, checked)


def _check(
    name: str,
    better: Better,
    tolerance: float,
    control: Floats,
    candidate: Floats,
    most: float | None = None,
) -> MeasureCheck:
    """Check a measure of each session, which is at least 0 if ``most`` is known."""
    loss = (1.0 if better == "lower" else -1.0) * (candidate - control)
    most = 1.0 if name in SHARES else most
    means = float(control.mean()), float(candidate.mean())
    if not (control.any() or candidate.any()):
        # No loss was seen, and none is possible.
        return MeasureCheck(name, *means, nan, "unknown", "unknown: it is 0 for both")
    if means[0] <= 0.0:
        # A share of zero is zero, so no loss is allowed.
        within = None if most is None else (-most, most)
        end = crossed_mean(loss, within=within).interval.high
        state: State = "passed" if end <= 0.0 else "failed"
        return MeasureCheck(name, *means, nan, state, "the heuristic's mean is not above 0")
    rest = loss - tolerance * control
    if most is None and rest.mean() <= 0.0 and _is_even(rest):
        return MeasureCheck(name, *means, nan, "unknown", "unknown: all sessions are equal")
    worst = _most_worse(loss, control, better, most)
    return MeasureCheck(name, *means, worst, "passed" if worst <= tolerance else "failed")


def _is_even(figures: Floats) -> bool:
    """Return whether all figures are equal, up to rounding."""
    return bool(np.ptp(figures) <= _ROUNDING * np.abs(figures).max())


def _most_worse(loss: Floats, control: Floats, better: Better, most: float | None) -> float:
    """Return the upper end of the mean loss, as a share of the control's mean (above 0).

    A share s is possible unless the mean of (loss - s * control) is shown to be below 0, at level
    .025
    (Fieller 1954). Found by bisection, as the upper end of that mean falls with s.
    """
    low, high = -WIDEST, WIDEST
    for _ in range(40):
        middle = (low + high) / 2.0
        within = None if most is None else _range_of_rest(middle, better, most)
        end = crossed_mean(loss - middle * control, within=within).interval.high
        low, high = (low, middle) if end <= 0.0 else (middle, high)
    return high


def _range_of_rest(share: float, better: Better, most: float) -> tuple[float, float]:
    """Return what (loss - share * control) can be, of two figures from 0 to ``most``."""
    sign = 1.0 if better == "lower" else -1.0
    ends = [sign * most, -(sign + share) * most]  # terms of candidate and control
    return sum(min(end, 0.0) for end in ends), sum(max(end, 0.0) for end in ends)


def _figures(name: str, trial: Trial, arm: str) -> tuple[Floats, Floats]:
    """Return a measure of each session, of the control and of the arm."""
    control, candidate = trial.courses[CONTROL], trial.courses[arm]
    if name == "calls_to_same_similarity":
        return both_calls_to_the_same(control, candidate)
    measure = MEASURES[name]
    return of_each(control, measure), of_each(candidate, measure)


def _steps(name: str, better: Better, tolerance: float, trial: Trial, arm: str) -> MeasureCheck:
    levels = np.full(len(trial.names), STOP_AT)
    if name == "steps_to_share":
        trial, levels = trial.searched(), SHARE * trial.best
        if levels.size < 2:
            says = "the exhaustive search ran on fewer than two targets"
            return MeasureCheck(name, nan, nan, nan, "not_measured", says)
    (control, mine), (candidate, theirs) = (
        timed(trial.courses[one], levels, trial.limit) for one in (CONTROL, arm)
    )
    if max(mine.mean(), theirs.mean()) < FEWEST_SOLVED:
        says = f"unknown: only {mine.mean():.1%} and {theirs.mean():.1%} of the sessions reached it"
        means = float(control.mean()), float(candidate.mean())
        return MeasureCheck(name, *means, nan, "unknown", says)
    return _check(name, better, tolerance, control, candidate, float(trial.limit))
