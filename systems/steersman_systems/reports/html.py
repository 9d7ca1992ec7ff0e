"""What the systems' reports share: pictures as SVG and PNG, pages that need nothing else."""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def new_axes(across: str, up: str, *, height: float = 3.6) -> tuple[Any, Any]:
    """Return an empty figure and its axes, as all reports draw them.

    Args:
        height: In inches; it is 8 wide.

    Raises:
        DataError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 -- an extra, and heavy
    except ImportError as error:
        message = "matplotlib is not installed; the page needs: "
        raise DataError(message + how_to_install("demo")) from error
    figure = Figure(figsize=(8.0, height), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def as_svg(figure: Any) -> str:
    """Return a picture as an SVG element; of the same picture, the same to the byte."""
    from matplotlib import rc_context  # noqa: PLC0415 -- an extra, and heavy

    written = io.StringIO()
    # No date, and no random names of parts, so that one report is one page.
    with rc_context({"svg.hashsalt": "steersman"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    return str(svg[svg.index("<svg") :])


def write_html(file: Path, title: str, style: str, body: Iterable[str]) -> None:
    """Write a page.

    Raises:
        DataError: The file cannot be written.
    """
    page = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n<body>\n"
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page + "\n".join(body) + "\n</body>\n</html>\n", encoding="utf-8")
    except OSError as error:
        message = f"{file} cannot be written: {error}; name a file in a folder that can be"
        raise DataError(message) from error
