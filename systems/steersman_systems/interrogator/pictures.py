"""Plots of a trial as SVG: similarity by cost, and differences by target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman_systems.interrogator.measures import both_calls_to_the_same
from steersman_systems.interrogator.report import curve_by_calls, curve_by_steps
from steersman_systems.interrogator.trial import CONTROL
from steersman_systems.reports.html import as_svg, new_axes

if TYPE_CHECKING:
    from steersman_systems.interrogator.trial import Trial

# Colours that people with any colour vision can tell apart (Okabe and Ito).
_COLOURS = {
    "heuristic": "#000000",
    "cold": "#56b4e9",
    "warm": "#009e73",
    "warm_online": "#d55e00",
    "uniform": "#999999",
    "nearest": "#cc79a7",
}
_NAMES = {"warm_online": "warm + online"}
_SHOWN = 0.95
"""Share of the sessions that fit on the axis of embedded texts."""


def arm_name(arm: str) -> str:
    """Return the display name of an arm.

    >>> arm_name("warm_online")
    'warm + online'
    """
    return _NAMES.get(arm, arm)


def draw(trial: Trial, candidate: str) -> list[tuple[str, str]]:
    """Return the plots of a trial as SVG elements with captions; equal trials give equal bytes.

    Raises:
        DataError: matplotlib is not installed.
    """
    by_calls = (
        "Mean similarity by number of embedded texts; at most "
        f"{1 - _SHOWN:.0%} of the sessions go beyond the right edge."
    )
    by_target = (
        "Embedded texts of the heuristic minus those of the policy, per target, until both are "
        "equally close. Right of the line, the policy needs fewer."
    )
    return [
        (as_svg(_by_calls(trial)), by_calls),
        (as_svg(_by_steps(trial)), "Mean similarity after each question."),
        (as_svg(_differences(trial, candidate)), by_target),
    ]


def _by_calls(trial: Trial) -> Any:
    spent = [course.calls[-1] for runs in trial.courses.values() for run in runs for course in run]
    # The nearest policy embeds all vocabularies in its first session, several times more texts.
    grid = np.arange(np.quantile(spent, _SHOWN, method="higher") + 1.0)
    figure, axes = new_axes("embedded texts", "cosine similarity")
    for arm, runs in trial.courses.items():
        curve = curve_by_calls(runs, grid)
        axes.step(grid, curve, where="post", color=_COLOURS[arm], label=arm_name(arm))
    axes.legend(frameon=False)
    return figure


def _by_steps(trial: Trial) -> Any:
    figure, axes = new_axes("questions", "cosine similarity")
    for arm, runs in trial.courses.items():
        curve = curve_by_steps(runs, trial.limit)
        axes.plot(curve, color=_COLOURS[arm], label=arm_name(arm), marker=".")
    if len(trial.best):
        about = f"search ({len(trial.best)} targets)"
        axes.axhline(trial.best.mean(), color="#888", linestyle=":", label=about)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    return figure


def _differences(trial: Trial, candidate: str) -> Any:
    spent, spends = both_calls_to_the_same(trial.courses[CONTROL], trial.courses[candidate])
    figure, axes = new_axes("fewer texts than the heuristic", "targets", height=2.6)
    axes.hist((spent - spends).mean(axis=0), bins=40, color=_COLOURS[candidate])
    axes.axvline(0.0, color="#000", linewidth=1)
    axes.yaxis.get_major_locator().set_params(integer=True)
    return figure
