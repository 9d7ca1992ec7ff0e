"""Picture of the difference of two snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.ope.paired import OffPolicyDelta
    from steersman.registry.changes import Traffic

_MOST_ACTIONS = 12
_BEFORE, _AFTER = "#999999", "#0b6e4f"


def draw_diff(
    file: Path, names: tuple[str, str], traffic: Traffic | None, off_policy: OffPolicyDelta | None
) -> None:
    """Write traffic per action before and after, and the off-policy difference below it.

    Raises:
        DataError: matplotlib is not installed.
        InputError: no reference log, or an unsupported extension.
    """
    if traffic is None:
        raise InputError("no data to draw: compare the snapshots on a reference log")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 -- an extra, and heavy
    except ImportError as error:
        message = "matplotlib is not installed; pictures need: "
        raise DataError(message + how_to_install("demo")) from error
    count = min(len(traffic.shifts), _MOST_ACTIONS)
    figure = Figure(figsize=(8.0, 2.6 + 0.4 * count), layout="constrained")
    kinds = figure.canvas.get_supported_filetypes()
    if file.suffix[1:].lower() not in kinds:
        message = f"unsupported picture file {file.name!r:.80}; allowed endings: "
        raise InputError(message + ", ".join(f".{kind}" for kind in sorted(kinds)))
    upper, lower = figure.subplots(2, 1, height_ratios=[0.6 + 0.4 * count, 0.7])
    _draw_traffic(upper, traffic, names)
    _draw_delta(lower, off_policy)
    figure.suptitle(f"{names[0]} → {names[1]}")
    # No date and no random ids, so that one difference is one file.
    figure.savefig(file, dpi=150, metadata={"Software": None} if file.suffix == ".png" else None)


def _draw_traffic(axes: Any, traffic: Traffic, names: tuple[str, str]) -> None:
    shown = traffic.shifts[:_MOST_ACTIONS][::-1]
    places = range(len(shown))
    for offset, colour, name, shares in (
        (0.2, _BEFORE, names[0], [shift.before for shift in shown]),
        (-0.2, _AFTER, names[1], [shift.after for shift in shown]),
    ):
        axes.barh([place + offset for place in places], shares, 0.38, color=colour, label=name)
    # A dollar sign would begin mathematics.
    axes.set_yticks(list(places), [shift.action[:40].replace("$", r"\$") for shift in shown])
    axes.set_xlabel(f"share of {traffic.rows:,} logged requests")
    axes.set_xlim(0.0, 1.0)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(b=False)


def _draw_delta(axes: Any, found: OffPolicyDelta | None) -> None:
    axes.spines[["top", "right", "left"]].set_visible(b=False)
    axes.set_yticks([])
    axes.axvline(0.0, color=_BEFORE, linewidth=1.0)
    if found is None or found.delta is None:
        reasons = "no log" if found is None else "; ".join(found.reasons)
        axes.set_xlabel(f"off-policy difference: refused ({reasons[:90]})")
        return
    half = (found.high or 0.0) - found.delta
    axes.errorbar([found.delta], [0.0], xerr=[[half], [half]], fmt="o", color=_AFTER, capsize=4)
    sizes = f"{found.ess[0]:,.0f} and {found.ess[1]:,.0f}"
    axes.set_xlabel(
        f"difference in reward, off-policy ({found.level:.0%}; effective sample sizes {sizes})"
    )
