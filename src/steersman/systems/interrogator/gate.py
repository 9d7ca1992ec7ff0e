"""The regression gate: may the learned policy ask, instead of the heuristic?"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from steersman.spec.base import Declared, FormatVersion
from steersman.spec.reading import read_declared, shipped
from steersman.stats import crossed_mean
from steersman.systems.interrogator.investigation import STOP_AT
from steersman.systems.interrogator.measures import (
    MEASURES,
    SHARE,
    SHARES,
    both_calls_to_the_same,
    of_each,
)
from steersman.systems.interrogator.timing import timed
from steersman.systems.interrogator.trial import CONTROL

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.systems.interrogator.trial import Trial

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
"""Share of sessions, of one arm at least, that must get to a level for its steps to tell much."""
_ROUNDING = 1e-12
WIDEST = 2.0
"""Share of the heuristic's figure up to which a loss is looked for."""


class Gate(Declared):
    """What the policy may not be worse on, and by how much."""

    tolerance: Annotated[float, Field(gt=0, lt=1)]
    """Share of the heuristic's figure, above 0 to below 1."""
    measures: Annotated[dict[Measure, Better], Field(min_length=1)]
    """What is tracked, and which way is better."""


class Switch(Declared):
    """Whether the policy asks unless told otherwise, and the gate before that."""

    format: FormatVersion
    rl: Literal["on", "off"]
    """Whether the policy picks the questions when no command says so."""
    gate: Gate


@dataclass(frozen=True, slots=True)
class Checked:
    """One tracked measure, held against the gate.

    Args:
        measure: Its name.
        control: The heuristic's mean; NaN where nothing was measured.
        candidate: The policy's.
        worse_by: By which share of the heuristic's figure the policy is worse at most, by its 95 %
            interval, -2 to 2; below 0: it is shown to be better. NaN where there is no such share.
        state: ``passed``: that is within the tolerance; ``failed``: it is not, or not shown to be;
            ``unknown``: too few sessions got there for it to tell anything, it is 0 in all of
            either, or it is good enough and the same in all, and nobody knows what it could have
            been; ``not_measured``.
        says: Empty; or what keeps the measure from telling much.
    """

    measure: str
    control: float
    candidate: float
    worse_by: float
    state: State
    says: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate says of a policy.

    Args:
        arm: The policy's.
        tolerance: As declared.
        checked: Every tracked measure.
    """

    arm: str
    tolerance: float
    checked: tuple[Checked, ...]

    @property
    def passed(self) -> bool:
        """Whether every measure that can be known passed, and one can.

        What was not measured can be known, so it is no pass.
        """
        states = {one.state for one in self.checked}
        return "passed" in states and states <= {"passed", "unknown"}


def load_switch(path: Path | None = None) -> Switch:
    """Return what ``rl.yaml`` declares.

    Args:
        path: The file; ``None`` for the shipped one.

    Raises:
        SpecError: It cannot be read, or what it says is wrong.

    >>> switch = load_switch()
    >>> switch.rl, switch.gate.tolerance
    ('off', 0.05)
    """
    return read_declared(path or shipped("interrogator/rl.yaml"), Switch)[0]


def held_against(gate: Gate, trial: Trial, arm: str) -> Verdict:
    """Return what a gate says of an arm.

    A measure passes when the policy is *shown* not to be worse than the heuristic by more than the
    tolerance: the whole 95 % interval of the loss, as a share of the heuristic's figure, over runs
    and targets (`crossed_mean`), lies within it. That a difference could not be told is no pass,
    nor are figures that are all the same: of shares and steps, whose range is known, as many may be
    so by chance; of others nothing can be known then.

    Steps to a level that fewer than `FEWEST_SOLVED` of the sessions of either arm reach say
    nothing: nearly all are the limit, for both. The share that gets there is no measure of its own,
    as sessions that do not count as the limit: who solves fewer has more steps.

    Args:
        gate: As declared.
        trial: Of the arm and the heuristic.
        arm: Its name.

    Returns:
        The verdict.
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
) -> Checked:
    """Hold a measure of each session, which is not below 0 where ``most`` is known, to the gate."""
    loss = (1.0 if better == "lower" else -1.0) * (candidate - control)
    most = 1.0 if name in SHARES else most
    means = float(control.mean()), float(candidate.mean())
    if not (control.any() or candidate.any()):
        # Nothing was seen to be lost, nor anything that could be.
        return Checked(name, *means, nan, "unknown", "tells nothing: it is 0 for both")
    if means[0] <= 0.0:
        # No share of nothing can be allowed, so no loss is.
        within = None if most is None else (-most, most)
        end = crossed_mean(loss, within=within).interval.high
        state: State = "passed" if end <= 0.0 else "failed"
        return Checked(name, *means, nan, state, "the heuristic's mean is not above 0")
    rest = loss - tolerance * control
    if most is None and rest.mean() <= 0.0 and _is_even(rest):
        return Checked(name, *means, nan, "unknown", "tells nothing: no session differs")
    worst = _most_worse(loss, control, better, most)
    return Checked(name, *means, worst, "passed" if worst <= tolerance else "failed")


def _is_even(figures: Floats) -> bool:
    """Return whether all figures are one, up to rounding: that shows nothing of others."""
    return bool(np.ptp(figures) <= _ROUNDING * np.abs(figures).max())


def _most_worse(loss: Floats, control: Floats, better: Better, most: float | None) -> float:
    """Return the largest share of the control's mean, which is above 0, that the mean loss may be.

    A share s may be it unless the mean of (loss - s * control) is shown to be below 0, at level
    .025 (Fieller 1954). Bisected, as the upper end of that mean falls with s.
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
    ends = [sign * most, -(sign + share) * most]  # of the candidate's part and the control's
    return sum(min(end, 0.0) for end in ends), sum(max(end, 0.0) for end in ends)


def _figures(name: str, trial: Trial, arm: str) -> tuple[Floats, Floats]:
    """Return a measure of each session, of the control and of the arm."""
    control, candidate = trial.courses[CONTROL], trial.courses[arm]
    if name == "calls_to_same_similarity":
        return both_calls_to_the_same(control, candidate)
    measure = MEASURES[name]
    return of_each(control, measure), of_each(candidate, measure)


def _steps(name: str, better: Better, tolerance: float, trial: Trial, arm: str) -> Checked:
    levels = np.full(len(trial.names), STOP_AT)
    if name == "steps_to_share":
        trial, levels = trial.searched(), SHARE * trial.best
        if levels.size < 2:
            says = "fewer than two targets were searched"
            return Checked(name, nan, nan, nan, "not_measured", says)
    (control, mine), (candidate, theirs) = (
        timed(trial.courses[one], levels, trial.limit) for one in (CONTROL, arm)
    )
    if max(mine.mean(), theirs.mean()) < FEWEST_SOLVED:
        says = f"tells nothing: {mine.mean():.1%} and {theirs.mean():.1%} of sessions got there"
        means = float(control.mean()), float(candidate.mean())
        return Checked(name, *means, nan, "unknown", says)
    return _check(name, better, tolerance, control, candidate, float(trial.limit))
