"""Learning curves, for the terminal and as PNG."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install
from steersman_systems.reports.html import new_axes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WINDOW = 200
_COLOURS = {"learned": "#0b6e4f", "best fixed": "#b35900", "rules": "#5b5f97", "oracle": "#999999"}
_TERMINAL = {"learned": "green", "best fixed": "yellow", "rules": "blue", "oracle": "white"}


def need_charts(*libraries: str) -> None:
    """Check that the drawing libraries are installed, before minutes of work.

    Raises:
        DataError: a library is not installed.
    """
    for name in libraries:
        if find_spec(name) is None:
            raise _missing(name)


def _missing(library: str) -> DataError:
    message = f"{library} is not installed; charts need it. Run: {how_to_install('demo')}"
    return DataError(message)


def smoothed(rewards: Floats, window: int = WINDOW) -> tuple[Floats, Floats]:
    """Return (places, means): the mean of the last ``window`` rewards at each place.

    Args:
        window: at least 1; shortened to m if there are fewer rewards.
    """
    width = min(window, len(rewards))
    sums = np.concatenate(([0.0], np.cumsum(rewards)))
    places = np.arange(width, len(rewards) + 1)
    return places.astype(np.float64), (sums[width:] - sums[:-width]) / width


def terminal_chart(curves: Mapping[str, Floats], *, width: int, colours: bool) -> str:
    """Return the smoothed curves as text of at most ``width`` columns.

    Raises:
        DataError: plotille is not installed.
    """
    try:
        import plotille  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise _missing("plotille") from error
    figure = plotille.Figure()
    figure.width, figure.height = max(30, width - 28), 16
    figure.with_colors = colours
    figure.x_label, figure.y_label = "requests", "reward"
    figure.y_ticks_fkt = lambda low, _high: f"{low:.2f}"
    figure.x_ticks_fkt = lambda low, _high: f"{low:,.0f}"
    for name, rewards in curves.items():
        places, means = smoothed(rewards)
        figure.plot(places, means, lc=_TERMINAL.get(name), label=name)
    lowest, highest = _limits(curves)
    figure.set_y_limits(lowest, highest)
    figure.set_x_limits(0, max(len(rewards) for rewards in curves.values()))
    text: str = figure.show(legend=False)
    return text


def write_png(curves: Mapping[str, Floats], file: Path, *, title: str) -> None:
    """Write the smoothed curves as a PNG.

    Raises:
        DataError: matplotlib is not installed.
    """
    up = f"reward, mean of the last {WINDOW}"
    figure, axes = new_axes("requests answered", up, height=4.2)
    for name, rewards in curves.items():
        places, means = smoothed(rewards)
        colour = _COLOURS.get(name)
        axes.plot(places, means, color=colour, linewidth=2.2 if name == "learned" else 1.4)
        axes.annotate(
            name,
            (places[-1], means[-1]),
            (6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    axes.set_ylim(*_limits(curves))
    axes.set_xlim(0, max(len(rewards) for rewards in curves.values()) * 1.12)
    axes.set_title(title, loc="left", fontsize=11)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


def _limits(curves: Mapping[str, Floats]) -> tuple[float, float]:
    means = np.concatenate([smoothed(rewards)[1] for rewards in curves.values()])
    return float(np.floor(means.min() * 20) / 20), float(np.ceil(means.max() * 20) / 20)
