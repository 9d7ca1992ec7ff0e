"""Report of a trial in figures, for JSON, the page and the terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.stats import crossed_mean
from steersman_systems.interrogator.gate import held_against
from steersman_systems.interrogator.investigation import STOP_AT
from steersman_systems.interrogator.latency import steps_until, timed
from steersman_systems.interrogator.measures import (
    MEASURES,
    SHARE,
    SHARES,
    both_calls_to_the_same,
    compared,
    described,
    of_each,
)
from steersman_systems.interrogator.trial import CONTROL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman_systems.interrogator.gate import Gate
    from steersman_systems.interrogator.measures import Course
    from steersman_systems.interrogator.trial import Trial

    Floats = NDArray[np.float64]

SAYS = {
    "similarity": "similarity reached",
    "calls_to_same_similarity": "embedder calls to the same similarity",
    "embedder_calls": "all embedder calls",
    "cache_hit_rate": "cache hits",
    "steps_to_090": "questions to .90",
    "steps_to_share": f"questions to {SHARE:.0%} of the search",
}
"""Label of each measure, by its name in reports and in the gate."""


def compile_report(trials: Mapping[str, Trial], gate: Gate, *, candidate: str) -> dict[str, Any]:
    """Return the figures of trials.

    Returns:
        JSON values. ``sets``: for each set ``targets``, ``searched``, ``arms``,
        ``against_heuristic`` (candidate minus heuristic, paired by session, with 95 % intervals
        over seeds and targets, and the mean of each seed; ``fewer_calls_to_same_similarity`` is
        heuristic minus candidate) and ``gate``. ``passed``: on every set.
    """
    sets = {name: _set(trial, gate, candidate) for name, trial in trials.items()}
    return {
        "candidate": candidate,
        "sets": sets,
        "passed": all(found["gate"]["passed"] for found in sets.values()),
    }


def _set(trial: Trial, gate: Gate, candidate: str) -> dict[str, Any]:
    others = [arm for arm in trial.courses if arm != CONTROL]
    return {
        "targets": len(trial.names),
        "seeds": len(trial.courses[CONTROL]),
        "limit": trial.limit,
        "searched": len(trial.best),
        "search_tries": trial.shortlist or "all",
        "search_similarity": float(trial.best.mean()) if len(trial.best) else None,
        "arms": {arm: _arm(trial, arm) for arm in trial.courses},
        "against_heuristic": {arm: _against(trial, arm) for arm in others},
        "gate": _gate(trial, gate, candidate),
    }


def _arm(trial: Trial, arm: str) -> dict[str, Any]:
    runs = trial.courses[arm]
    found: dict[str, Any] = {}
    for name, measure in MEASURES.items():
        within = (0.0, 1.0) if name in SHARES else None
        found[name] = described(crossed_mean(of_each(runs, measure), within=within))
    found["questions"] = float(of_each(runs, _questions).mean())
    for name, (part, levels) in _levels(trial).items():
        found[f"steps_to_{name}"] = steps_until(part.courses[arm], levels, trial.limit)
    return found


def _levels(trial: Trial) -> dict[str, tuple[Trial, Floats]]:
    """Return the targets that sessions are timed on, and the level of each."""
    found = {"090": (trial, np.full(len(trial.names), STOP_AT))}
    if len(trial.best) > 1:
        found["share"] = trial.searched(), SHARE * trial.best
    return found


def _against(trial: Trial, arm: str) -> dict[str, Any]:
    control, candidate = trial.courses[CONTROL], trial.courses[arm]
    spent, spends = both_calls_to_the_same(control, candidate)
    found: dict[str, Any] = {
        "fewer_calls_to_same_similarity": compared(spent - spends),
        "calls_of_heuristic": float(spent.mean()),
    }
    for name, measure in MEASURES.items():
        differences = of_each(candidate, measure) - of_each(control, measure)
        found[name] = compared(differences, shares=name in SHARES)
    for name, (part, levels) in _levels(trial).items():
        asked, asks = (timed(part.courses[one], levels, trial.limit)[0] for one in (CONTROL, arm))
        found[f"steps_to_{name}"] = compared(asks - asked)
    return found


def _gate(trial: Trial, gate: Gate, candidate: str) -> dict[str, Any]:
    verdict = held_against(gate, trial, candidate)
    checked = [
        {key: _plain(value) for key, value in asdict(one).items()} for one in verdict.checked
    ]
    return {"passed": verdict.passed, "tolerance": verdict.tolerance, "measures": checked}


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def curve_by_calls(runs: Sequence[Sequence[Course]], grid: Floats) -> Floats:
    """Return the mean similarity by number of embedded texts."""
    total = np.zeros(len(grid))
    for course in (course for run in runs for course in run):
        places = np.searchsorted(course.calls, grid, side="right") - 1
        total += course.similarity[np.maximum(places, 0)]
    return total / sum(len(run) for run in runs)


def curve_by_steps(runs: Sequence[Sequence[Course]], limit: int) -> Floats:
    """Return the mean similarity after each number of questions.

    Returns:
        (limit + 1,) mean similarity; a finished session keeps its last value.
    """
    rows = [
        course.similarity[np.minimum(np.arange(limit + 1), len(course.hits))]
        for run in runs
        for course in run
    ]
    return np.asarray(np.mean(rows, axis=0), np.float64)


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _questions(course: Course) -> float:
    return float(len(course.hits))
