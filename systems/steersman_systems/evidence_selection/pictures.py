"""Plot of a set: share of questions with all needed passages, with intervals and ceilings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman_systems.reports.html import new_axes

if TYPE_CHECKING:
    from steersman_systems.evidence_selection.report import SetReport

# Colours that people with any colour vision can tell apart (Okabe and Ito).
_BLUE, _GREY, _RED = "#0072b2", "#777777", "#d55e00"


def found_by_policy(report: SetReport) -> Any:
    """Return the plot of all gold found, by policy.

    Raises:
        DataError: matplotlib is not installed.
    """
    named = {p: values["all_gold"] for p, values in report.means.items()}
    figure, axes = new_axes(
        "questions with all gold among what was picked", "", height=1.2 + 0.26 * len(named)
    )
    rows = np.arange(len(named))[::-1]
    value = np.array([one.value for one in named.values()])
    reach = np.array([[one.value - one.low, one.high - one.value] for one in named.values()])
    axes.errorbar(
        value, rows, xerr=np.nan_to_num(reach.T), fmt="o", color=_BLUE, ecolor=_BLUE, capsize=3
    )
    retrieved, reachable = report.ceilings
    for share, label, style in (
        (retrieved, "all gold retrieved", ":"),
        (reachable, "all gold retrieved, or reached by links", "--"),
    ):
        axes.axvline(share, color=_RED if style == ":" else _GREY, linestyle=style, label=label)
    axes.set_yticks(rows, list(named))
    axes.set_xlim(-0.02, 1.02)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure
