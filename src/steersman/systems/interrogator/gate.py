"""The regression gate: may the learned policy ask, instead of the heuristic?"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError
from scipy.special import stdtrit

from steersman.errors import SpecError
from steersman.spec.base import Declared
from steersman.spec.complaints import Complaint, complaints, dotted, report
from steersman.spec.document import MAX_BYTES, parse
from steersman.systems.interrogator.measures import (
    SHARE,
    Course,
    calls_to_the_same,
    hit_rate,
    per_target,
)
from steersman.systems.interrogator.questions import shipped
from steersman.systems.interrogator.trial import CONTROL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.systems.interrogator.trial import Trial

    Floats = NDArray[np.float64]

Measure = Literal[
    "similarity", "embedder_calls", "cache_hit_rate", "steps_to_090", "steps_to_share"
]
Better = Literal["higher", "lower"]
_FOUND = 0.90
_ONE_SIDED = 0.975
_WIDEST = 2.0


class Gate(Declared):
    """What the policy may not be worse on, and by how much."""

    tolerance: Annotated[float, Field(gt=0, lt=1)]
    """Share of the heuristic's figure, above 0 to below 1."""
    measures: Annotated[dict[Measure, Better], Field(min_length=1)]
    """What is tracked, and which way is better."""


class Switch(Declared):
    """Whether the policy asks unless told otherwise, and the gate before that."""

    format: Literal[1]
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
            interval; below 0: it is shown to be better.
        passed: Whether that is within the tolerance.
        says: Empty; or what keeps the measure from telling much.
    """

    measure: str
    control: float
    candidate: float
    worse_by: float
    passed: bool
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
        """Whether the policy is shown, on every measure, not to be worse by the tolerance."""
        return all(one.passed for one in self.checked)


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
    path = path or shipped("rl.yaml")
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path}: cannot be read: {error}; check the path, and save it as UTF-8"
        raise SpecError(message) from None
    document = parse(text, str(path))
    found = {Complaint(fault.line, dotted(fault.path), fault.text) for fault in document.faults}
    try:
        switch = Switch.model_validate(document.root)
    except ValidationError as error:
        found |= complaints(error, document, Switch.model_json_schema())
    if found:
        raise SpecError(report(str(path), found))
    return switch


def held_against(gate: Gate, trial: Trial, arm: str) -> Verdict:
    """Return what a gate says of an arm.

    A measure passes when the policy is *shown* not to be worse than the heuristic by more than the
    tolerance: the whole 95 % interval of the loss, as a share of the heuristic's figure, over
    targets, lies within it. That a difference could not be told is no pass.

    Args:
        gate: As declared.
        trial: Of the arm and the heuristic.
        arm: Its name.

    Returns:
        The verdict.

    No doctest: it needs a trial; ``tests/systems/interrogator/test_gate.py`` shows it.
    """
    checked = tuple(
        _check(name, better, gate.tolerance, *_figures(name, trial, arm))
        for name, better in gate.measures.items()
    )
    return Verdict(arm, gate.tolerance, checked)


def _check(
    name: str, better: Better, tolerance: float, control: Floats, candidate: Floats, says: str
) -> Checked:
    sign = 1.0 if better == "lower" else -1.0
    if not control.size:
        return Checked(name, nan, nan, nan, passed=False, says=says)
    means = float(control.mean()), float(candidate.mean())
    worst = _most_worse(sign * (candidate - control), control)
    return Checked(name, *means, worst, passed=worst <= tolerance, says=says)


def _most_worse(loss: Floats, control: Floats) -> float:
    """Return the largest share of the control's mean that the mean loss may be.

    A share s may be it unless the mean of (loss - s * control) is shown to be below 0, by a paired
    t test of level .025 (Fieller 1954). Bisected, as that end falls with s.
    """
    quantile = float(stdtrit(loss.size - 1, _ONE_SIDED))
    low, high = -_WIDEST, _WIDEST
    for _ in range(40):
        middle = (low + high) / 2.0
        rest = loss - middle * control
        end = rest.mean() + quantile * rest.std(ddof=1) / sqrt(rest.size)
        low, high = (low, middle) if end <= 0.0 else (middle, high)
    return high


def _figures(name: str, trial: Trial, arm: str) -> tuple[Floats, Floats, str]:
    """Return a measure's value for each target, of the control and of the arm."""
    if name in ("steps_to_090", "steps_to_share"):
        return _steps(name, trial, arm)
    control, candidate = trial.courses[CONTROL], trial.courses[arm]
    if name == "embedder_calls":
        return *calls(control, candidate), ""
    measure = hit_rate if name == "cache_hit_rate" else _reached
    return per_target(control, measure), per_target(candidate, measure), ""


def _steps(name: str, trial: Trial, arm: str) -> tuple[Floats, Floats, str]:
    if name == "steps_to_share":
        trial, levels = trial.searched(), SHARE * trial.best
        if not levels.size:
            return np.zeros(0), np.zeros(0), "no target was searched"
    else:
        levels = np.full(len(trial.names), _FOUND)
    runs = trial.courses[CONTROL], trial.courses[arm]
    says = "" if any(_ended(run, levels) for run in runs) else "no session of either reached it"
    control, candidate = (_restricted(run, levels, trial.limit) for run in runs)
    return control, candidate, says


def _ended(runs: Sequence[Sequence[Course]], levels: Floats) -> bool:
    return any(c.steps_to(w)[1] for run in runs for c, w in zip(run, levels, strict=True))


def _restricted(runs: Sequence[Sequence[Course]], levels: Floats, limit: int) -> Floats:
    """Return each target's questions to its level, the limit where it was never reached."""

    def questions(course: Course, level: float) -> int:
        steps, reached = course.steps_to(level)
        return steps if reached else limit

    rows = [[questions(c, w) for c, w in zip(run, levels, strict=True)] for run in runs]
    return np.asarray(np.mean(rows, axis=0), np.float64)


def calls(
    control: Sequence[Sequence[Course]], candidate: Sequence[Sequence[Course]]
) -> tuple[Floats, Floats]:
    """Return, for each target, the texts both embedded until they were equally close.

    Args:
        control: (seeds, targets) courses.
        candidate: Those of another arm.

    Returns:
        (targets,) float64 of both, means over the seeds.

    No doctest: it needs a trial; ``tests/systems/interrogator/test_gate.py`` shows it.
    """
    pairs = [
        [calls_to_the_same(a, b) for a, b in zip(*runs, strict=True)]
        for runs in zip(control, candidate, strict=True)
    ]
    first, second = np.moveaxis(np.array(pairs, np.float64), 2, 0)
    return first.mean(axis=0), second.mean(axis=0)


def _reached(course: Course) -> float:
    return course.reached
